"""Find the runs since which a metric of a repeated experiment is different (`k8sdds history`).

A series has one value per run folder: the mean logarithm over the repetitions. The statistic is the largest |t| over
all stretches of runs, each against the other runs, as in circular binary segmentation (Olshen, Venkatraman, Lucito,
Wigler, Biostatistics 5(4), 2004). Its p value comes from random orders of the runs, with the largest statistic of all
series (Westfall and Young, "Resampling-Based Multiple Testing", 1993), so that one false-alarm rate holds for all
series together, whatever their distribution and correlation with each other. Divided parts are tested again.

Random orders assume that runs are independent. If runs that follow each other are alike, their means vary more than
the orders show. Changes therefore count only if they are shown again with the correlation of the runs between them:
|t| is divided by the factor by which it increases the standard error of the stretch's mean.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from k8sdds.analysis import overhead
from k8sdds.analysis.conditions import COMPARABLE, UNIT
from k8sdds.analysis.statistics import geometric_mean
from k8sdds.results import steadiness
from k8sdds.results.columns import Metric
from k8sdds.results.metrics import METRICS
from k8sdds.system.errors import InputError
from k8sdds.system.grouping import Row, by_columns
from k8sdds.system.numbers import count
from k8sdds.workloads import HEADLINES

FALSE_ALARMS = 0.01
"""Probability that a history without any change shows one, over all its series."""
ORDERS = 4999
MIN_RUNS = 13
"""Of 11 runs, 1.5 % of all orders divide them as clearly as a change of any size in their middle does. Of 12 runs,
0.9 % do, which is too close to FALSE_ALARMS for ORDERS random ones; of 13 runs, 0.5 %."""
MIN_PART = 2
"""Runs on each side of a change. One different run is an outlier, not a change."""

COLUMNS = (
    "network", "quantity", *COMPARABLE, "runs", "changes", "changed",
    "folder", "started_at", "runs_since", "before", "after", "change_percent", "p", "better", "worse",
)  # fmt: skip
"""Columns of a history: one row per series, with its last change."""


@dataclass(frozen=True)
class Run:
    """One run of the experiment."""

    folder: str
    started_at: str
    rows: list[Row]
    baseline: str | None = None


Definition = frozenset[tuple[bool, str | None]]
"""How a metric was measured, see `overhead.definitions`. It is empty for imported data, which any other is comparable
with."""


@dataclass(frozen=True)
class Redefined:
    """Runs that were left out of the series of a metric, because the last run defines the metric differently."""

    quantity: str
    definition: Definition
    """The definition in these runs."""
    folders: list[str]

    def describe(self) -> str:
        """Return the metric, the number of runs and how they define it, for a message."""
        runs = count(len(self.folders), "run")
        return f"{METRICS[self.quantity].title} of {runs} ({self.describe_definition()})"

    def describe_definition(self) -> str:
        """Return whether the metric has its current definition, and by which methods it was measured."""
        schemas = {"current schema" if is_current else "earlier schema" for is_current, _ in self.definition}
        return ", ".join([*sorted(schemas), *sorted(method for _, method in self.definition if method)])


@dataclass(frozen=True)
class Change:
    """A change of a series."""

    index: int
    """Index of the first run after the change among the runs of the series."""
    p: float
    """p value, corrected for all places and all series."""


@dataclass
class Series:
    """One metric of one cell in all runs."""

    row: Row
    """The settings of the cell."""
    quantity: str
    logs: list[float]
    """Mean logarithm of each run; NaN if the run does not have the cell."""
    changes: list[Change]

    def means(self, runs: Sequence[Run]) -> list[tuple[Run, float]]:
        """Return the level, or the ratio to the baseline, of each run that has the cell."""
        return [(run, math.exp(log)) for run, log in zip(runs, self.logs, strict=True) if not math.isnan(log)]


@dataclass(frozen=True)
class History:
    """The series of an experiment."""

    runs: list[Run]
    """In the order in which they were started."""
    series: list[Series]
    redefined: list[Redefined]

    def rows(self) -> list[Row]:
        """Return one row per series, with COLUMNS."""
        return [_row(self.runs, one) for one in self.series]


def history(
    runs: Sequence[Run], quantities: Sequence[str] = (), relative: bool = False, level: float = FALSE_ALARMS
) -> History:
    """Return the series of the runs with their changes.

    By default, the series are those of the headline metrics of each cell. If relative, they are overheads, each
    relative to the baseline of its run. `level` is the probability of a false alarm in a history without changes.
    """
    ordered = sorted(runs, key=lambda run: run.started_at)
    if len(ordered) < MIN_RUNS:
        raise InputError(
            f"a history requires at least {MIN_RUNS} run folders, not {len(ordered)}",
            "measure the experiment more often, or compare single folders: k8sdds compare A B",
        )
    series, redefined = _series(ordered, quantities, relative)
    found = [one for one in series if sum(not math.isnan(log) for log in one.logs) >= MIN_RUNS]
    if not found:
        others = f"; the last run defines {', '.join(map(Redefined.describe, redefined))} differently"
        raise InputError(
            f"no metric of a cell was measured in at least {MIN_RUNS} of the {len(ordered)} run folders"
            f"{others if redefined else ''}",
            "name folders of the same experiment, in which the metrics have the same definition",
        )
    changes = find_changes([one.logs for one in found], level)
    for one, its in zip(found, changes, strict=True):
        one.changes = its
    return History(ordered, found, redefined)


def find_changes(logs: Sequence[Sequence[float]], level: float = FALSE_ALARMS) -> list[list[Change]]:
    """Return the changes of each series, all series having one value (or NaN) for each run.

    The indexes of changes are among the runs that the series has.
    """
    table = np.asarray(logs, dtype=float)
    divide = functools.cache(lambda first, end: _divide(table[:, first:end]))
    changes = _find(table, divide, level, [0.0] * len(table))
    return _find(table, divide, level, correlations(table, changes)) if any(changes) else changes


def _find(
    table: np.ndarray, divide: Callable[[int, int], Division], level: float, correlation: Sequence[float]
) -> list[list[Change]]:
    """Return the changes of each series, given the correlation of consecutive runs of each."""
    changes: list[list[Change]] = [[] for _ in table]
    parts = [(0, table.shape[1])]
    tested: set[tuple[int, int]] = set()
    while parts:
        first, end = parts.pop()
        if end - first < MIN_RUNS or (first, end) in tested:
            continue
        tested.add((first, end))
        division = divide(first, end)
        for number, stretch in enumerate(division.stretches):
            if stretch is None or (p := division.p(stretch, correlation[number])) > level:
                continue
            edges = [first, *(first + place for place in stretch.edges), end]
            parts += itertools.pairwise(edges)
            for run in edges[1:-1]:
                index = int(np.sum(~np.isnan(table[number, :run])))
                if all(abs(index - other.index) >= MIN_PART for other in changes[number]):
                    changes[number].append(Change(index, p))
    return [sorted(its, key=lambda change: change.index) for its in changes]


def correlations(table: np.ndarray, changes: Sequence[Sequence[Change]]) -> list[float]:
    """Return an upper bound of the correlation of consecutive runs of each series between its changes, 0 to 0.95.

    The estimate from n runs in k parts is too low by about 2 k/n: by (1 + 3ρ)/n for each estimated mean (Kendall,
    Biometrika 41, 1954), and because the parts are those that differ most. Its standard error is 1/√n (Bartlett,
    JRSS Suppl. 8, 1946) and is added. No series gets less than the mean over the series, which varies less.
    """
    bounds = []
    for values, its in zip(table, changes, strict=True):
        present = values[~np.isnan(values)]
        parts = np.split(present, [change.index for change in its])
        deviations = [part - part.mean() for part in parts]
        square = sum(float(part @ part) for part in deviations)
        products = sum(float(part[1:] @ part[:-1]) for part in deviations)
        n = len(present)
        bounds.append((products / square if square else 0.0) + 2 * len(parts) / n + 1 / math.sqrt(n))
    mean = math.fsum(bounds) / len(bounds)
    return [min(max(bound, mean, 0.0), steadiness.STRONGEST) for bound in bounds]


@dataclass(frozen=True)
class Stretch:
    """The stretch of runs of a series that differs most from the other runs."""

    edges: list[int]
    """The runs at which it begins and ends, without the ends of the series."""
    size: int
    """Number of runs in it or outside it, whichever is smaller."""
    statistic: float
    """Its |t| against the other runs."""


@dataclass(frozen=True)
class Division:
    """The most different stretch of each series, and what random orders of the runs show."""

    stretches: list[Stretch | None]
    """None if a series has too few runs or does not vary."""
    largest: np.ndarray
    """The largest |t| over all series in each order."""

    def p(self, stretch: Stretch, correlation: float) -> float:
        """Return the share of orders that divide a series as clearly, given the correlation of consecutive runs."""
        statistic = stretch.statistic / math.sqrt(steadiness.inflation(correlation, stretch.size))
        # The observed order is one of the possible orders, hence the 1.
        return float((1 + (self.largest >= statistic * (1 - 1e-9)).sum()) / (ORDERS + 1))


def _divide(table: np.ndarray) -> Division:
    count = table.shape[1]
    # A fixed seed: the same folders always give the same result.
    dice = np.random.default_rng(20240229)
    orders = dice.permuted(np.tile(np.arange(count), (ORDERS, 1)), axis=1)
    largest = np.zeros(ORDERS)
    stretches: list[Stretch | None] = []
    for values in table:
        present = np.flatnonzero(~np.isnan(values))
        runs = len(present)
        if runs < MIN_RUNS or np.ptp(values[present]) < 1e-9:
            stretches.append(None)
            continue
        (statistic,), (first,), (end,) = _stretches(values[present][None, :])
        edges = [int(present[edge]) for edge in (first, end) if 0 < edge < runs]
        size = int(end - first)
        stretches.append(Stretch(edges, min(size, runs - size), float(statistic)))
        shuffled = values[orders]
        if runs < count:
            behind = np.argsort(np.isnan(shuffled), axis=1, kind="stable")
            shuffled = np.take_along_axis(shuffled, behind, axis=1)[:, :runs]
        np.maximum(largest, _stretches(shuffled)[0], out=largest)
    return Division(stretches, largest)


def _stretches(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each row the largest |t| of a stretch against the rest, and where this stretch begins and ends.

    A stretch, and what is before and after it, has at least MIN_PART values or none.
    """
    rows, n = values.shape
    values = values - values.mean(axis=1, keepdims=True)
    sums = np.concatenate([np.zeros((rows, 1)), np.cumsum(values, axis=1)], axis=1)
    best, begin, end = np.zeros(rows), np.zeros(rows, int), np.zeros(rows, int)
    for size in range(MIN_PART, n - MIN_PART + 1):
        starts = np.arange(n - size + 1)
        rest = n - size - starts
        starts = starts[((starts == 0) | (starts >= MIN_PART)) & ((rest == 0) | (rest >= MIN_PART))]
        between = (sums[:, starts + size] - sums[:, starts]) ** 2 * (n / (size * (n - size)))
        at = np.argmax(between, axis=1)
        value = between[np.arange(rows), at]
        better = value > best
        best, begin = np.where(better, value, best), np.where(better, starts[at], begin)
        end = np.where(better, starts[at] + size, end)
    total = np.sum(values**2, axis=1)
    within = np.maximum(total - best, 1e-12 * total + 1e-300)
    return np.sqrt(best * (n - 2) / within), begin, end


@dataclass(frozen=True)
class _Level:
    """A metric of a cell in one run."""

    number: int
    """Index of the run."""
    row: Row
    definition: Definition
    log: float


def _series(
    runs: Sequence[Run], quantities: Sequence[str], relative: bool
) -> tuple[list[Series], list[Redefined]]:
    """Return the series, and what was left out of them because its definition is not that of the last run.

    The last run decides, because a history answers whether a metric is different now. If the last runs are imported
    data, which has no definition, the last run that has one decides.
    """
    series: list[Series] = []
    left_out: dict[tuple[str, Definition], dict[str, None]] = {}
    for (name, _), levels in _levels(runs, quantities, relative).items():
        last = next((level.definition for level in reversed(levels) if level.definition), Definition())
        logs = [math.nan] * len(runs)
        for level in levels:
            if not level.definition or level.definition == last:
                logs[level.number] = level.log
            else:
                left_out.setdefault((name, level.definition), {})[runs[level.number].folder] = None
        series.append(Series(levels[-1].row, name, logs, []))
    return series, [
        Redefined(name, definition, [*folders]) for (name, definition), folders in left_out.items()
    ]


def _levels(
    runs: Sequence[Run], quantities: Sequence[str], relative: bool
) -> dict[tuple[str, tuple[Any, ...]], list[_Level]]:
    """Return the levels of each metric of each cell, in the order of the runs."""
    found: dict[tuple[str, tuple[Any, ...]], list[_Level]] = {}
    for number, run in enumerate(runs):
        for key, trials in by_columns(run.rows, (UNIT, *COMPARABLE)).items():
            for name in quantities or HEADLINES:
                definition, log = _log(run, trials, METRICS[name], relative)
                if log is not None:
                    found.setdefault((name, key), []).append(_Level(number, trials[0], definition, log))
    return found


def _log(run: Run, trials: list[Row], metric: Metric, relative: bool) -> tuple[Definition, float | None]:
    """Return the definition of a metric of a cell in a run, and its mean logarithm."""
    base = overhead.base_of(trials[0], run.rows, run.baseline) if relative else []
    trials, base = overhead.alike(metric, trials, base)
    logs, _ = overhead.logs(trials, metric.name, base if relative else None)
    definition = Definition(overhead.definitions(metric, [*trials, *base]))
    return definition, math.fsum(logs.values()) / len(logs) if logs else None


def _row(runs: Sequence[Run], one: Series) -> Row:
    means = one.means(runs)
    row = {name: one.row[name] for name in COMPARABLE} | {
        "network": one.row[UNIT], "quantity": one.quantity, "runs": len(means), "changes": len(one.changes),
        "changed": bool(one.changes), "better": False, "worse": False,
    }  # fmt: skip
    last = dict.fromkeys(("folder", "started_at", "runs_since", "before", "after", "change_percent", "p"))
    if one.changes:
        index = one.changes[-1].index
        start = one.changes[-2].index if len(one.changes) > 1 else 0
        before, after = (
            geometric_mean([value for _, value in part]) for part in (means[start:index], means[index:])
        )
        run = means[index][0]
        better = (after > before) == METRICS[one.quantity].gain
        row |= {"better": better, "worse": not better}
        last = {
            "folder": run.folder, "started_at": run.started_at, "runs_since": len(means) - index, "before": before,
            "after": after, "change_percent": 100 * (after / before - 1), "p": one.changes[-1].p,
        }  # fmt: skip
    return row | last
