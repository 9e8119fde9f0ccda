"""Decide from the results so far which trials a campaign measures next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from k8sdds import workloads
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Trial
from k8sdds.results.record import TrialRecord


class Planner(Protocol):
    """Adds trials to a running campaign.

    A planner keeps no state: after an interruption, the attempts in the run folder lead to the same decision. The pods
    of an added trial are among those of the campaign's first trials, because a cluster creates them for those.
    """

    def more(self, attempts: Sequence[TrialRecord]) -> Sequence[Trial]:
        """Return the trials to measure next; empty: the campaign ends.

        Called when no planned trial needs another attempt. Trials that have used up their attempts stay without a valid
        one.

        Args:
            attempts: All attempts of the campaign, in the order in which they ended.
        """

    def status(self, attempts: Sequence[TrialRecord]) -> str:
        """Return how far the campaign is, in one line for the user; empty: nothing to show."""
        return ""


def of(experiment: Experiment) -> Planner | None:
    """Return the planner of an experiment; None: its sweeps and repetitions state all trials."""
    if isinstance(experiment, ApplicationExperiment) and experiment.search is not None:
        from k8sdds.campaign.racing import Racing

        return Racing(experiment, experiment.search)
    tests = {test.name for sweep in experiment.sweeps for test in sweep.test}
    if any(workloads.find(test).finds_rate for test in tests):
        from k8sdds.campaign.capacity_search import CapacitySearch

        return CapacitySearch(experiment)
    if experiment.precision_percent is not None:
        from k8sdds.campaign.precision import Precision

        return Precision(experiment, experiment.precision_percent)
    return None
