"""Reduce an experiment to what a testbed can measure."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds.campaign import applications, preflight
from k8sdds.campaign.expansion import expand
from k8sdds.model.application import ApplicationExperiment, LeftOut
from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Cell, Trial
from k8sdds.networks import label_without_engine
from k8sdds.testbeds import Testbed

OF_TESTBED = ("networks", "middleware", "security", "tuning")
"""Choices of an application that depend on the testbed, by key of a sweep."""

_Values = tuple[tuple[str, str], ...]
"""Key of a sweep and value, for each of these choices."""


def subset(experiment: Experiment, testbed: Testbed, required: Sequence[str]) -> tuple[Experiment, list[str]]:
    """Return what a testbed can measure of an experiment, and the names of what it does not have.

    Args:
        experiment: The experiment.
        testbed: Where to measure.
        required: Networks that are never left out, so that the check reports them.
    """
    reduced, left_out = testbed.supported_subset(experiment, required)
    if not isinstance(reduced, ApplicationExperiment):
        return reduced, left_out
    missing = _missing(reduced, testbed, required)
    names = [name for name in left_out if name not in labels(reduced)]
    recorded = [
        LeftOut(choice="network", value=name, why=f"this testbed does not have the network {name}")
        for name in names
    ]
    for axis, reasons in missing.items():
        reduced = applications.without(reduced, axis, list(reasons))
        choice = applications.SHOWN.get(axis, axis)
        recorded += [LeftOut(choice=choice, value=value, why=why) for value, why in reasons.items()]
        names += [value if axis == "networks" else f"{choice} {value}" for value in reasons]
    return reduced.model_copy(update={"left_out": recorded}), names


def labels(experiment: Experiment) -> list[str]:
    """Return the labels of the networks, without engines that the testbed selects."""
    names = (choice.display_name for sweep in experiment.sweeps for choice in sweep.networks)
    return list(dict.fromkeys(map(label_without_engine, names)))


def _missing(
    experiment: ApplicationExperiment, testbed: Testbed, required: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return the values with which no cell can be measured here, each with the reason, by key of a sweep.

    If no combination can be measured, nothing is missing: the check of the whole experiment reports why.
    """
    combinations: dict[_Values, Cell] = {}
    for cell in expand(experiment).cells:
        combinations.setdefault(_values(cell), cell)
    available: set[tuple[str, str]] = set()
    failures: dict[_Values, str] = {}
    for combination, cell in combinations.items():
        if not available.issuperset(combination):
            trial = Trial(cell=cell, testbed=testbed.name, repetition=0, duration_s=1, warmup_s=0)
            if problems := preflight.missing([trial], testbed):
                failures[combination] = problems[0].what
            else:
                available.update(combination)
    missing: dict[str, dict[str, str]] = {axis: {} for axis in OF_TESTBED}
    for combination, why in failures.items():
        unavailable = [pair for pair in combination if pair not in available]
        # Of a combination with one such value, this value is the reason.
        if available and len(unavailable) == 1:
            ((axis, value),) = unavailable
            if axis != "networks" or label_without_engine(value) not in required:
                missing[axis].setdefault(value, why)
    return missing


def _values(cell: Cell) -> _Values:
    """Return the values of a cell that depend on the testbed, by key of a sweep."""
    return tuple(
        (axis, str(cell.network_label if axis == "networks" else getattr(cell, axis))) for axis in OF_TESTBED
    )
