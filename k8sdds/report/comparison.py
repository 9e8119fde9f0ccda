"""Show comparisons of run folders as terminal tables, CSV, JSON, and HTML with figures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis.capacities import searched_by, title_columns
from k8sdds.analysis.capacity import UNITS
from k8sdds.analysis.comparison import COLUMNS, Comparison, Side
from k8sdds.analysis.conditions import describe
from k8sdds.analysis.statistics import CONFIDENCE
from k8sdds.report import formats, winner
from k8sdds.report.export import Findings
from k8sdds.report.table import Cell, Table, judged
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row

if TYPE_CHECKING:
    from k8sdds.report.figures import Figure

MAX_REASONS = 8
"""Reasons that the notes give for metrics that were not compared; the JSON output has all."""


def findings(sides: Sequence[Side], comparisons: Sequence[Comparison], relative: bool = False) -> Findings:
    """Return the comparisons of all pairs of several sides: of levels, or of overheads if `relative`.

    The files are compare.html, .csv and .json, and figures of the changes relative to the first side.
    """
    named = list(zip(itertools.combinations(sides, 2), comparisons, strict=True))
    # This text is also a value in the JSON output, so it does not change.
    what = "Overheads against each side's baseline" if relative else "Levels"
    pairs = [_pair(a, b, what, one) for (a, b), one in named]
    data, columns, leads, which = pairs[0], COLUMNS, lead(comparisons[0]), [""]
    names = [side.name for side in sides]
    if len(pairs) > 1:
        rows = [{"side_a": pair["a"], "side_b": pair["b"]} | row for pair in pairs for row in pair["rows"]]
        data = {"schema": 1, "sides": names, "pairs": pairs, "rows": rows}
        columns = ("side_a", "side_b", *COLUMNS)
        which = [f"A: {pair['a']} · B: {pair['b']}. " for pair in pairs]
        leads = [f"{name}{' '.join(lead(one))}" for name, one in zip(which, comparisons, strict=True)]
    winners = [] if relative else winner.of_comparison(sides, comparisons)
    first, *others = winner.short_names(names)
    against_first = {name: one.rows for name, one in zip(others, comparisons, strict=False)}

    def draw(folder: Path) -> list[Figure]:
        from k8sdds.report.figures import changes

        quantities = dict.fromkeys(row["quantity"] for rows in against_first.values() for row in rows)
        return [changes.of_sides(first, against_first, name, folder) for name in quantities]

    return Findings(
        "compare", "Comparison", " · ".join(names) if len(names) > 2 else f"A: {names[0]} · B: {names[1]}",
        [*winners, *leads],
        [table for name, one in zip(which, comparisons, strict=True) for table in _tables(one, name, what, relative)],
        list(dict.fromkeys(note for one in comparisons for note in notes(one))), data, data["rows"], columns, draw,
    )  # fmt: skip


def _pair(a: Side, b: Side, what: str, one: Comparison) -> dict[str, Any]:
    """Return the comparison of two sides as JSON-serializable data."""
    return {
        "schema": 1, "a": a.name, "b": b.name, "compared": what, "how": one.how,
        "differing": {name: list(pair) for name, pair in one.differing.items()},
        "only_a": one.only_a, "only_b": one.only_b, "redefined": list(one.redefined),
        "missing": list(one.missing), "rows": [{name: row[name] for name in COLUMNS} for row in one.rows],
        "capacities": list(one.capacities), "software": one.software,
    }  # fmt: skip


def _tables(comparison: Comparison, which: str, what: str, relative: bool) -> list[Table]:
    """Return the table of the cells and that of the capacities, as far as they have rows."""
    unit = ", x/baseline" if relative else ""
    heads = ["cell", f"A{unit}", f"B{unit}", "change %", "p (Holm)", "detectable", "n", "verdict"]
    cells = [judged(_cells(row, comparison, relative), row) for row in comparison.rows]
    capacities = [[*map(Cell, _capacity_cells(row))] for row in comparison.capacities]
    found = [
        Table(f"{which}{what}", heads, cells),
        Table(f"{which}Capacities", ["capacity", "A", "B", "change %", "brackets"], capacities),
    ]
    return [table for table in found if table.rows]


def _capacity_cells(row: Row) -> list[str]:
    searched = searched_by(row)
    brackets = (
        " – ".join(formats.searched_value(searched, row[f"bracket_{side}_{end}"]) for end in ("low", "high"))
        for side in "ab"
    )
    change = "–"
    if row["ratio"] is not None:
        bounds = (100 * (row[name] - 1) for name in ("ratio", "bracket_ratio_low", "bracket_ratio_high"))
        change = formats.percent(*bounds)
    cell = f"{row['network']}, {describe({name: row[name] for name in title_columns(row)})}, {row['goal']}"
    overlap = {True: "overlap", False: "do not overlap", None: "unknown"}[row["overlapping"]]
    return [cell, *(f"{bracket} {UNITS[searched]}" for bracket in brackets), change, overlap]


def _cells(row: Row, comparison: Comparison, relative: bool) -> list[str]:
    unit = "" if relative else f" {METRICS[row['quantity']].unit}"
    low, high = (None if row[key] is None else 100 * (row[key] - 1) for key in ("ci_low", "ci_high"))
    verdict = "better" if row["better"] else "worse" if row["worse"] else "no difference shown"
    return [
        formats.cell_name(row, comparison.rows),
        *(f"{formats.number(row[side])}{unit}" for side in "ab"),
        formats.percent(row["change_percent"], low, high),
        "–" if row["p_holm"] is None else f"{row['p_holm']:.2g}",
        formats.detectable(row["detectable_percent"]) or "–",
        str(row["n_a"]) if row["n_a"] == row["n_b"] else f"{row['n_a']} and {row['n_b']}",
        row["how"] if row["p"] is None else verdict,
    ]


def lead(comparison: Comparison) -> list[str]:
    """Summarize in a few sentences how many cells differ."""
    tested = [row for row in comparison.rows if row["p"] is not None]
    better, worse = (sum(1 for row in tested if row[key]) for key in ("better", "worse"))
    single = sum(1 for row in comparison.rows if min(row["n_a"], row["n_b"]) == 1)
    equal = len(tested) - better - worse
    same = len(comparison.rows) - len(tested) - single
    sentences = {
        f"Of {formats.count(len(tested), 'comparison')}, B is better in {better} and worse in {worse}.": tested,
        f"In {equal}, no difference was shown. This does not prove equality.": equal,
        f"In {formats.count(single, 'comparison')}, a side has one repetition, which cannot show a difference,"
        " however large: measure at least 3 (--repeat 3).": single,
        f"In {same}, there is no test: all repetitions give the same number.": same,
    }
    return [sentence for sentence, applies in sentences.items() if applies]


def notes(comparison: Comparison) -> list[str]:
    """Return how the sides were compared, in what they differ, and what was not compared."""
    found = [
        "Change: B/A - 1 with its 95 % interval, from t tests on log ratios, "
        f"{comparison.how}. p: after Holm's correction over all rows of all pairs; significant at 5 %.",
        "Detectable: the true difference that is detected with 80 % power at the strictest of these levels.",
    ]
    if comparison.confidence != CONFIDENCE:
        found.append(
            "A campaign ended when its intervals were narrow (--precision): the intervals here are computed at"
            f" {100 * comparison.confidence:.0f} %, so that they hold in 95 % of such comparisons, and p is as strict."
        )
    for name, values in comparison.differing.items():
        shown = (
            "not recorded" if value is None else describe({name: value}) or str(value) for value in values
        )
        found.append(f"A and B differ in {name.replace('_', ' ')}: {' and '.join(shown)}.")
    found += _software(comparison)
    if comparison.capacities:
        found.append(
            "Capacities: B/A - 1 of the middles of the brackets, and in [] the range of all ratios of values in them."
            " One search has no error rate, so this is no verdict: equal networks often have brackets that do not"
            " overlap. Repeat the search in further campaigns."
        )
    if comparison.redefined:
        names = formats.join([METRICS[name].title for name in comparison.redefined])
        found.append(
            f"Not compared: {names}. Different versions of k8sdds measured A and B, with different definitions,"
            " or delays with different clocks (delay_method)."
        )
    found += [
        f"Not compared: {METRICS[row['quantity']].title} of {formats.count(row['cells'], 'cell')}: {row['reason']}."
        for row in comparison.missing[:MAX_REASONS]
    ]
    if more := comparison.missing[MAX_REASONS:]:
        found.append(
            f"Not compared for {len(more)} further reasons: {formats.count(sum(row['cells'] for row in more), 'cell')}."
        )
    found += [
        f"{formats.count(count, 'cell')} of {side} {'has' if count == 1 else 'have'} no counterpart."
        for count, side in ((comparison.only_a, "A"), (comparison.only_b, "B"))
        if count
    ]
    if "campaigns" in comparison.how:
        found.append(
            "Two campaigns also differ in time, temperature and other load. Levels of different machines are"
            " not comparable; overheads (--overheads) are more robust."
        )
    return found


def _software(comparison: Comparison) -> list[str]:
    """Return which software of the networks differs between the sides."""
    found = []
    for label, components in comparison.software.items():
        differing = {name: pair for name, pair in components.items() if pair[0] != pair[1]}
        for name, (a, b) in differing.items():
            found.append(f"{label}: {name} is {a or 'not recorded'} in A and {b or 'not recorded'} in B.")
        if not differing:
            versions = "; ".join(f"{name} {version}" for name, (version, _) in components.items())
            found.append(f"{label}: A and B have the same software: {versions}.")
    return found
