"""Add repetitions of all cells until every overhead is known with the requested precision."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import override

from k8sdds import workloads
from k8sdds.analysis import overhead
from k8sdds.analysis.statistics import STOPPED_CONFIDENCE
from k8sdds.campaign.expansion import Expansion
from k8sdds.campaign.trial_loop import Planner
from k8sdds.model.trial import Cell, Trial
from k8sdds.results.metrics import METRICS
from k8sdds.results.record import TrialRecord
from k8sdds.system.grouping import Row

MIN_REPETITIONS = 3
"""Repetitions before the first decision, with which `STOPPED_CONFIDENCE` was calibrated."""
MAX_REPETITIONS = 200


@dataclass(frozen=True)
class Interval:
    """The interval of the overhead of a cell's main metric."""

    cell: Cell
    half_percent: float | None
    """Half of its width, in percentage points; None if fewer than two repetitions are valid."""
    n: int
    stays_unknown: bool = False
    """Whether a trial of the cell or of its baseline has none of the metrics: no further repetition changes this."""


class Precision(Planner):
    """The planner of campaigns with `precision_percent`: each round is a repetition of all cells.

    It decides by the widths of the intervals alone, never by where they are.
    """

    def __init__(self, expansion: Expansion) -> None:
        assert expansion.experiment.precision_percent is not None
        self._expansion, self._experiment = expansion, expansion.experiment
        self._percent = expansion.experiment.precision_percent

    @override
    def more(self, attempts: Sequence[TrialRecord]) -> Sequence[Trial]:
        done = _repetitions(attempts)
        enough = done >= MIN_REPETITIONS and not self._wide(attempts)
        if enough or done >= MAX_REPETITIONS or self._is_time_over(attempts):
            return ()
        return self._expansion.repetition(done, str(attempts[0].testbed))

    @override
    def status(self, attempts: Sequence[TrialRecord]) -> str:
        done, wide = _repetitions(attempts), self._wide(attempts)
        requested = f"±{self._percent:g} percentage points"
        lost = sum(interval.stays_unknown for interval in self.intervals(attempts))
        other = "other " if lost else ""
        why = "because trials ended before the metric or have too few values"
        note = f"; unknown overheads: {lost}, {why}" if lost else ""
        if not wide:
            every = f"the interval of every {other}overhead"
            return f"after {done} repetitions, {every} is within {requested}{note}"
        widest = max(wide, key=lambda interval: interval.half_percent or math.inf)
        known = "unknown" if widest.half_percent is None else f"±{widest.half_percent:.1f}"
        text = (
            f"after {done} repetitions, {len(wide)} overheads are not known within {requested}; the widest interval:"
            f" {known} ({widest.cell.describe()}){note}"
        )
        if self._is_time_over(attempts):
            return f"{text}. The time is over: {self._experiment.max_time_min:g} min"
        if done >= MAX_REPETITIONS:
            return f"{text}. A campaign has at most {MAX_REPETITIONS} repetitions"
        if widest.half_percent is None:
            return text
        # The width shrinks with the square root of the number of repetitions.
        left = math.ceil(widest.n * (widest.half_percent / self._percent) ** 2) - widest.n
        minutes = max(left, 1) * _measured_s(attempts) / done / 60
        return f"{text}; about {max(left, 1)} more repetitions, {minutes:.0f} min"

    def intervals(self, attempts: Sequence[TrialRecord]) -> Iterator[Interval]:
        """Return the interval of each overhead that the campaign compares."""
        rows: dict[str, list[Row]] = defaultdict(list)
        for record in attempts:
            if record.valid:
                rows[str(record.cell_id)].append(vars(record))
        baselines = {cell.condition: cell for cell in self._expansion.cells if self._is_baseline(cell)}
        for cell in self._expansion.cells:
            base = baselines.get(cell.condition)
            if self._is_baseline(cell) or base is None:
                continue
            own, its = rows[cell.cell_id], rows[base.cell_id]
            names = workloads.find(cell.test).headlines
            # The repetitions in which a metric is not missing are the fastest ones.
            missing = {name for row in (*own, *its) for name in row.get("missing") or ()}
            # A rate of 0 has no ratio.
            missing |= {name for name in names for row in (*own, *its) if row.get(name) == 0}
            known = [name for name in names if name not in missing]
            measured = (name for name in known if any(row.get(name) is not None for row in own))
            metric = METRICS[next(measured, (known or names)[0])]
            if not metric.log:
                continue
            if not known:
                yield Interval(cell, None, 0, stays_unknown=True)
                continue
            ratio, _ = overhead.paired(own, its, metric, STOPPED_CONFIDENCE)
            low, high = ratio.bounds if ratio else (None, None)
            half = None if low is None or high is None else 100 * (high - low) / 2
            yield Interval(cell, half, ratio.n if ratio else 0)

    def _wide(self, attempts: Sequence[TrialRecord]) -> list[Interval]:
        return [
            interval
            for interval in self.intervals(attempts)
            if not interval.stays_unknown
            and (interval.half_percent is None or interval.half_percent > self._percent)
        ]

    def _is_baseline(self, cell: Cell) -> bool:
        return cell.network_label == self._experiment.baseline

    def _is_time_over(self, attempts: Sequence[TrialRecord]) -> bool:
        limit = self._experiment.max_time_min
        if limit is None:
            return False
        spent_s = _measured_s(attempts)
        return spent_s + spent_s / _repetitions(attempts) > limit * 60


def _repetitions(attempts: Sequence[TrialRecord]) -> int:
    return 1 + max(record.repetition or 0 for record in attempts if not record.profiled)


def _measured_s(attempts: Sequence[TrialRecord]) -> float:
    return math.fsum(record.wall_s or 0 for record in attempts)
