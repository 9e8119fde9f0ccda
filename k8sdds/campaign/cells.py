"""Make the cells of sweeps."""

from __future__ import annotations

from typing import Any

from k8sdds import workloads
from k8sdds.model.axis import Axis
from k8sdds.model.experiment import Experiment
from k8sdds.model.security import SecurityChoice
from k8sdds.model.settings import NetworkChoice, TestChoice
from k8sdds.model.sweep import Sweep
from k8sdds.model.trial import AXES, Cell, usual_discovery


def cell_of(experiment: Experiment, sweep: Sweep, values: dict[str, Any]) -> Cell:
    """Return a cell of a sweep: one value for each of its lists, and its `link`."""
    network: NetworkChoice = values.pop("networks")
    security: SecurityChoice = values.pop("security")
    test: TestChoice = values.pop("test")
    workload = workloads.find(test.name)
    settings = {name: _single(experiment, sweep, axis) for name, axis in AXES.items() if not axis.several}
    settings |= values
    if settings["layout"] == "auto":
        settings["layout"] = workload.layout
    if settings["discovery"] == usual_discovery(settings["transport"]):
        settings["discovery"] = "auto"
    # Cells that differ only in a limit that has no effect are the same cell.
    if settings["publish_mode"] == "synchronous":
        settings["flow_bytes"] = 0
    if not settings["flow_bytes"]:
        settings["flow_period_ms"] = AXES["flow_period_ms"].default
    settings |= {
        "network": network.name,
        "network_options": network.model_dump(exclude={"name", "label"}, exclude_none=True),
        "label": network.label if network.label != network.name else None,
        "test": test.name,
        "test_options": workload.options(**test.options).model_dump(mode="json", exclude_defaults=True),
        "security": security.name,
        "security_options": security.spec,
        "capture": sweep.capture,
    }
    return Cell(**settings)


def _single(experiment: Experiment, sweep: Sweep, axis: Axis) -> Any:
    """Return the value of a setting that a sweep has once, or that its experiment has for all sweeps."""
    if axis.key is None:
        return axis.default
    value = getattr(sweep, axis.key)
    if value is None and axis.of_experiment:
        value = getattr(experiment, axis.key)
    return axis.default if value is None else value
