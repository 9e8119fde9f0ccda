"""Two run folders, or two networks of them, cell by cell: `k8sdds compare`.

Cells match where everything that was asked for is the same. What is constant within each side and differs
between them (testbed, middleware, link, …) is not part of the match: it is what is compared.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from k8sdds.analysis import overhead, tests
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.overhead import QUANTITIES, Row
from k8sdds.analysis.tests import Contrast
from k8sdds.system.errors import InputError

QUANTITIES_OF = {"throughput": ("throughput_mbps",), "latency": ("latency_p90_us",)}
"""What is compared unless other quantities are asked for, by test."""

COLUMNS = (
    "network", "test", "quantity", *(name for name in CONDITION if name not in ("test", "testbed", "nodes")),
    "a", "b", "ratio", "ci_low", "ci_high", "change_percent", "p", "p_holm", "different", "better", "worse",
    "detectable_percent", "n_a", "n_b", "how",
)  # fmt: skip
"""Columns of a comparison. `ratio` is B/A, with its 95 % interval; `p_holm` is over all rows."""

_ALWAYS = ("test", "payload_bytes", "publishers", "subscribers")
"""Numbers of cells that differ in these say nothing about each other."""

_NEVER = ("testbed", "nodes")
"""The testbed is what is compared, and the number of nodes follows from the participants."""


@dataclass(frozen=True)
class Side:
    """One side: a name for people, the folder it is from, its rows, and the baseline of its overheads."""

    name: str
    folder: str
    rows: list[Row]
    baseline: str | None = None
    label: str | None = None
    """The one network meant, where a side is a network of a folder."""


@dataclass(frozen=True)
class Comparison:
    """The rows by COLUMNS, what else differs between the sides, and cells that only one of them has."""

    rows: list[Row]
    differing: dict[str, tuple[Any, Any]]
    only_a: int
    only_b: int
    how: str


def compare(
    a: Side, b: Side, quantities: Sequence[str] = (), relative: bool = False, level: float = 0.05
) -> Comparison:
    """Every matching cell of two sides. `relative` compares overheads, each against its side's baseline.

    Two networks of one folder are compared by pairs within repetitions, everything else as independent
    campaigns. Raises InputError where both sides are the same, or no cell matches.
    """
    if (a.folder, a.label) == (b.folder, b.label):
        raise InputError("A and B are the same", "name two run folders, or two networks: FOLDER@LABEL")
    same_folder = a.folder == b.folder and not relative
    keyed = None if a.label or b.label else UNIT
    cells_a, cells_b, differing = _cells(a, b, keyed)
    shared = sorted((key for key in cells_a if key in cells_b), key=lambda key: _place(cells_a[key][0]))
    if not shared:
        raise InputError(
            f"{a.name} and {b.name} have no cell in common",
            "see what they measured: k8sdds report FOLDER --json",
        )
    rows = []
    for key in shared:
        ones, others = cells_a[key], cells_b[key]
        for name in quantities or QUANTITIES_OF.get(ones[0]["test"], tuple(QUANTITIES)):
            if not QUANTITIES[name].log:
                continue
            found = _one(a, b, ones, others, name, same_folder, relative)
            if found is not None:
                rows.append(_row(ones[0], key, name, found, a.label and b.label))
    _adjust(rows, level)
    how = "paired within repetition" if same_folder else "independent campaigns (Welch)"
    unmatched = len(cells_a) - len(shared), len(cells_b) - len(shared)
    return Comparison(rows, differing, *unmatched, how)


def _cells(
    a: Side, b: Side, keyed: str | None
) -> tuple[dict[tuple, list[Row]], dict[tuple, list[Row]], dict[str, tuple[Any, Any]]]:
    differing: dict[str, tuple[Any, Any]] = {}
    sides: tuple[dict[tuple, list[Row]], ...] = (defaultdict(list), defaultdict(list))
    for test in sorted({row["test"] for row in a.rows} & {row["test"] for row in b.rows}):
        of = [[row for row in side.rows if row["test"] == test] for side in (a, b)]
        matched = []
        for name in CONDITION:
            values = [{row[name] for row in rows} for rows in of]
            constant = all(len(found) == 1 for found in values)
            if name not in _ALWAYS and constant and values[0] != values[1]:
                differing[name] = (next(iter(values[0])), next(iter(values[1])))
            elif name not in _NEVER:
                matched.append(name)
        for cells, rows in zip(sides, of, strict=True):
            for row in rows:
                label = row[keyed] if keyed else None
                cells[(label, *((name, row[name]) for name in matched))].append(row)
    return dict(sides[0]), dict(sides[1]), differing


def _place(cell: Row) -> tuple:
    """Sorts cells for a reader: by test, subscribers and payload, throughput first."""
    return cell["test"] == "latency", cell["subscribers"] or 0, cell["payload_bytes"] or 0, str(cell[UNIT])


def _one(
    a: Side, b: Side, ones: list[Row], others: list[Row], name: str, pairs: bool, relative: bool
) -> tuple[Contrast, Contrast, Contrast, int, int] | None:
    """The contrast B/A of one cell and quantity, and the two levels behind it."""
    found, roundings = [], []
    for side, rows in ((a, ones), (b, others)):
        values = {key: math.log(value) for key, value in overhead.by_repetition(rows, name).items()}
        rounding = overhead.rounding(rows, name)
        if relative:
            baseline = _baseline(side, rows[0])
            base = overhead.by_repetition(baseline, name)
            values = {key: value - math.log(base[key]) for key, value in values.items() if key in base}
            rounding = math.hypot(rounding, overhead.rounding(baseline, name))
        found.append(values)
        roundings.append(rounding)
    if not all(found):
        return None
    first, second = found
    if pairs:
        shared = sorted(first.keys() & second.keys())
        if not shared:
            return None
        contrast = tests.one_sample([second[key] - first[key] for key in shared], math.hypot(*roundings))
    else:
        contrast = tests.independent_logs(
            list(second.values()), list(first.values()), (roundings[1], roundings[0])
        )
    levels = [tests.one_sample(list(values.values())) for values in found]
    return contrast, levels[0], levels[1], len(first), len(second)


def _baseline(side: Side, row: Row) -> list[Row]:
    """The baseline's trials in the cell's condition; none for the baseline itself, whose overhead is 0."""
    if row[UNIT] == side.baseline:
        return []
    return [
        other
        for other in side.rows
        if other[UNIT] == side.baseline and all(other[name] == row[name] for name in CONDITION)
    ]


def _row(
    cell: Row, key: tuple, name: str, found: tuple[Contrast, Contrast, Contrast, int, int], labelled: Any
) -> Row:
    contrast, level_a, level_b, n_a, n_b = found
    low, high = contrast.interval()
    asked = {column: cell[column] for column in CONDITION if column in COLUMNS}
    matched = {column for column, _ in key[1:]}
    return {
        "network": None if labelled else cell[UNIT],
        "quantity": name,
        **{column: value if column in matched else None for column, value in asked.items()},
        "test": cell["test"],
        "a": level_a.ratio, "b": level_b.ratio, "ratio": contrast.ratio, "ci_low": low, "ci_high": high,
        "change_percent": 100 * (contrast.ratio - 1), "p": contrast.p_different, "n_a": n_a, "n_b": n_b,
        "contrast": contrast,
    }  # fmt: skip


def _adjust(rows: list[Row], level: float) -> None:
    """Holm's correction over all rows that have a test, and what follows from it."""
    able = [row for row in rows if row["p"] is not None]
    adjusted = dict(zip(map(id, able), tests.holm([row["p"] for row in able]), strict=True))
    for row in rows:
        contrast: Contrast = row.pop("contrast")
        p = adjusted.get(id(row))
        different = p is not None and p <= level
        # More of a gain is better, more of a cost is worse.
        grew = contrast.ratio > 1
        better = grew == QUANTITIES[row["quantity"]].gain
        seen = tests.detectable(contrast, len(able), level)
        row |= {
            "p_holm": p, "different": different, "better": different and better,
            "worse": different and not better,
            "detectable_percent": None if seen is None else 100 * (seen - 1),
            "how": _how(contrast),
        }  # fmt: skip


def _how(contrast: Contrast) -> str:
    if contrast.testable:
        return "t test on log ratios"
    if contrast.error is None:
        return "no test: one repetition"
    return "no test: all repetitions give the same number"
