"""Compare run folders, or their networks, cell by cell (`k8sdds compare`).

Two cells match if all settings that vary within a side are equal. Settings that are constant within each side
but differ between the sides, such as testbed, middleware or link, are the subject of the comparison and do
not have to match.
"""

from __future__ import annotations

import itertools
import json
import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from k8sdds.analysis import capacities, missing, overhead, statistics
from k8sdds.analysis.conditions import CONDITION, OBSERVED, UNIT
from k8sdds.analysis.overhead import Row
from k8sdds.analysis.statistics import CONFIDENCE, Contrast
from k8sdds.results.metrics import METRICS
from k8sdds.system.errors import InputError
from k8sdds.workloads import HEADLINES

COLUMNS = (
    "network", "test", "quantity", *(name for name in CONDITION if name not in ("test", "testbed", "nodes")),
    "a", "b", "ratio", "ci_low", "ci_high", "change_percent", "p", "p_holm", "different", "better", "worse",
    "detectable_percent", "n_a", "n_b", "how",
)  # fmt: skip
"""Columns of a comparison. `ratio` is B/A, with its 95 % interval. `p_holm` is the p value after Holm's
correction over all rows."""

_ALWAYS_MATCHED = ("test", "payload_bytes", "publishers", "subscribers", "loaded_latency")
"""Columns in which cells must be equal, because their values cannot be compared otherwise."""

_NEVER_MATCHED = ("testbed", "nodes", *OBSERVED)
"""Columns that are ignored: the testbed may be the subject of the comparison, and the number of nodes follows
from the participants."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    name: str
    """The name of the side in messages and tables."""
    folder: str
    rows: list[Row]
    baseline: str | None = None
    """The network that its overheads are relative to."""
    label: str | None = None
    """The label of the network, if the side is a single network of the folder."""
    capacities: Sequence[Row] = ()
    """What its capacity searches found, as rows from `capacities.table`."""
    confidence: float = CONFIDENCE
    """Level of its t intervals (`statistics.confidence_of`)."""


@dataclass(frozen=True)
class Comparison:
    """The result of comparing two sides."""

    rows: list[Row]
    """With COLUMNS."""
    differing: dict[str, tuple[Any, Any]]
    """Settings that are constant within each side but differ between the sides."""
    only_a: int
    """Number of cells that exist only in A."""
    only_b: int
    how: str
    redefined: tuple[str, ...] = ()
    """Metrics that were not compared, because their definition changed between the sides' records."""
    missing: tuple[Row, ...] = ()
    """Percentiles that a side has too few values for: `quantity`, `reason` and the number of `cells`."""
    capacities: tuple[Row, ...] = ()
    """Capacities of both sides, as rows from `capacities.changes`."""
    software: dict[str, dict[str, tuple[str | None, str | None]]] = field(default_factory=dict)
    """By network: the components of its software, each in A and B; None: this side does not have or name it."""
    confidence: float = CONFIDENCE
    """Level of the t intervals: the higher one of both sides."""


@dataclass(frozen=True)
class _Change:
    """The contrast B/A of one cell and metric, with the levels of both sides."""

    contrast: Contrast
    level_a: Contrast
    level_b: Contrast
    n_a: int
    n_b: int


def compare_all(
    sides: Sequence[Side], quantities: Sequence[str] = (), relative: bool = False, level: float = 0.05
) -> list[Comparison]:
    """Compare every pair of sides, in the order AB, AC, …, BC, …, with one correction over the rows of all pairs.

    Two networks of the same folder are compared in pairs within each repetition. In all other cases, the sides are
    compared as independent campaigns.

    Args:
        sides: The sides; ratios are relative to the first one of a pair.
        quantities: Names of the metrics to compare. If empty, the headline metrics of each cell are compared.
        relative: Whether to compare overheads, each relative to the baseline of its side.
        level: Significance level after Holm's correction.

    Raises:
        InputError: Both sides of a pair are the same, no cell matches, or no metric can be compared.
    """
    pairs = [_compare(a, b, quantities, relative) for a, b in itertools.combinations(sides, 2)]
    _adjust([row for pair in pairs for row in pair.rows], level)
    return pairs


def of_networks(trials: Sequence[Row], confidence: float = CONFIDENCE, level: float = 0.05) -> list[Row]:
    """Compare all pairs of networks of one campaign in their headline metrics, with one correction over all rows.

    Args:
        trials: Valid trials, as rows from `overhead.plain_rows`.
        confidence: Level of the t intervals (`statistics.confidence_of`).
        level: Significance level after Holm's correction.

    Returns:
        Rows as of `Comparison`, with the labels of both networks as `side_a` and `side_b`.
    """
    labels = dict.fromkeys(row[UNIT] for row in trials)
    sides = [
        Side(label, "", [row for row in trials if row[UNIT] == label], label=label, confidence=confidence)
        for label in labels
    ]
    rows = []
    for a, b in itertools.combinations(sides, 2):
        with suppress(InputError):  # they have no value in common
            rows += [{"side_a": a.name, "side_b": b.name} | row for row in _compare(a, b, (), False).rows]
    _adjust(rows, level)
    return rows


def _compare(a: Side, b: Side, quantities: Sequence[str], relative: bool) -> Comparison:
    """Return the comparison of two sides, without the columns that `_adjust` adds."""
    if (a.folder, a.label) == (b.folder, b.label):
        raise InputError(
            f"A and B are the same: {a.name}", "name two run folders, or two networks: FOLDER@LABEL"
        )
    for one, other in ((a, b), (b, a)):
        labels = sorted({row[UNIT] for row in (*one.rows, *one.capacities)})
        if other.label and not one.label and len(labels) > 1:
            choices = [f"{one.name}@{label}" for label in labels]
            raise InputError(
                f"{one.name} has {len(labels)} networks, but {other.name} is one network",
                f"name one: {', '.join(shlex.quote(name) for name in choices if name != other.name)}",
            )
    same_folder = a.folder == b.folder and not relative
    match_networks = not (a.label or b.label)
    cells_a, cells_b, differing = _cells(a, b, match_networks)
    shared = sorted((key for key in cells_a if key in cells_b), key=lambda key: _position(cells_a[key]))
    searched = tuple(capacities.changes(a.capacities, b.capacities, match_networks))
    if not shared and searched:
        return Comparison(
            [],
            differing,
            len(cells_a),
            len(cells_b),
            "by brackets",
            capacities=searched,
            software=_software(a, b, match_networks),
        )
    if not shared:
        raise InputError(
            f"{a.name} and {b.name} have no cell in common",
            "see what they measured: k8sdds report FOLDER --json",
        )
    rows = []
    redefined: dict[str, None] = {}
    unknown: Counter[tuple[str, str]] = Counter()
    longer = ""
    for key in shared:
        rows_a, rows_b = cells_a[key], cells_b[key]
        used = [*rows_a, *rows_b]
        if relative:
            used += [*_baseline(a, rows_a[0]), *_baseline(b, rows_b[0])]
        for name in quantities or _headlines(rows_a):
            if not METRICS[name].log:
                continue
            if len(_definitions(name, used)) > 1:
                redefined[name] = None
                continue
            change = _change(a, b, rows_a, rows_b, name, same_folder, relative)
            if change is not None:
                rows.append(_row(rows_a[0], key, name, change, match_networks))
            elif why := missing.reason(used, name):
                unknown[name, why] += 1
                longer = longer or missing.remedy(used, name)
    if redefined and not rows:
        raise InputError(
            f"{a.name} and {b.name} define {', '.join(redefined)} differently: different versions of k8sdds"
            " measured them, or delays have another delay_method",
            "measure both with this version and equally synchronized clocks,"
            " or compare another --quantity; see: k8sdds docs run-folder",
        )
    if unknown and not rows:
        raise InputError(
            f"{a.name} and {b.name} have no value to compare:"
            f" {'; '.join(f'{name}: {why}' for name, why in unknown)}",
            f"{longer} (k8sdds run --duration), or compare another --quantity",
        )
    how = "paired within repetition" if same_folder else "independent campaigns (Welch)"
    unmatched = len(cells_a) - len(shared), len(cells_b) - len(shared)
    few = tuple({"quantity": name, "reason": why, "cells": cells} for (name, why), cells in unknown.items())
    software = _software(a, b, match_networks)
    confidence = max(a.confidence, b.confidence)
    return Comparison(rows, differing, *unmatched, how, tuple(redefined), few, searched, software, confidence)


def _definitions(metric: str, rows: list[Row]) -> set[tuple[bool, str | None]]:
    """Return the definitions of a metric that the trials have: whether it is the current one, and the method.

    Published data that was imported always has the definition of the program that measured it.
    """
    own = [row for row in rows if row["testbed"] != "imported" and row.get(metric) is not None]
    return {
        ((row.get("schema") or 1) >= METRICS[metric].since, overhead.method(METRICS[metric], row))
        for row in own
    }


def _headlines(rows: list[Row]) -> list[str]:
    return [
        name
        for name in HEADLINES
        if missing.reason(rows, name) or any(row.get(name) is not None for row in rows)
    ]


def _cells(
    a: Side, b: Side, match_networks: bool
) -> tuple[dict[Key, list[Row]], dict[Key, list[Row]], dict[str, tuple[Any, Any]]]:
    """Return the cells of both sides by matching key, and the settings that differ between the sides."""
    differing: dict[str, tuple[Any, Any]] = {}
    cells_a: dict[Key, list[Row]] = defaultdict(list)
    cells_b: dict[Key, list[Row]] = defaultdict(list)
    for test in sorted({row["test"] for row in a.rows} & {row["test"] for row in b.rows}):
        rows_a, rows_b = ([row for row in side.rows if row["test"] == test] for side in (a, b))
        matched = []
        for name in (*CONDITION, *OBSERVED):
            values_a, values_b = {row.get(name) for row in rows_a}, {row.get(name) for row in rows_b}
            constant = len(values_a) == 1 and len(values_b) == 1
            # Earlier versions did not record what trials found.
            constant &= name in CONDITION or None not in values_a | values_b
            if name not in _ALWAYS_MATCHED and constant and values_a != values_b:
                differing[name] = (next(iter(values_a)), next(iter(values_b)))
            elif name not in _NEVER_MATCHED:
                matched.append(name)
        for cells, rows in ((cells_a, rows_a), (cells_b, rows_b)):
            for row in rows:
                label = row[UNIT] if match_networks else None
                cells[(label, *((name, row[name]) for name in matched))].append(row)
    return dict(cells_a), dict(cells_b), differing


def _software(a: Side, b: Side, match_networks: bool) -> dict[str, dict[str, tuple[str | None, str | None]]]:
    """Return the software of the networks that both sides have; without matching, that of each side's own network."""
    labels_a, labels_b = ({row[UNIT] for row in side.rows} for side in (a, b))
    found = {}
    for label in (
        sorted(labels_a & labels_b) if match_networks else [f"{a.label or 'A'} and {b.label or 'B'}"]
    ):
        own = [
            network_software(row for row in side.rows if not match_networks or row[UNIT] == label)
            for side in (a, b)
        ]
        names = dict.fromkeys([*own[0], *own[1]])
        if names:
            found[label] = {name: (own[0].get(name), own[1].get(name)) for name in names}
    return found


def network_software(rows: Iterable[Row]) -> dict[str, str]:
    """Return the software by component. Several versions of a component are joined."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    # Most trials of a campaign have the same text.
    for text in dict.fromkeys(row.get("network_software") for row in rows):
        for name, version in (json.loads(text) if text else {}).items():
            found[name][version] = None
    return {name: ", then ".join(versions) for name, versions in found.items()}


def installed_networks(rows: Iterable[Row]) -> dict[str, list[int]]:
    """Return the blocks during which each pod network was installed."""
    blocks: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        if row.get("installed_network") and row.get("block") is not None:
            blocks[row["installed_network"]].add(int(row["block"]))
    return {name: sorted(numbers) for name, numbers in blocks.items()}


def _position(rows: list[Row]) -> tuple[Any, ...]:
    """Return the sort key of a cell in the table: headline metric, subscribers, payload and network."""
    headline = next((HEADLINES.index(name) for name in _headlines(rows)), len(HEADLINES))
    cell = rows[0]
    return headline, cell["subscribers"] or 0, cell["payload_bytes"] or 0, str(cell[UNIT])


def _change(
    a: Side, b: Side, rows_a: list[Row], rows_b: list[Row], metric: str, pairs: bool, relative: bool
) -> _Change | None:
    logs_a, rounding_a = _logs(a, rows_a, metric, relative)
    logs_b, rounding_b = _logs(b, rows_b, metric, relative)
    confidence = max(a.confidence, b.confidence)
    if not logs_a or not logs_b:
        return None
    if pairs:
        shared = sorted(logs_a.keys() & logs_b.keys())
        if not shared:
            return None
        differences = [logs_b[repetition] - logs_a[repetition] for repetition in shared]
        contrast = statistics.one_sample(differences, math.hypot(rounding_a, rounding_b), confidence)
    else:
        values_b, values_a = list(logs_b.values()), list(logs_a.values())
        contrast = statistics.independent_logs(values_b, values_a, (rounding_b, rounding_a), confidence)
    level_a, level_b = (
        statistics.one_sample(list(logs_a.values())),
        statistics.one_sample(list(logs_b.values())),
    )
    return _Change(contrast, level_a, level_b, len(logs_a), len(logs_b))


def _logs(side: Side, rows: list[Row], metric: str, relative: bool) -> tuple[dict[int, float], float]:
    """Return the logarithms of the values, or of the overheads if `relative`, by repetition.

    The second result is the standard deviation of these logarithms that rounding alone causes.
    """
    logs = {key: math.log(value) for key, value in overhead.by_repetition(rows, metric).items()}
    rounding = overhead.rounding(rows, metric)
    if not relative:
        return logs, rounding
    baseline = _baseline(side, rows[0])
    base = overhead.by_repetition(baseline, metric)
    logs = {key: value - math.log(base[key]) for key, value in logs.items() if key in base}
    return logs, math.hypot(rounding, overhead.rounding(baseline, metric))


def _baseline(side: Side, row: Row) -> list[Row]:
    """Return the baseline's trials in the cell's condition. The baseline itself has none: its overhead is 0."""
    if row[UNIT] == side.baseline:
        return []
    return [
        other
        for other in side.rows
        if other[UNIT] == side.baseline and all(other[name] == row[name] for name in CONDITION)
    ]


def _row(cell: Row, key: Key, metric: str, change: _Change, with_network: bool) -> Row:
    contrast = change.contrast
    low, high = contrast.interval()
    matched = {column for column, _ in key[1:]}
    settings = {name: cell[name] if name in matched else None for name in CONDITION if name in COLUMNS}
    return {
        "network": cell[UNIT] if with_network else None, "quantity": metric, **settings,
        "test": cell["test"], "a": change.level_a.ratio, "b": change.level_b.ratio, "ratio": contrast.ratio,
        "ci_low": low, "ci_high": high, "change_percent": 100 * (contrast.ratio - 1),
        "p": contrast.p_different, "n_a": change.n_a, "n_b": change.n_b, "contrast": contrast,
    }  # fmt: skip


def _adjust(rows: list[Row], level: float) -> None:
    """Add the columns that depend on Holm's correction over all rows with a test."""
    tested = [row for row in rows if row["p"] is not None]
    adjusted = dict(zip(map(id, tested), statistics.holm([row["p"] for row in tested]), strict=True))
    for row in rows:
        contrast: Contrast = row.pop("contrast")
        p = adjusted.get(id(row))
        different = p is not None and p <= level
        better = (contrast.ratio > 1) == METRICS[row["quantity"]].gain
        detectable = statistics.detectable(contrast, len(tested), level)
        # The error of two groups of different sizes does not show what equal ones would have.
        equal = row["n_a"] == row["n_b"]
        row |= {
            "p_holm": p, "different": different, "better": different and better,
            "worse": different and not better,
            "detectable_percent": None if detectable is None else 100 * (detectable - 1),
            "how": _how(contrast),
            "repetitions": statistics.repetitions(contrast, len(tested), level) if equal else None,
        }  # fmt: skip


def _how(contrast: Contrast) -> str:
    if contrast.testable:
        return "t test on log ratios"
    if contrast.error is None:
        return "no test: one repetition"
    return "no test: all repetitions give the same number"
