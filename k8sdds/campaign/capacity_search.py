"""Plan the probes of capacity searches (`analysis.capacity`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from k8sdds import workloads
from k8sdds.analysis.capacity import Probe, Search
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.planner import Planner
from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Cell, Trial
from k8sdds.results.record import TrialRecord


class CapacitySearch(Planner):
    """The planner of all capacity searches of an experiment.

    Each search adds at most one probe to a round (or one per share of `latency_at_percent`). All probes of a round are
    one repetition, so that networks are compared under the same conditions.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment

    @cached_property
    def _cells(self) -> list[Cell]:
        """The cells without a rate, each of which is one search."""
        return [cell for cell in expand(self._experiment).cells if workloads.find(cell.test).finds_rate]

    def more(self, attempts: Sequence[TrialRecord]) -> Sequence[Trial]:
        """Return the next round; empty: all searches have ended."""
        number = 1 + max((record.repetition or 0 for record in attempts), default=0)
        rates = {record.rate or 0.0 for record in attempts}
        return [
            Trial(
                cell=cell.model_copy(update={"rate": rate}),
                testbed=str(attempts[0].testbed),
                repetition=number,
                duration_s=duration_s,
                warmup_s=self._experiment.warmup_s,
                max_loss_percent=self._experiment.max_loss_percent,
            )
            for cell in self._cells
            for rate, duration_s in self._next(cell, attempts, rates)
        ]

    def _next(
        self, cell: Cell, attempts: Sequence[TrialRecord], rates: set[float]
    ) -> list[tuple[float, float]]:
        """Return rates and durations of the next probes of a cell; empty if a trial has no valid attempt."""
        ids = {cell.model_copy(update={"rate": rate}).cell_id for rate in rates}
        own = [record for record in attempts if record.cell_id in ids]
        valid = {str(record.trial_id): record for record in own if record.valid}
        if not valid or any(str(record.trial_id) not in valid for record in own):
            return []
        options = workloads.find(cell.test).options(**cell.test_options).model_dump()
        search = Search.of(options, self._experiment.duration_s, self._experiment.repetitions)
        return search.next([Probe.of(vars(record)) for record in valid.values()])
