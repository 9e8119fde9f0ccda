"""Compare run folders, or their networks, cell by cell (`k8sdds compare`).

Two cells match if all settings that vary within a side are equal. Settings that are constant within each side
but differ between the sides, such as testbed, middleware or link, are the subject of the comparison and do
not have to match.
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from k8sdds.analysis import capacities, flows, missing, overhead
from k8sdds.analysis.conditions import COMPARABLE, CONDITION, OBSERVED, UNIT
from k8sdds.analysis.statistics import (
    CONFIDENCE,
    Contrast,
    detectable,
    holm,
    independent_logs,
    one_sample,
    repetitions,
)
from k8sdds.results.histograms import EACH_FLOW
from k8sdds.results.metrics import METRICS
from k8sdds.system.errors import InputError
from k8sdds.system.grouping import Row
from k8sdds.workloads import HEADLINES

COLUMNS = (
    "network", "test", "flow", "quantity", *(name for name in COMPARABLE if name != "test"),
    "a", "b", "ratio", "ci_low", "ci_high", "change_percent", "p", "p_holm", "different", "better", "worse",
    "detectable_percent", "n_a", "n_b", "how",
)  # fmt: skip
"""Columns of a comparison. `flow` is a flow or a chain of a graph. `ratio` is B/A, with its 95 % interval. `p_holm` is
the p value after Holm's correction over all rows."""

_ALWAYS_MATCHED = ("test", "payload_bytes", "publishers", "subscribers", "loaded_latency")
"""Columns in which cells must be equal, because their values cannot be compared otherwise."""

Key = tuple[Any, ...]
Cells = dict[Key, list[Row]]


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
    """By network: the components of its software, each in A and B; None if this side does not have or name it."""
    confidence: float = CONFIDENCE
    """Level of the t intervals: the higher one of both sides."""


def compare_all(
    sides: Sequence[Side], quantities: Sequence[str] = (), relative: bool = False, level: float = 0.05
) -> list[Comparison]:
    """Compare every pair of sides, in the order AB, AC, …, BC, …, with one correction over the rows of all pairs.

    Two networks of the same folder are compared in pairs within each repetition. In all other cases, the sides are
    compared as independent campaigns.

    Ratios are relative to the first side of a pair. By default, the headline metrics of each cell are compared. If
    relative, overheads are compared, each relative to the baseline of its side. Each flow and each chain of a graph is
    a cell of its own. `level` holds after the correction.
    """
    parts = [replace(side, rows=flows.separate(side.rows)) for side in sides]
    pairs = [_Pair(a, b, relative).compare(quantities) for a, b in itertools.combinations(parts, 2)]
    _adjust([row for pair in pairs for row in pair.rows], level)
    return pairs


def of_networks(trials: Sequence[Row], confidence: float = CONFIDENCE) -> list[Row]:
    """Compare all pairs of networks of one campaign in their headline metrics, with one correction over all rows.

    Returns rows as of `Comparison`, with the labels of both networks as `side_a` and `side_b`.
    """
    labels = dict.fromkeys(row[UNIT] for row in trials)
    sides = [
        Side(label, "", [row for row in trials if row[UNIT] == label], label=label, confidence=confidence)
        for label in labels
    ]
    rows = []
    for a, b in itertools.combinations(sides, 2):
        with suppress(InputError):  # they have no value in common
            rows += [{"side_a": a.name, "side_b": b.name} | row for row in _Pair(a, b).compare().rows]
    _adjust(rows, level=0.05)
    return rows


@dataclass(frozen=True)
class _Pair:
    a: Side
    b: Side
    relative: bool = False

    @property
    def match_networks(self) -> bool:
        return not (self.a.label or self.b.label)

    @property
    def is_paired(self) -> bool:
        """Whether both sides are in the same repetitions."""
        return self.a.folder == self.b.folder and not self.relative

    @property
    def confidence(self) -> float:
        return max(self.a.confidence, self.b.confidence)

    def compare(self, quantities: Sequence[str] = ()) -> Comparison:
        """Return the comparison, without the columns that `_adjust` adds."""
        self._check()
        cells_a, cells_b, differing = _cells(self.a, self.b, self.match_networks)
        shared = sorted((key for key in cells_a if key in cells_b), key=lambda key: _position(cells_a[key]))
        searched = capacities.changes(self.a.capacities, self.b.capacities, self.match_networks)
        if not shared and not searched:
            raise InputError(
                f"{self.a.name} and {self.b.name} have no cell in common",
                "see what they measured: k8sdds report FOLDER --json",
            )
        how = "paired within repetition" if self.is_paired else "independent campaigns (Welch)"
        rows, redefined, few = self._rows(cells_a, cells_b, shared, quantities)
        return Comparison(
            rows,
            differing,
            len(cells_a) - len(shared),
            len(cells_b) - len(shared),
            how if shared else "by brackets",
            redefined,
            few,
            tuple(searched),
            _software(self.a, self.b, self.match_networks),
            self.confidence if shared else CONFIDENCE,
        )

    def _check(self) -> None:
        a, b = self.a, self.b
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

    def _rows(
        self, cells_a: Cells, cells_b: Cells, shared: Sequence[Key], quantities: Sequence[str]
    ) -> tuple[list[Row], tuple[str, ...], tuple[Row, ...]]:
        """Return the rows, the metrics with other definitions, and the percentiles with too few values."""
        rows: list[Row] = []
        redefined: dict[str, None] = {}
        unknown: Counter[tuple[str, str]] = Counter()
        longer = ""
        for key in shared:
            rows_a, rows_b = cells_a[key], cells_b[key]
            bases = [self._base(self.a, rows_a[0]), self._base(self.b, rows_b[0])]
            used = [*rows_a, *rows_b, *itertools.chain.from_iterable(base or () for base in bases)]
            for name in quantities or _headlines(rows_a):
                if not METRICS[name].log:
                    continue
                if len(overhead.definitions(METRICS[name], used)) > 1:
                    redefined[name] = None
                elif change := self._change((rows_a, rows_b), bases, name):
                    rows.append(self._settings(rows_a[0], key) | {"quantity": name} | change)
                elif why := missing.reason(used, name):
                    unknown[name, why] += 1
                    longer = longer or missing.remedy(used, name)
        names = f"{self.a.name} and {self.b.name}"
        if redefined and not rows:
            raise InputError(
                f"{names} define {', '.join(redefined)} differently: different versions of k8sdds"
                " measured them, or delays have another delay_method",
                "measure both with this version and equally synchronized clocks,"
                " or compare another --quantity; see: k8sdds docs run-folder",
            )
        if unknown and not rows:
            raise InputError(
                f"{names} have no value to compare: {'; '.join(f'{name}: {why}' for name, why in unknown)}",
                f"{longer} (k8sdds run --duration), or compare another --quantity",
            )
        few = ({"quantity": name, "reason": why, "cells": n} for (name, why), n in unknown.items())
        return rows, tuple(redefined), tuple(few)

    def _base(self, side: Side, cell: Row) -> list[Row] | None:
        return overhead.base_of(cell, side.rows, side.baseline) if self.relative else None

    def _settings(self, cell: Row, key: Key) -> Row:
        matched = {column for column, _ in key[1:]}
        settings = {name: cell[name] if name in matched else None for name in CONDITION if name in COLUMNS}
        network = cell[UNIT] if self.match_networks else None
        return {"network": network, **settings, "test": cell["test"], "flow": cell.get("flow")}

    def _change(
        self, cells: tuple[list[Row], list[Row]], bases: Sequence[list[Row] | None], metric: str
    ) -> Row | None:
        """Return the change of a metric in a cell and the levels of both sides; None without a common value."""
        (logs_a, rounding_a), (logs_b, rounding_b) = (
            overhead.logs(rows, metric, base) for rows, base in zip(cells, bases, strict=True)
        )
        if self.is_paired:
            shared = sorted(logs_a.keys() & logs_b.keys())
            logs_a, logs_b = ({key: logs[key] for key in shared} for logs in (logs_a, logs_b))
        if not logs_a or not logs_b:
            return None
        values_a, values_b = list(logs_a.values()), list(logs_b.values())
        if self.is_paired:
            differences = [b - a for a, b in zip(values_a, values_b, strict=True)]
            contrast = one_sample(differences, math.hypot(rounding_a, rounding_b), self.confidence)
        else:
            contrast = independent_logs(values_b, values_a, (rounding_b, rounding_a), self.confidence)
        low, high = contrast.interval()
        return {
            "a": one_sample(values_a).ratio, "b": one_sample(values_b).ratio, "ratio": contrast.ratio,
            "ci_low": low, "ci_high": high, "change_percent": 100 * (contrast.ratio - 1),
            "p": contrast.p_different, "n_a": len(logs_a), "n_b": len(logs_b), "contrast": contrast,
        }  # fmt: skip


def _headlines(rows: list[Row]) -> list[str]:
    return [
        name
        for name in HEADLINES
        if missing.reason(rows, name) not in ("", EACH_FLOW) or any(row.get(name) is not None for row in rows)
    ]


def _cells(a: Side, b: Side, match_networks: bool) -> tuple[Cells, Cells, dict[str, tuple[Any, Any]]]:
    """Return the cells of both sides by matching key, and the settings that differ between the sides."""
    differing: dict[str, tuple[Any, Any]] = {}
    cells_a: Cells = defaultdict(list)
    cells_b: Cells = defaultdict(list)
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
            elif name in COMPARABLE:
                matched.append(name)
        for cells, rows in ((cells_a, rows_a), (cells_b, rows_b)):
            for row in rows:
                label = row[UNIT] if match_networks else None
                key = (label, ("flow", row.get("flow")), *((name, row[name]) for name in matched))
                cells[key].append(row)
    return dict(cells_a), dict(cells_b), differing


def _software(a: Side, b: Side, match_networks: bool) -> dict[str, dict[str, tuple[str | None, str | None]]]:
    """Return the software of the networks that both sides have; without matching, that of each side's own network."""
    labels_a, labels_b = ({row[UNIT] for row in side.rows} for side in (a, b))
    found = {}
    for label in (
        sorted(labels_a & labels_b) if match_networks else [f"{a.label or 'A'} and {b.label or 'B'}"]
    ):
        mine, other = (
            network_software(row for row in side.rows if not match_networks or row[UNIT] == label)
            for side in (a, b)
        )
        if names := dict.fromkeys([*mine, *other]):
            found[label] = {name: (mine.get(name), other.get(name)) for name in names}
    return found


def network_software(rows: Iterable[Row]) -> dict[str, str]:
    """Return the software by component. Several versions of a component are joined."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        for name, version in (row.get("network_software") or {}).items():
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


def _adjust(rows: list[Row], level: float) -> None:
    """Add the columns that depend on Holm's correction over all rows with a test."""
    tested = [row for row in rows if row["p"] is not None]
    adjusted = dict(zip(map(id, tested), holm([row["p"] for row in tested]), strict=True))
    for row in rows:
        contrast: Contrast = row.pop("contrast")
        p = adjusted.get(id(row))
        different = p is not None and p <= level
        better = (contrast.ratio > 1) == METRICS[row["quantity"]].gain
        shown = detectable(contrast, len(tested), level)
        # The error of two groups of different sizes does not show what equal ones would have.
        equal = row["n_a"] == row["n_b"]
        row |= {
            "p_holm": p, "different": different, "better": different and better,
            "worse": different and not better,
            "detectable_percent": None if shown is None else 100 * (shown - 1),
            "how": _how(contrast),
            "repetitions": repetitions(contrast, len(tested), level) if equal else None,
        }  # fmt: skip


def _how(contrast: Contrast) -> str:
    if contrast.testable:
        return "t test on log ratios"
    if contrast.error is None:
        return "no test: one repetition"
    return "no test: all repetitions give the same number"
