"""Read each kind of evidence about a trial in the pods of a cluster."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from k8sdds.analysis import components
from k8sdds.deploy.node_link_scripts import UNIT
from k8sdds.model.measurement import ClockError, ClockState, Outcome, OutsideCpu
from k8sdds.model.trial import Cell, Participant
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.node_settings import Steering
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.cluster.verify import UNPROVEN, PathVerifier
from k8sdds.testbeds.core_layout import Layout
from k8sdds.testbeds.evidence import Compared, Reading
from k8sdds.testbeds.machine_cpu import SEPARATE_INTERRUPTS, Processes, Usage, between, total

NO_ACCESS = "k8sdds did not deploy this cluster, so it cannot read the clocks of its nodes"
_POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
"""The id of a pod in the name of its cgroup; systemd does not allow hyphens there."""

Clocks = Mapping[str, ClockState]
"""The clocks of machines, by node."""
Owners = Callable[[], Mapping[str, str]]
"""Returns the owner of the processes of each pod, by pod id."""


class NetworkBytes(Reading):
    """Bytes that the network's links carried. The verifier keeps its last reading between trials."""

    def __init__(self, verifier: PathVerifier, cell: Cell, slots: Mapping[str, Slot]) -> None:
        self._verifier, self._cell, self._slots = verifier, cell, slots

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        fields, unproven = self._verifier.counters(self._cell, self._slots)
        return fields | {"warnings": (f"{UNPROVEN}: {unproven}",) if unproven else ()}


class SteeredPackets(Reading):
    """Whether the participants' nodes steer received packets as the cell's layout requires.

    They still do after the trial, until one with another layout or the end of the campaign.
    """

    def __init__(self, steering: Steering, cell: Cell, layout: Layout, pods: Mapping[str, ReadyPod]) -> None:
        self._steering, self._cell, self._layout = steering, cell, layout
        self._node_of = {name: pod.node for name, pod in pods.items()}
        self._obstacle = ""

    @override
    @contextmanager
    def recording(self) -> Iterator[None]:
        self._obstacle = self._steering.apply(self._cell, self._layout, self._node_of)
        yield

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return {"warnings": (self._obstacle,) if self._obstacle else ()}


def tracked_connections(probes: NodeProbes, node: str) -> Reading:
    """Read the entries of the connection tracking of a node."""

    def fields(
        before: int | None, read: Callable[[], int | None], _: Mapping[str, Outcome]
    ) -> Mapping[str, Any]:
        if before is None or (after := read()) is None:
            return {}
        return {"conntrack_entries": max(after - before, 0)}

    return Compared(lambda: probes.tracked_connections(node), fields)


def clocks(cluster: str, cell: Cell, pods: Mapping[str, ReadyPod]) -> Reading:
    """Read how far the clocks of the participants' machines can differ.

    Without a name of the `cluster`, k8sdds did not deploy it and cannot read the clocks.
    """

    def read() -> Clocks:
        return read_clocks(cluster, machines(pods).values()) if cluster else {}

    def fields(
        before: Clocks | None, read: Callable[[], Clocks], _: Mapping[str, Outcome]
    ) -> Mapping[str, Any]:
        if before is None:
            return {}
        return {"clock_error": clock_error(cell.timed_pairs, pods, [before, read()])}

    return Compared(read, fields)


@dataclass
class NodesUsage(Reading):
    """What the participants' machines spent outside of their pods."""

    probes: NodeProbes
    pods: Mapping[str, ReadyPod]
    owners: Owners
    reading_s: Mapping[str, float]
    """CPU time that a reading costs each node."""
    services: Collection[str]
    """Nodes of the discovery service, of whose other programs nothing is read if they have no participants."""
    _before: Mapping[str, Usage] = field(default_factory=dict)

    @property
    def _elsewhere(self) -> set[str]:
        return set(self.services) - {pod.node for pod in self.pods.values()}

    def read(self) -> dict[str, Usage]:
        """Return the CPU time so far of each node, as far as its processes can be read."""
        owners = self.owners()
        seen = self.probes.processes({pod.node for pod in self.pods.values()} | self._elsewhere)
        return {node: usage(its, owners) for node, its in seen.items()}

    def cost_s(self) -> dict[str, float]:
        """Return the CPU time that a reading costs each node, from two that follow each other."""
        before, after = self.read(), self.read()
        return {
            node: max(0.0, after[node].of(None) - its.of(None))
            for node, its in before.items()
            if node in after
        }

    @override
    def before(self) -> None:
        self._before = self.read()

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        outside = self._outside(self.read()) if self._before else {}
        unseen = self.probes.processes_unavailable
        text = f"cpu: what the nodes spend outside of the participants' pods is unknown: {unseen}"
        return {"outside": outside, "warnings": (text,) if unseen else ()}

    def _outside(self, after: Mapping[str, Usage]) -> dict[str, OutsideCpu]:
        """Return the CPU time of each machine whose nodes could all be read."""
        machines: dict[str, dict[str, OutsideCpu | None]] = {}
        separate: dict[str, bool | None] = {}
        for pod in self.pods.values():
            known = pod.node in self._before and pod.node in after
            reading_s = self.reading_s.get(pod.node, 0.0)
            spent = between(self._before[pod.node], after[pod.node], reading_s) if known else None
            machines.setdefault(pod.machine, {})[pod.node] = spent
            separate[pod.machine] = pod.facts.get(SEPARATE_INTERRUPTS)
        services = {
            node: OutsideCpu(services=spent.services)
            for node in self._elsewhere & self._before.keys() & after.keys()
            if (spent := between(self._before[node], after[node]))
        }
        return services | {
            machine: replace(total(parts), separate_interrupts=separate[machine])
            for machine, nodes in machines.items()
            if len(parts := [part for part in nodes.values() if part is not None]) == len(nodes)
        }


def read_clocks(cluster: str, nodes: Iterable[str]) -> dict[str, ClockState]:
    """Return the state of the clocks of nodes of a cluster that k8sdds deployed, over SSH. Not during a trial."""
    # Imported here because other clusters need nothing of `deploy`.
    from k8sdds.deploy import clocks, profiles
    from k8sdds.system.ssh import Connections

    # The connections end with this call, because their keepalive messages would disturb a trial.
    with Connections(profiles.targets(profiles.deployed(cluster))) as connections:
        return clocks.read(connections, nodes)


def machines(ready_pods: Mapping[str, ReadyPod]) -> dict[str, str]:
    """Return one node for each machine on which participants run."""
    return {pod.machine: pod.node for pod in ready_pods.values()}


def clock_error(
    pairs: Iterable[tuple[Participant, Participant]],
    ready_pods: Mapping[str, ReadyPod],
    readings: Sequence[Mapping[str, ClockState]],
) -> ClockError:
    """Return the largest possible difference between the clocks of two participants, one of which times the other.

    `readings`: the states of the clocks by node, before and after the trial.
    """
    nodes = machines(ready_pods)
    between = [tuple(ready_pods[one.name].machine for one in pair) for pair in pairs]
    compared = {(nodes[one], nodes[other]) for one, other in between if one != other}
    errors_us: dict[str, float] = {}
    followed: dict[tuple[str, str], str] = {}
    for node in sorted(set(itertools.chain.from_iterable(compared))):
        for reading in readings:
            state = reading.get(node, ClockState(reason=NO_ACCESS))
            if state.error_us is None:
                return ClockError(None, f"{node}: {state.reason}")
            errors_us[node] = max(errors_us.get(node, 0.0), state.error_us)
            followed[state.program, state.reference] = node
    if not compared:
        return ClockError(0.0, "the clock of one machine")
    if len(followed) > 1:
        clocks = ", ".join(
            f"{node} {reference} by {program}" for (program, reference), node in followed.items()
        )
        return ClockError(None, f"the nodes follow different clocks: {clocks}")
    bound_us = max(errors_us[one] + errors_us[other] for one, other in compared)
    ((program, _),) = followed
    return ClockError(bound_us, program)


def owner(pods: Mapping[str, str]) -> Callable[[int], str | None]:
    """Return a function that finds whose process an id of this machine belongs to. `pods`: id of a pod to the owner."""

    def find(pid: int) -> str | None:
        try:
            return _owner(Path(f"/proc/{pid}/cgroup").read_text(), pods)
        except OSError:
            return None

    return find


def usage(seen: Processes, pods: Mapping[str, str]) -> Usage:
    """Return the CPU time of a node's processes by their owner. `pods`: id of a pod to the owner of its processes.

    The shim of a container runtime waits for the processes of its pod, which adds their time to its own: it has the
    owner of the pod.
    """
    owners = {process.pid: _owner(process.cgroup, pods) for process in seen.processes}
    shims = {process.parent: owners[process.pid] for process in seen.processes if owners[process.pid]}
    shims.pop(1, None)
    return Usage(seen, lambda process: owners[process.pid] or shims.get(process.pid))


def _owner(cgroup: str, pods: Mapping[str, str]) -> str | None:
    return components.LINK if UNIT in cgroup else pods.get(pod_of(cgroup))


def pod_of(cgroup: str) -> str:
    """Return the id of the pod in the path of a cgroup; empty if it is not that of a pod."""
    found = _POD.search(cgroup)
    return found[1].replace("_", "-") if found else ""
