"""Show comparisons of run folders as terminal tables, CSV, JSON, and HTML with figures."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis.capacities import searched_by
from k8sdds.analysis.capacity import UNITS
from k8sdds.analysis.comparison import COLUMNS, Comparison, Side
from k8sdds.analysis.conditions import describe
from k8sdds.analysis.overhead import Row
from k8sdds.analysis.statistics import CONFIDENCE
from k8sdds.report import export, formats, winner
from k8sdds.report.table import Cell, Table, judged
from k8sdds.report.text import paragraph
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    from rich.console import Console

    from k8sdds.report.figures import Figure


def data_all(sides: Sequence[Side], pairs: Sequence[Comparison], relative: bool) -> dict[str, Any]:
    """Return the comparisons of all pairs as JSON-serializable data; one pair has the form of `data`."""
    compared = [
        data(a, b, pair, relative)
        for (a, b), pair in zip(itertools.combinations(sides, 2), pairs, strict=True)
    ]
    if len(compared) == 1:
        return compared[0]
    rows = [{"side_a": one["a"], "side_b": one["b"]} | row for one in compared for row in one["rows"]]
    return {"schema": 1, "sides": [side.name for side in sides], "pairs": compared, "rows": rows}


def data(a: Side, b: Side, comparison: Comparison, relative: bool) -> dict[str, Any]:
    """Return the comparison as JSON-serializable data."""
    return {
        "schema": 1, "a": a.name, "b": b.name, "compared": _compared(relative), "how": comparison.how,
        "differing": {name: list(pair) for name, pair in comparison.differing.items()},
        "only_a": comparison.only_a, "only_b": comparison.only_b, "redefined": list(comparison.redefined),
        "missing": list(comparison.missing),
        "rows": [{name: row[name] for name in COLUMNS} for row in comparison.rows],
        "capacities": list(comparison.capacities), "software": comparison.software,
    }  # fmt: skip


def show(a: Side, b: Side, comparison: Comparison, relative: bool, console: Console) -> None:
    """Print the table of the comparison, its summary and its notes."""
    name_a, name_b = winner.short_names([a.name, b.name])
    paragraph(console, f"B {name_b} compared with A {name_a}", style="bold")
    for table in _tables(comparison, relative):
        table.print(console, right=range(1, len(table.heads) - 1))
    for sentence in [*lead(comparison), *_notes(comparison)]:
        paragraph(console, sentence)


def write(sides: Sequence[Side], pairs: Sequence[Comparison], relative: bool, folder: Path) -> list[Path]:
    """Write compare.html, compare.csv, compare.json and the figures to a folder, and return the paths of the files."""
    from k8sdds.report.figures import changes

    result = data_all(sides, pairs, relative)
    names = [side.name for side in sides]
    tables: list[Table] = []
    sentences: list[str] = []
    notes: dict[str, None] = {}
    for (a, b), pair in zip(itertools.combinations(sides, 2), pairs, strict=True):
        which = f"A: {a.name} · B: {b.name}. " if len(pairs) > 1 else ""
        tables += _tables(pair, relative, which)
        sentences += [which + " ".join(lead(pair))] if which else lead(pair)
        notes |= dict.fromkeys(_notes(pair))
    short = winner.short_names(names)
    against_first = {name: pair.rows for name, pair in zip(short[1:], pairs, strict=False)}
    shown = {row["quantity"]: None for rows in against_first.values() for row in rows}
    page = {
        "title": f"{', '.join(names[1:])} compared with {names[0]}",
        "heading": "Comparison",
        "sub": f"A: {names[0]} · B: {names[1]}" if len(names) == 2 else " · ".join(names),
        "lead": ([] if relative else winner.of_comparison(sides, pairs)) + sentences,
        "tables": tables,
        "notes": [*notes],
    }
    columns = COLUMNS if len(pairs) == 1 else ("side_a", "side_b", *COLUMNS)

    def draw(folder: Path) -> list[Figure]:
        return [changes.of_sides(short[0], against_first, name, folder) for name in shown]

    return export.write(folder, "compare", result, result["rows"], columns, page, draw)


def _tables(comparison: Comparison, relative: bool, which: str = "") -> list[Table]:
    """Return the table of the cells and that of the capacities, as far as they have rows."""
    unit = ", x/baseline" if relative else ""
    heads = ["cell", f"A{unit}", f"B{unit}", "change %", "p (Holm)", "detectable", "n", "verdict"]
    cells = [judged(_cells(row, comparison, relative), row) for row in comparison.rows]
    capacities = [[*map(Cell, _capacity_cells(row))] for row in comparison.capacities]
    found = [
        Table(which + _compared(relative), heads, cells),
        Table(f"{which}Capacities", ["capacity", "A", "B", "change %", "brackets"], capacities),
    ]
    return [table for table in found if table.rows]


def _capacity_cells(row: Row) -> list[str]:
    searched = searched_by(row)
    ends = {
        name: formats.searched_value(searched, row[f"bracket_{name}"])
        for name in ("a_low", "a_high", "b_low", "b_high")
    }
    brackets = (f"{ends[f'{side}_low']} – {ends[f'{side}_high']} {UNITS[searched]}" for side in "ab")
    change = "–"
    if row["ratio"] is not None:
        bounds = (100 * (row[name] - 1) for name in ("ratio", "bracket_ratio_low", "bracket_ratio_high"))
        change = formats.percent(*bounds)
    overlap = {True: "overlap", False: "do not overlap", None: "unknown"}[row["overlapping"]]
    return [
        f"{row['network']}, {describe({name: row[name] for name in ('payload_bytes', 'rate')})}, {row['goal']}",
        *brackets,
        change,
        overlap,
    ]


def lead(comparison: Comparison) -> list[str]:
    """Summarize in a few sentences how many cells differ."""
    tested = [row for row in comparison.rows if row["p"] is not None]
    better, worse = (sum(1 for row in tested if row[key]) for key in ("better", "worse"))
    single = sum(1 for row in comparison.rows if min(row["n_a"], row["n_b"]) == 1)
    sentences = []
    if tested:
        sentences.append(
            f"Of {formats.count(len(tested), 'comparison')}, B is better in {better} and worse in {worse}."
        )
    if better + worse < len(tested):
        sentences.append(
            f"In {len(tested) - better - worse}, no difference was shown. This does not prove equality."
        )
    if single:
        sentences.append(
            f"In {formats.count(single, 'comparison')}, a side has one repetition, which cannot show a difference,"
            " however large: measure at least 3 (--repeat 3)."
        )
    if same := len(comparison.rows) - len(tested) - single:
        sentences.append(f"In {same}, there is no test: all repetitions give the same number.")
    return sentences


def _compared(relative: bool) -> str:
    # This text is also a value in the JSON output, so it does not change.
    return "Overheads against each side's baseline" if relative else "Levels"


def _cells(row: Row, comparison: Comparison, relative: bool) -> list[str]:
    metric = METRICS[row["quantity"]]
    cell = formats.cell_name(row, comparison.rows)
    unit = "" if relative else f" {metric.unit}"
    low, high = (None if row[key] is None else 100 * (row[key] - 1) for key in ("ci_low", "ci_high"))
    p = "–" if row["p_holm"] is None else f"{row['p_holm']:.2g}"
    n = str(row["n_a"]) if row["n_a"] == row["n_b"] else f"{row['n_a']} and {row['n_b']}"
    verdict = "better" if row["better"] else "worse" if row["worse"] else "no difference shown"
    if row["p"] is None:
        verdict = row["how"]
    return [
        cell, f"{formats.number(row['a'])}{unit}", f"{formats.number(row['b'])}{unit}",
        formats.percent(row["change_percent"], low, high), p,
        formats.detectable(row["detectable_percent"]) or "–", n, verdict,
    ]  # fmt: skip


def _software(comparison: Comparison) -> list[str]:
    """Return which software of the networks differs between the sides."""
    notes = []
    for label, components in comparison.software.items():
        differing = {name: pair for name, pair in components.items() if pair[0] != pair[1]}
        for name, (a, b) in differing.items():
            notes.append(f"{label}: {name} is {a or 'not recorded'} in A and {b or 'not recorded'} in B.")
        if not differing:
            versions = "; ".join(f"{name} {version}" for name, (version, _) in components.items())
            notes.append(f"{label}: A and B have the same software: {versions}.")
    return notes


def _notes(comparison: Comparison) -> list[str]:
    notes = [
        "Change: B/A - 1 with its 95 % interval, from t tests on log ratios, "
        f"{comparison.how}. p: after Holm's correction over all rows of all pairs; significant at 5 %.",
        "Detectable: the true difference that is detected with 80 % power at the strictest of these levels.",
    ]
    if comparison.confidence != CONFIDENCE:
        notes.append(
            "A campaign ended when its intervals were narrow (--precision): the intervals here are computed at"
            f" {100 * comparison.confidence:.0f} %, so that they hold in 95 % of such comparisons, and p is as strict."
        )
    for name, (value_a, value_b) in comparison.differing.items():
        values = " and ".join(_value(name, value) for value in (value_a, value_b))
        notes.append(f"A and B differ in {name.replace('_', ' ')}: {values}.")
    notes += _software(comparison)
    if comparison.capacities:
        notes.append(
            "Capacities: B/A - 1 of the middles of the brackets, and in [] the range of all ratios of values in them."
            " One search has no error rate, so this is no verdict: equal networks often have brackets that do not"
            " overlap. Repeat the search in further campaigns."
        )
    if comparison.redefined:
        names = formats.join([METRICS[name].title for name in comparison.redefined])
        notes.append(
            f"Not compared: {names}. Different versions of k8sdds measured A and B, with different definitions,"
            " or delays with different clocks (delay_method)."
        )
    notes += [
        f"Not compared: {METRICS[row['quantity']].title} of {formats.count(row['cells'], 'cell')}: {row['reason']}."
        for row in comparison.missing
    ]
    for count, side in ((comparison.only_a, "A"), (comparison.only_b, "B")):
        if count:
            verb = "has" if count == 1 else "have"
            notes.append(f"{formats.count(count, 'cell')} of {side} {verb} no counterpart.")
    if "campaigns" in comparison.how:
        notes.append(
            "Two campaigns also differ in time, temperature and other load. Levels of different machines are"
            " not comparable; overheads (--overheads) are more robust."
        )
    return notes


def _value(name: str, value: Any) -> str:
    if value is None:
        return "not recorded"
    return describe({name: value}) or str(value)
