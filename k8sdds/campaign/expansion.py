"""Expand an experiment into the cells and trials to measure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from k8sdds import workloads
from k8sdds.middleware import config
from k8sdds.model import ip_families
from k8sdds.model.experiment import LISTS, Experiment, NetworkChoice, Sweep, TestChoice
from k8sdds.model.security import SecurityChoice
from k8sdds.model.trial import Cell, Trial, usual_discovery


@dataclass(frozen=True)
class Expansion:
    """An experiment's cells, each once, in the order of the file."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    where: dict[str, str] = field(default_factory=dict)
    """cell_id to `FILE:LINE: ` of the sweep that the cell comes from, for messages."""

    def trials(self, testbed: str) -> list[Trial]:
        """Return a trial for every cell and repetition, repetition by repetition, and then the profiles."""
        repetitions = [
            (cell, repetition) for repetition in range(self.experiment.repetitions) for cell in self.cells
        ]
        return [
            Trial(
                cell=cell,
                testbed=testbed,
                repetition=repetition,
                duration_s=self.experiment.duration_s,
                warmup_s=self.experiment.warmup_s,
                max_loss_percent=self.experiment.max_loss_percent,
            )
            # A repetition of their own, so that no testbed runs a profile before or between measured trials.
            for cell, repetition in [
                *repetitions,
                *((cell, self.experiment.repetitions) for cell in self._profiled),
            ]
        ]

    @property
    def _profiled(self) -> list[Cell]:
        """The first cell of each network and test, if the experiment has profiles."""
        if not self.experiment.profile:
            return []
        first: dict[tuple[str, str], Cell] = {}
        for cell in self.cells:
            first.setdefault((cell.network_label, cell.test), cell)
        return [cell.model_copy(update={"profile": True}) for cell in first.values()]


def expand(experiment: Experiment) -> Expansion:
    """Return all cells of all sweeps. A cell that two sweeps share is measured once."""
    cells: dict[str, Cell] = {}
    where: dict[str, str] = {}
    for sweep in experiment.sweeps:
        own_config = _middleware_config(sweep)
        links = list((sweep.link or experiment.link).each())
        for *values, link in itertools.product(*(getattr(sweep, name) for name in LISTS), links):
            settings = dict(zip(LISTS, values, strict=True)) | {"link": link}
            cell = _cell(experiment, sweep, settings | own_config)
            if cells.setdefault(cell.cell_id, cell) is cell:
                where[cell.cell_id] = sweep.where
    return Expansion(experiment, tuple(cells.values()), where)


def _cell(experiment: Experiment, sweep: Sweep, values: dict[str, Any]) -> Cell:
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


def _middleware_config(sweep: Sweep) -> dict[str, Any]:
    path = sweep.middleware_config
    return {"middleware_config": path, "middleware_config_sha256": config.checksum(path)} if path else {}
