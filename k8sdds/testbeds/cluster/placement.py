"""Place the participants of a cell on nodes, and pin them to cores on each machine. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from k8sdds.model.trial import Cell, participants
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster.blocks import on_host
from k8sdds.testbeds.cluster.nodes import NodeInfo, assign
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.cluster.pods import Slot


def slots(cell: Cell, nodes: Sequence[NodeInfo] | None) -> dict[str, Slot]:
    """Return the pod slot of each participant.

    Args:
        cell: The cell.
        nodes: Nodes that can run participants; None: unknown, the scheduler selects nodes.
    """
    places = dict.fromkeys(cell.participants, "") if nodes is None else assign(cell, nodes)
    host = on_host(cell)
    return {participant.name: Slot.of(participant, node, host, cell) for participant, node in places.items()}


def pin_cores(cell: Cell, ready_pods: Mapping[str, ReadyPod]) -> core_layout.Layout:
    """Apply the cell's core layout on each machine, to the participants that run there."""
    cpus: dict[str, tuple[int, ...] | None] = dict.fromkeys(load.name for load in cell.loads)
    includes_scheduling, harness = False, None
    for machine in {pod.machine for pod in ready_pods.values()}:
        local = {name: pod for name, pod in ready_pods.items() if pod.machine == machine}
        publishers = [
            participant.name
            for participant in cell.participants
            if participant.publishes and participant.name in local
        ]
        subscribers = [
            participant.name
            for participant in cell.participants
            if participant.subscribes and participant.name in local
        ]
        cores = tuple(next(iter(local.values())).facts["cpus"])
        assigned = core_layout.assign(cell.layout, len(publishers), len(subscribers), cores)
        # `assign` numbers the participants of this machine only.
        numbered = participants(len(publishers), len(subscribers))
        for name, local_participant in zip([*publishers, *subscribers], numbered, strict=True):
            cpus[name] = assigned.cpus[local_participant.name]
        includes_scheduling = includes_scheduling or assigned.includes_scheduling
        harness = assigned.harness
    return core_layout.Layout(cpus, harness, includes_scheduling)
