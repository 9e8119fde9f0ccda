"""Expand an experiment into the cells and trials to measure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from k8sdds import workloads
from k8sdds.campaign import applications
from k8sdds.campaign.cells import cell_of
from k8sdds.middleware import config
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment
from k8sdds.model.sweep import LISTS, Sweep
from k8sdds.model.trial import Cell, Trial


@dataclass(frozen=True)
class Expansion:
    """An experiment's cells, each once, in the order of the file."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    first: tuple[Cell, ...] = ()
    """The cells that a search measures first; empty: all."""
    where: dict[str, str] = field(default_factory=dict)
    """cell_id to `FILE:LINE: ` of the sweep that the cell comes from, for messages."""

    def trials(self, testbed: str) -> list[Trial]:
        """Return a trial for every cell and repetition, repetition by repetition, and then the profiles.

        A search plans its further trials while it runs.
        """
        repetitions = [(cell, 0) for cell in self.first] or [
            (cell, repetition)
            for repetition in range(self.experiment.repetitions)
            for cell in self.cells
            if repetition == 0 or not workloads.find(cell.test).finds_capacity
        ]
        return [
            self._trial(cell, repetition, testbed)
            # A repetition of their own, so that no testbed runs a profile before or between measured trials.
            for cell, repetition in [
                *repetitions,
                *((cell, self.experiment.repetitions) for cell in self._profiled),
            ]
        ]

    def repetition(self, number: int, testbed: str) -> list[Trial]:
        """Return a trial for every cell, in one repetition."""
        return [self._trial(cell, number, testbed) for cell in self.cells]

    def _trial(self, cell: Cell, repetition: int, testbed: str) -> Trial:
        return Trial(
            cell=cell,
            testbed=testbed,
            repetition=repetition,
            duration_s=self.experiment.duration_s,
            warmup_s=self.experiment.warmup_s,
            max_loss_percent=self.experiment.max_loss_percent,
        )

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
    """Return all cells of all sweeps. A cell that two sweeps share is measured once.

    Raises:
        InputError: None of the choices of an application can be measured.
    """
    if isinstance(experiment, ApplicationExperiment):
        cells_of_application, first = applications.cells(experiment)
        return Expansion(experiment, cells_of_application, first)
    cells: dict[str, Cell] = {}
    where: dict[str, str] = {}
    for sweep in experiment.sweeps:
        checksum = _checksum(sweep)
        links = list((sweep.link or experiment.link).each())
        for *values, link in itertools.product(*(getattr(sweep, name) for name in LISTS), links):
            settings = dict(zip(LISTS, values, strict=True)) | {"link": link}
            cell = cell_of(experiment, sweep, settings | checksum)
            if cells.setdefault(cell.cell_id, cell) is cell:
                where[cell.cell_id] = sweep.where
    return Expansion(experiment, tuple(cells.values()), where=where)


def _checksum(sweep: Sweep) -> dict[str, Any]:
    path = sweep.middleware_config
    return {"middleware_config_sha256": config.checksum(path)} if path else {}
