"""Make the cells of sweeps."""

from __future__ import annotations

from typing import Any

from k8sdds import workloads
from k8sdds.model import ip_families
from k8sdds.model.experiment import Experiment
from k8sdds.model.security import SecurityChoice
from k8sdds.model.sweep import NetworkChoice, Sweep, TestChoice
from k8sdds.model.trial import Cell, usual_discovery


def cell_of(experiment: Experiment, sweep: Sweep, values: dict[str, Any]) -> Cell:
    """Return a cell of a sweep: one value for each of its lists, and its `link`."""
    network: NetworkChoice = values.pop("networks")
    security: SecurityChoice = values.pop("security")
    test: TestChoice = values.pop("test")
    workload = workloads.find(test.name)
    if values["discovery"] == usual_discovery(values["transport"]):
        values["discovery"] = "auto"
    if values["publish_mode"] == "synchronous":
        # Cells that differ only in a limit that has no effect are the same cell.
        values["flow_bytes"] = 0
    if values["flow_bytes"]:
        values["flow_period_ms"] = sweep.flow_period_ms
    layout = sweep.layout or experiment.layout
    return Cell(
        network=network.name,
        network_options=network.model_dump(exclude={"name", "label"}, exclude_none=True),
        label=network.label if network.label != network.name else None,
        test=test.name,
        test_options=workload.options(**test.options).model_dump(mode="json", exclude_defaults=True),
        layout=workload.layout if layout == "auto" else layout,
        ip_families=sweep.ip_families or experiment.ip_families or ip_families.DEFAULT,
        placement=sweep.placement or experiment.placement,
        nodes=sweep.nodes,
        cpu_quota=sweep.cpu_quota,
        capture=sweep.capture,
        qos=sweep.qos or "",
        security=security.name,
        security_options=security.spec,
        **values,
    )
