"""Reduce the configurations of an application to those that a testbed can measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from k8sdds.campaign import applications, preflight
from k8sdds.campaign.expansion import Expansion
from k8sdds.model.application import ApplicationExperiment, LeftOut
from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Cell
from k8sdds.networks import label_without_engine
from k8sdds.testbeds import Testbed

OF_TESTBED = ("networks", "middleware", "security", "tuning")
"""Choices of an application that depend on the testbed, by key of a sweep."""

_Values = tuple[tuple[str, str], ...]
"""Key of a sweep and value, for each of these choices."""


def subset(
    expansion: Expansion, removed: Sequence[str], testbed: Testbed, required: Sequence[str]
) -> tuple[Expansion, list[str]]:
    """Return the part of an experiment that a testbed can measure, and the names of what is left out.

    `removed` has the names of what the testbed removed: of an application, only labels of networks. `required` networks
    are kept, so that the check reports them.
    """
    experiment, known = expansion.experiment, expansion.candidates
    if known is None or not isinstance(experiment, ApplicationExperiment):
        return expansion, list(removed)
    missing = _missing(expansion, testbed, required)
    names = [name for name in removed if name not in labels(experiment)]
    left_out = [
        LeftOut(choice="network", value=name, why=f"this testbed does not have the network {name}")
        for name in names
    ]
    for axis, reasons in missing.items():
        experiment = applications.without(experiment, axis, list(reasons))
        choice = applications.SHOWN.get(axis, axis)
        left_out += [LeftOut(choice=choice, value=value, why=why) for value, why in reasons.items()]
        names += [value if axis == "networks" else f"{choice} {value}" for value in reasons]
    measurable = tuple(
        each
        for each in known.measurable
        if not any(str(value) in missing.get(axis, ()) for axis, value in each.choices)
    )
    reduced = replace(known, measurable=measurable)
    experiment = experiment.model_copy(update={"left_out": left_out})
    return replace(expansion, experiment=experiment, cells=reduced.cells, candidates=reduced), names


def labels(experiment: Experiment) -> list[str]:
    """Return the labels of the networks, without engines that the testbed selects."""
    names = (choice.display_name for sweep in experiment.sweeps for choice in sweep.networks)
    return list(dict.fromkeys(map(label_without_engine, names)))


def _missing(expansion: Expansion, testbed: Testbed, required: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the values with which no cell can be measured here, each with the reason, by key of a sweep.

    If no combination can be measured, nothing is missing: the check of the whole experiment reports why.
    """
    combinations: dict[_Values, Cell] = {}
    for cell in expansion.cells:
        combinations.setdefault(_values(cell), cell)
    available: set[tuple[str, str]] = set()
    failures: dict[_Values, str] = {}
    for combination, cell in combinations.items():
        if not available.issuperset(combination):
            if problems := preflight.missing([expansion.trial(cell, 0, testbed.name)], testbed):
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
    return tuple(
        (axis, str(cell.network_label if axis == "networks" else getattr(cell, axis))) for axis in OF_TESTBED
    )
