"""Select the planner of an experiment."""

from __future__ import annotations

from k8sdds import workloads
from k8sdds.campaign.planner import Planner
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment


def of(experiment: Experiment) -> Planner | None:
    """Return the planner of an experiment; None: its sweeps and repetitions state all trials."""
    if isinstance(experiment, ApplicationExperiment) and experiment.search is not None:
        from k8sdds.campaign.racing import Racing

        return Racing(experiment, experiment.search)
    tests = {test.name for sweep in experiment.sweeps for test in sweep.test}
    if any(workloads.find(test).finds_capacity for test in tests):
        from k8sdds.campaign.capacity_search import CapacitySearch

        return CapacitySearch(experiment)
    if experiment.precision_percent is not None:
        from k8sdds.campaign.precision import Precision

        return Precision(experiment, experiment.precision_percent)
    return None
