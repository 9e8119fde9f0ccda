"""Emulate the links of the nodes of a trial, on clusters that k8sdds deployed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from k8sdds import links as named_links
from k8sdds.model.experiment import Experiment
from k8sdds.model.link import USERSPACE
from k8sdds.model.measurement import Outcome
from k8sdds.model.outages import Phase
from k8sdds.model.trial import FIRST_PUBLISHER, FIRST_SUBSCRIBER, Cell, Participant, Trial
from k8sdds.results import arrivals, link_statistics
from k8sdds.results.arrivals import Interruption
from k8sdds.system.errors import Problem
from k8sdds.system.files import write_atomically
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster import placement
from k8sdds.testbeds.cluster.nodes import NodeInfo
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.evidence import Reading, measured_us
from k8sdds.testbeds.link_emulation import Port, configuration, engine_record, schedule, seed_of
from k8sdds.workloads import outage

if TYPE_CHECKING:
    # Imported when it is needed, because other clusters need nothing of `deploy`.
    from k8sdds.deploy.node_links import NodeLinks, NodeStatistics

MARGIN_S = 90
"""How long nodes wait for the end of a trial after its deadline, before they restore their links themselves."""


class EmulatedLinks(Reading):
    """The emulated links of a trial's nodes, from before its participants get ready until they have ended.

    The raw folder keeps all of what they did to packets, with its course over time. The `image` of the participants has
    the program; `deadline_s` is how long they may run.
    """

    def __init__(
        self, cluster: str, trial: Trial, pods: Mapping[str, ReadyPod], image: str, campaign: str,
        folder: Path, deadline_s: float,
    ) -> None:  # fmt: skip
        self._cluster, self._trial, self._image, self._folder = cluster, trial, image, folder
        self._seed = seed_of(campaign, trial.repetition)
        self._places = {participant: pods[participant.name].node for participant in trial.cell.participants}
        self._addresses = {pod.node: pod.node_address for pod in pods.values() if pod.node_address}
        self._cores = {pod.node: _core(pod) for pod in pods.values()}
        self._at_most_s = deadline_s + MARGIN_S
        self._links: NodeLinks | None = None
        self._machines = {pod.node: pod.machine for pod in pods.values()}
        self._seen: dict[str, NodeStatistics] = {}
        """What the link of each node did."""

    @override
    @contextmanager
    def recording(self) -> Iterator[None]:
        from k8sdds.deploy import node_links
        from k8sdds.deploy.node_link_scripts import FAR, NEAR

        places = dict.fromkeys(self._places.values())
        emulations = {
            node: node_links.Emulation(
                configuration(
                    self._trial.cell.link, [Port(node, NEAR, FAR)], self._seed + index, self._cores[node]
                ),
                [address for other in places if other != node and (address := self._addresses.get(other))],
                schedule(self._phases(node)),
            )
            for index, node in enumerate(places)
            if node in impaired(self._trial.cell, self._places)
        }
        with node_links.emulated(self._cluster, emulations, self._image, self._at_most_s) as self._links:
            yield
            self._seen = self._links.stop()

    @property
    def has_outages(self) -> bool:
        """Whether `begin_outages` must be called."""
        return any(map(self._phases, self._places.values()))

    def _phases(self, node: str) -> Sequence[Phase]:
        """Return the outages of a node's link: those of the link itself, or the one that the test measures."""
        cell = self._trial.cell
        if not outage.of_link(cell.test, cell.test_options):
            return cell.link.outage_phases(self._trial.duration_s)
        options = outage.options_of(cell)
        return [options.phase] if node == self._places[options.participant] else []

    @override
    def before(self) -> None:
        assert self._links is not None
        self._links.start()

    def begin_outages(self, measured_ns: int) -> None:
        """Let the outages of the links begin. Call it when the measured interval begins, with its start since 1970."""
        assert self._links is not None
        self._links.begin_outages(measured_ns)

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        if not self._seen:
            return {}
        write_atomically(self._folder / link_statistics.FILE, json.dumps(self._together(outcomes)))
        if outage.of_link(self._trial.cell.test, self._trial.cell.test_options):
            self._write_moments(outcomes)
        meters = outcomes[FIRST_PUBLISHER.name].meters or {}
        measured = measured_us(outcomes)
        found: dict[str, Any] = {}
        for node, its in self._seen.items():
            interval = None
            if measured is not None:
                # By the clock of the node.
                begin_us, end_us = (moment_us + self._ahead_us(node, meters) for moment_us in measured)
                interval = begin_us, end_us
            found |= link_statistics.summary(its.values, interval)
        return {"links": found}

    def _together(self, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
        """Return the statistics of all nodes as those of one program, by the clock of the first subscriber."""
        seen, meters = self._seen, outcomes[FIRST_SUBSCRIBER.name].meters
        # Without meters, it has no samples either whose times could be compared.
        starts_us = {
            node: its.values.started_us
            - (round(self._ahead_us(node, meters, FIRST_SUBSCRIBER)) if meters else 0)
            for node, its in seen.items()
        }
        first_us = min(starts_us.values())
        return {
            "started_us": first_us,
            "seconds": max(its.document["seconds"] for its in seen.values()),
            "links": {
                name: link | {"started_us": starts_us[node]}
                for node, its in seen.items()
                for name, link in its.document["links"].items()
            },
            "outages": [
                state.model_dump() | {"at_us": state.at_us + starts_us[node] - first_us}
                for node, its in seen.items()
                for state in its.values.outages
            ],
        }

    def _write_moments(self, outcomes: Mapping[str, Outcome]) -> None:
        """Write when the link that the test interrupts failed and came back, by the clock of each subscriber."""
        node = self._places[outage.options_of(self._trial.cell).participant]
        its = self._seen[node].values
        moments_us = [its.started_us + each.at_us for each in its.outages]
        if len(moments_us) < 2:
            return  # the trial ended before the outage did
        for participant in reversed(self._trial.cell.subscribing):
            meters = outcomes[participant.name].meters
            if not meters:
                continue
            ahead_us = round(self._ahead_us(node, meters, participant))
            failed_us, repaired_us = (moment_us - ahead_us for moment_us in moments_us[:2])
            own = Interruption(node=node, failed_us=failed_us, repaired_us=repaired_us)
            arrivals.write_interruption(self._folder / participant.name, own)
            if participant == FIRST_SUBSCRIBER:
                arrivals.write_interruption(self._folder, own)

    def _ahead_us(
        self, node: str, meters: Mapping[str, Any], participant: Participant = FIRST_PUBLISHER
    ) -> float:
        """Return by how much CLOCK_MONOTONIC of a node is ahead of that of a participant's node, with its meters."""
        if self._machines[node] == self._machines[self._places[participant]]:
            return 0
        boot_us = (meters["started_at_ns"] - meters["start_monotonic_ns"]) / 1000
        return float(boot_us - self._seen[node].clock_us)


def facts(trial: Trial, pods: Mapping[str, ReadyPod], campaign: str) -> dict[str, Any]:
    """Return how the links of a trial are emulated, for the record, if they are: the core is that of the first node.

    The seed of each node is one more.
    """
    if not emulates([trial.cell]):
        return {}
    places = {participant: pods[participant.name].node for participant in trial.cell.participants}
    nodes = impaired(trial.cell, places)
    core = _core(next(pod for pod in pods.values() if pod.node in nodes))
    seed, layout = seed_of(campaign, trial.repetition), placement.pin_cores(trial.cell, pods)
    return {"link_engine": engine_record(seed, core, layout)}


def _core(pod: ReadyPod) -> int | None:
    return core_layout.spare(tuple(pod.facts["cpus"]))


def impaired(cell: Cell, places: Mapping[Participant, str]) -> set[str]:
    """Return the nodes whose links are impaired: all with a participant, or those with a publisher or subscriber."""
    roles = defaultdict[str, set[str]](set)
    for participant, node in places.items():
        roles[node].add(participant.role)
    return {node for node, of_node in roles.items() if cell.link.impairs(of_node)}


def with_forwarders(experiment: Experiment) -> Experiment:
    """Return the experiment with `k8sdds-link` as the engine of all links in sweeps of tests that interrupt them."""
    return named_links.with_forwarders(
        experiment, lambda sweep: any(outage.of_link(test.name, test.options) for test in sweep.test)
    )


def emulates(cells: Iterable[Cell]) -> bool:
    """Return whether links are emulated for these cells."""
    return any(
        (cell.link.is_shaped or cell.link.engine == USERSPACE) and cell.crosses_links for cell in cells
    )


def problems(cluster: str, cells: Sequence[Cell], nodes: Sequence[NodeInfo]) -> list[Problem]:
    """Return why the nodes that can run participants cannot emulate links, if cells need it. Makes no changes."""
    if not cluster or not emulates(cells):
        return []
    from k8sdds.deploy import node_links

    addresses = {node.name: node.address for node in nodes if node.address}
    return [
        Problem(f"{node} cannot emulate its link: {why}", "leave out `link`, or use --testbed lab")
        for node, why in node_links.unsupported(cluster, addresses).items()
    ]
