"""Read each kind of evidence about a trial in the pods of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from typing_extensions import override

from k8sdds.model.measurement import ClockState, Outcome, OutsideCpu
from k8sdds.model.trial import Cell
from k8sdds.testbeds.cluster import clocks, profiled_pods
from k8sdds.testbeds.cluster.cluster_services import Services
from k8sdds.testbeds.cluster.node_probes import NodeProbes
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.testbeds.cluster.service_rules import Counters
from k8sdds.testbeds.cluster.verify import UNPROVEN, PathVerifier
from k8sdds.testbeds.evidence import Reading
from k8sdds.testbeds.machine_cpu import SEPARATE_INTERRUPTS, Usage, between, total

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


class ServiceTranslations(Reading):
    """What the client's node translated for the measured Service."""

    def __init__(self, services: Services, cell: Cell, slots: Mapping[str, Slot]) -> None:
        self._services, self._cell, self._slots = services, cell, slots
        self._before: Counters | None = None

    @override
    def before(self) -> None:
        self._before = self._services.counters(self._cell, self._slots)

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        return self._services.evidence(self._cell, self._slots, self._before)


class TrackedConnections(Reading):
    """Entries that the connection tracking of the publisher's node gained."""

    def __init__(self, probes: NodeProbes, cell: Cell, node: str) -> None:
        self._probes, self._cell, self._node = probes, cell, node
        self._before: int | None = None

    @override
    def before(self) -> None:
        self._before = self._probes.tracked_connections(self._cell, self._node)

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        entries = self._probes.tracked_connections(self._cell, self._node)
        if self._before is None or entries is None:
            return {}
        return {"conntrack_entries": max(entries - self._before, 0)}


class Clocks(Reading):
    """How far the clocks of the participants' machines can differ.

    Args:
        cluster: Name of the cluster; empty if k8sdds did not deploy it, so that it cannot read the clocks.
        cell: The cell.
        pods: The pod of each participant.
    """

    def __init__(self, cluster: str, cell: Cell, pods: Mapping[str, ReadyPod]) -> None:
        self._cluster, self._cell, self._pods = cluster, cell, pods
        self._before: dict[str, ClockState] | None = None

    def _read(self) -> dict[str, ClockState]:
        return clocks.read(self._cluster, clocks.machines(self._pods).values()) if self._cluster else {}

    @override
    def before(self) -> None:
        self._before = self._read()

    @override
    def after(self, outcomes: Mapping[str, Outcome]) -> Mapping[str, Any]:
        if self._before is None:
            return {}
        readings = [self._before, self._read()]
        return {"clock_error": clocks.clock_error(self._cell.participants, self._pods, readings)}


class NodesUsage(Reading):
    """What the participants' machines spent outside of their pods.

    Args:
        probes: Read the processes of the nodes.
        pods: The pod of each participant.
        owners: Whose processes those of a pod are.
        reading_s: CPU time that a reading costs each node.
    """

    def __init__(
        self,
        probes: NodeProbes,
        pods: Mapping[str, ReadyPod],
        owners: Owners,
        reading_s: Mapping[str, float],
    ) -> None:
        self._probes, self._pods, self._owners, self._reading_s = probes, pods, owners, reading_s
        self._before: dict[str, Usage] = {}
        probes.prepare_processes({pod.node for pod in pods.values()})

    def read(self) -> dict[str, Usage]:
        """Return the CPU time so far of each node with a participant, as far as its processes can be read."""
        owners = self._owners()
        seen = self._probes.processes({pod.node for pod in self._pods.values()})
        return {node: profiled_pods.usage(its, owners) for node, its in seen.items()}

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
        unseen = self._probes.processes_unavailable
        text = f"cpu: what the nodes spend outside of the participants' pods is unknown: {unseen}"
        return {"outside": outside, "warnings": (text,) if unseen else ()}

    def _outside(self, after: Mapping[str, Usage]) -> dict[str, OutsideCpu]:
        """Return what each machine spent, if all its nodes could be read."""
        machines: dict[str, dict[str, OutsideCpu | None]] = {}
        separate: dict[str, bool | None] = {}
        for pod in self._pods.values():
            known = pod.node in self._before and pod.node in after
            reading_s = self._reading_s.get(pod.node, 0.0)
            spent = between(self._before[pod.node], after[pod.node], reading_s) if known else None
            machines.setdefault(pod.machine, {})[pod.node] = spent
            separate[pod.machine] = pod.facts.get(SEPARATE_INTERRUPTS)
        return {
            machine: replace(total(parts), separate_interrupts=separate[machine])
            for machine, nodes in machines.items()
            if len(parts := [part for part in nodes.values() if part is not None]) == len(nodes)
        }
