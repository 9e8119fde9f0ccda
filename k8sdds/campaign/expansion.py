"""Expand an experiment into the cells to measure.

An application has configurations: one value for each choice, such as network, middleware and transport, the same for
all flows. A configuration has one cell for each flow, or one for the whole graph. Configurations share a cell if a
choice has no effect on it: only flows with several subscribers are sent by multicast, and only samples that do not fit
in the usual message have larger ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from k8sdds import middleware, workloads
from k8sdds.analysis import race
from k8sdds.campaign import contradictions
from k8sdds.campaign.applications import CHOSEN, is_encrypted_once, shown
from k8sdds.model import graph, schedule_file
from k8sdds.model.application import Application, ApplicationExperiment, Flow, Search
from k8sdds.model.axis import Axis
from k8sdds.model.background import MAX_FLOWS, Background
from k8sdds.model.experiment import LISTS, Experiment, Sweep
from k8sdds.model.link import Link
from k8sdds.model.message_size import USUAL_MESSAGE_BYTES
from k8sdds.model.security import SecurityChoice
from k8sdds.model.settings import NetworkChoice, TestChoice
from k8sdds.model.trial import AXES, OF_EACH_FLOW, Cell, Trial
from k8sdds.model.workload_settings import usual_discovery
from k8sdds.system.errors import InputError

MIN_BACKGROUND_MBIT = 0.1
"""Rate of all other flows below which they are left out: iperf3 would send too few datagrams to be checked."""


@dataclass(frozen=True)
class Candidate:
    """A configuration, and its cell for each flow, or the one of its graph."""

    choices: tuple[tuple[str, Any], ...]
    """Each choice with its value, in the order of `axes`; the network is its label."""
    cells: tuple[Cell, ...]
    """In the order of the application's flows; with `nodes`, the only one."""

    @cached_property
    def cell_ids(self) -> tuple[str, ...]:
        """The ids of its cells, which identify it."""
        return tuple(cell.cell_id for cell in self.cells)


@dataclass(frozen=True)
class Candidates:
    """The configurations of an application."""

    measurable: tuple[Candidate, ...]
    """Each once, those with usual values first."""
    excluded: tuple[tuple[dict[str, Any], str], ...]
    """Combinations that no testbed can measure, each with the reason."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells of all configurations, each once."""
        return tuple(
            {cell.cell_id: cell for candidate in self.measurable for cell in candidate.cells}.values()
        )

    @property
    def designs(self) -> list[list[str]]:
        """The values of all choices, for each configuration."""
        return [[str(value) for _, value in candidate.choices] for candidate in self.measurable]


@dataclass(frozen=True)
class Expansion:
    """An experiment's cells, each once, in the order of the file."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    where: Mapping[str, str] = field(default_factory=dict)
    """cell_id to `FILE:LINE: ` of the sweep that the cell comes from, for messages."""
    candidates: Candidates | None = None
    """The configurations; None if the experiment measures no application."""

    @property
    def search(self) -> Search | None:
        """How configurations are searched; None if all cells are measured equally often."""
        return self.experiment.search if isinstance(self.experiment, ApplicationExperiment) else None

    @cached_property
    def first(self) -> tuple[Cell, ...]:
        """The cells that a search among configurations measures first; empty if there is no such search."""
        if self.candidates is None or self.search is None:
            return ()
        known, target = self.candidates, race.round_target(0, self.search.max_trials)
        # Of the configurations that fill the round, some may share cells.
        order = race.fill(
            itertools.islice(race.first_round(known.designs), 2 * target),
            lambda index: known.measurable[index].cell_ids,
            target,
        )
        first = {cell.cell_id: cell for index in order for cell in known.measurable[index].cells}
        return tuple(first.values())

    @property
    def searches(self) -> list[Cell]:
        """The cells of which each is the search for a capacity."""
        return [cell for cell in self.cells if workloads.find(cell.test).finds_capacity]

    def trials(self, testbed: str) -> list[Trial]:
        """Return a trial for every cell and repetition, repetition by repetition, and then the profiles.

        A search plans its further trials while it runs.
        """
        repetitions = self.experiment.repetitions
        planned = [(cell, 0) for cell in self.first] or [
            (cell, repetition)
            for repetition in range(repetitions)
            for cell in self.cells
            if repetition == 0 or not workloads.find(cell.test).finds_capacity
        ]
        # A repetition of their own, so that no testbed runs a profile before or between measured trials.
        planned += [(cell, repetitions) for cell in self._profiled]
        return [self.trial(cell, repetition, testbed) for cell, repetition in planned]

    def repetition(self, number: int, testbed: str) -> list[Trial]:
        """Return a trial for every cell, in one repetition."""
        return [self.trial(cell, number, testbed) for cell in self.cells]

    def trial(self, cell: Cell, repetition: int, testbed: str, duration_s: float | None = None) -> Trial:
        """Return a trial of the experiment; `duration_s`: None is that of the experiment."""
        return Trial(
            cell=cell,
            testbed=testbed,
            repetition=repetition,
            duration_s=self.experiment.duration_s if duration_s is None else duration_s,
            warmup_s=self.experiment.warmup_s,
            max_loss_percent=self.experiment.max_loss_percent,
        )

    @property
    def _profiled(self) -> list[Cell]:
        first: dict[tuple[str, str], Cell] = {}
        for cell in self.cells if self.experiment.profile else ():
            first.setdefault((cell.network_label, cell.test), cell)
        return [cell.model_copy(update={"profile": True}) for cell in first.values()]


def expand(experiment: Experiment) -> Expansion:
    """Return all cells of all sweeps. A cell that two sweeps share is measured once."""
    if isinstance(experiment, ApplicationExperiment):
        known = candidates(experiment)
        if not known.measurable:
            reasons = "; ".join(why for _, why in known.excluded)
            raise InputError(
                f"{experiment.name}: none of the choices can be measured: {reasons}",
                f"see: k8sdds docs {Application.page}",
            )
        return Expansion(experiment, known.cells, candidates=known)
    cells: dict[str, Cell] = {}
    where: dict[str, str] = {}
    for sweep in experiment.sweeps:
        _require_stated_by_graph(sweep)
        path = sweep.middleware_config
        checksums = [middleware.config_checksum(name, path) for name in sweep.middleware if path]
        checksum = {"middleware_config_sha256": checksums[0]} if checksums else {}
        every = [link for choice in sweep.link or experiment.link for link in choice.each()]
        for *values, link in itertools.product(*(getattr(sweep, name) for name in LISTS), every):
            settings = dict(zip(LISTS, values, strict=True)) | {"link": link}
            cell = _cell_of(experiment, sweep, settings | checksum)
            cell_id = cell.cell_id
            if cells.setdefault(cell_id, cell) is cell:
                where[cell_id] = sweep.where
    return Expansion(experiment, tuple(cells.values()), where)


def _require_stated_by_graph(sweep: Sweep) -> None:
    """Raise an error if a sweep has what its graph states of each flow, and only an application may choose."""
    for name in OF_EACH_FLOW:
        if any(sweep.graph) and getattr(sweep, name) != [AXES[name].default]:
            raise InputError(f"{sweep.where}{name}: a graph states it for each flow", f"leave out {name}")


# -- configurations of an application -------------------------------------------------------------------


def candidates(experiment: ApplicationExperiment) -> Candidates:
    """Return the configurations of an experiment's application, with the networks of its sweeps."""
    application = experiment.application
    link = experiment.link[0].link
    # Nodes need the reliability of each flow: it is no choice unless a flow accepts any.
    stated = {"reliability"} if application.at_once and not application.accepts_any else set()
    found: dict[tuple[str, ...], Candidate] = {}
    excluded: dict[str, tuple[dict[str, Any], str]] = {}
    for values in _combinations(experiment):
        cells = _cells(experiment, values, link)
        labels = {name: shown(value) for name, value in values.items() if name not in stated}
        if why := _contradiction(application, cells):
            excluded.setdefault(why, (labels, why))
            continue
        candidate = Candidate(tuple(labels.items()), cells)
        found.setdefault(candidate.cell_ids, candidate)
    return Candidates(tuple(found.values()), tuple(excluded.values()))


def _combinations(experiment: ApplicationExperiment) -> list[dict[str, Any]]:
    """Return all combinations of the choices, by key of a sweep."""
    combinations: list[dict[str, Any]] = [{}]
    for axis in CHOSEN:
        values: list[Any] = []
        for sweep in experiment.sweeps:
            values += [value for value in getattr(sweep, axis) if value not in values]
        if axis == "reliability" and not experiment.application.accepts_any:
            values = values[:1]
        combinations = [combination | {axis: value} for combination in combinations for value in values]
    return combinations


def _cells(experiment: ApplicationExperiment, values: Mapping[str, Any], link: Link) -> tuple[Cell, ...]:
    """Return the cells of a configuration: that of its graph, or one for each flow."""
    application = experiment.application
    if application.at_once:
        sweep = experiment.sweeps[0]
        settings = {name: getattr(sweep, name)[0] for name in LISTS} | effective_graph(application, values)
        return (_cell_of(experiment, sweep, settings | {"link": link}),)
    return tuple(
        _cell(experiment, flow, sweep, values, link)
        for flow, sweep in zip(application.flows, experiment.sweeps, strict=True)
    )


def effective_graph(application: Application, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices as they apply to a graph, which states reliability and batches of each flow."""
    own = dict(values)
    whole = application.graph(str(own["reliability"]), own["batch_bytes"])
    if all(flow.subscribers == 1 for flow in application.flows):
        own["transport"] = "unicast"
    if own["message_bytes"] == "max" and whole.largest_bytes <= USUAL_MESSAGE_BYTES:
        own["message_bytes"] = "auto"
    return own | {"graph": whole.text()} | {name: AXES[name].default for name in OF_EACH_FLOW}


def _cell(
    experiment: ApplicationExperiment, flow: Flow, sweep: Sweep, values: Mapping[str, Any], link: Link
) -> Cell:
    settings = {name: getattr(sweep, name)[0] for name in LISTS} | effective(flow, values)
    settings["background"] = background(experiment.application, flow, str(values["transport"]))
    settings["link"] = link
    return _cell_of(experiment, sweep, settings)


def effective(flow: Flow, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the choices as they apply to a flow, by key of a sweep: those without effect have their usual value."""
    own = dict(values)
    if flow.reliability != "any":
        own["reliability"] = flow.reliability
    if flow.subscribers == 1 and own["transport"] == "multicast":
        own["transport"] = "unicast"
    own["batch_bytes"] = flow.batch(own["batch_bytes"])
    if own["message_bytes"] == "max" and flow.payload_bytes <= USUAL_MESSAGE_BYTES:
        own["message_bytes"] = "auto"
    return own


def background(application: Application, flow: Flow, transport: str) -> Background:
    """Return the other flows as the background of one flow: UDP streams with the same payload rate."""
    apart = application.together and not application.at_once
    others = [other for other in application.flows if other is not flow] if apart else []

    def copies(other: Flow) -> int:
        return 1 if transport == "multicast" else other.subscribers

    mbit = sum(other.payload_mbit * copies(other) for other in others)
    streams = min(sum(other.publishers * copies(other) for other in others), MAX_FLOWS)
    if mbit < MIN_BACKGROUND_MBIT:
        return Background()
    return Background(flows=streams, kind="udp", rate_mbit=float(f"{mbit / streams:.6g}"))


def _contradiction(application: Application, cells: Sequence[Cell]) -> str:
    """Return why a configuration cannot be measured or does not protect its samples; empty if it can."""
    for cell in cells:
        if not is_encrypted_once(application, cell.network, cell.security):
            return f"samples are encrypted once: by {cell.network} or by DDS Security, not by both or by none of them"
        for found in contradictions.of_cell(cell):
            return found.reason
    return ""


# -- cells -----------------------------------------------------------------------------------------------


def _cell_of(experiment: Experiment, sweep: Sweep, values: dict[str, Any]) -> Cell:
    """Return a cell of a sweep: one value for each of its lists, and its `link`."""
    network: NetworkChoice = values.pop("networks")
    security: SecurityChoice = values.pop("security")
    test: TestChoice = values.pop("test")
    workload = workloads.find(test.name)
    settings = {name: _single(experiment, sweep, axis) for name, axis in AXES.items() if not axis.several}
    settings |= values
    if settings["schedule"]:
        sha256, schedule = schedule_file.read(settings["schedule"])
        settings |= {
            "schedule_sha256": sha256,
            "payload_bytes": schedule.largest_bytes,
            "rate": schedule.rate,
        }
    if settings["graph"]:
        whole = graph.parse(settings["graph"])
        settings |= {
            "payload_bytes": whole.largest_bytes,
            "rate": whole.samples_per_s,
            "reliability": "reliable" if whole.reliable else "best-effort",
            "batch_bytes": whole.batch_bytes,
            "publishers": len(whole.senders),
            "subscribers": len(whole.receivers),
        }
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
