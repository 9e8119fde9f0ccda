"""Place the participants of a cell on nodes, and pin them to cores on each machine. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from k8sdds.model.placement import numbered
from k8sdds.model.trial import (
    DISCOVERY_SERVER,
    FIRST_PUBLISHER,
    FIRST_SUBSCRIBER,
    Cell,
    Participant,
    participants,
)
from k8sdds.system.errors import InputError
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster.blocks import on_host
from k8sdds.testbeds.cluster.nodes import NodeInfo
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.cluster.pods import Slot


def assign(cell: Cell, nodes: Sequence[NodeInfo]) -> dict[Participant, str]:
    """Return the node's name of each participant of a cell, and of each pod of its background.

    Raises InputError if these nodes do not satisfy the cell's placement or number of nodes.
    """
    if cell.nodes and cell.nodes > len(nodes):
        raise InputError(
            f"{cell.describe()}: {cell.nodes} nodes are requested, but {len(nodes)} are available",
            f"set nodes to at most {len(nodes)}, or add nodes to the cluster",
        )
    if isinstance(cell.placement, dict):
        return _with_loads(
            cell, {participant: _placed(cell, participant, nodes) for participant in cell.participants}
        )
    count = cell.nodes or len(nodes)
    if count < 2 and cell.crosses_links:
        raise InputError(
            f"a trial needs two nodes, so that samples cross a link; {count} can run pods",
            "inspect them: kubectl get nodes; kubectl describe node",
        )
    if not count:
        raise InputError("no node can run pods", "inspect them: kubectl get nodes; kubectl describe node")
    return _with_loads(
        cell, {participant: nodes[number].name for participant, number in numbered(cell, count).items()}
    )


def _with_loads(cell: Cell, places: dict[Participant, str]) -> dict[Participant, str]:
    neighbors = (FIRST_PUBLISHER, FIRST_SUBSCRIBER)
    return places | {load: places[neighbor] for load, neighbor in zip(cell.loads, neighbors, strict=False)}


def of_service(cell: Cell, nodes: Sequence[NodeInfo] | None) -> str:
    """Return the node of a cell's discovery service; empty if the placement names none. Raises InputError."""
    return _placed(cell, DISCOVERY_SERVER, nodes or ()) if places_service(cell) else ""


def places_service(cell: Cell) -> bool:
    """Return whether the placement of a cell names the node of its discovery service."""
    return isinstance(cell.placement, dict) and DISCOVERY_SERVER.name in cell.placement


def _placed(cell: Cell, participant: Participant, nodes: Sequence[NodeInfo]) -> str:
    """Return the node that an explicit placement selects by number, name or label."""
    assert isinstance(cell.placement, dict)
    place = cell.placement.get(participant.name, cell.placement.get(participant.short_role))
    if place is None:
        raise InputError(
            f"placement has no node for {participant}",
            "add an entry for it, or for all participants of its role: pub, sub",
        )
    if isinstance(place, int):
        if not 0 <= place < len(nodes):
            raise InputError(
                f"placement puts {participant} on node {place}, which does not exist",
                f"use a number from 0 to {len(nodes) - 1}",
            )
        return nodes[place].name
    key, equals, value = place.partition("=")
    if equals:
        labeled = [node for node in nodes if node.labels.get(key) == value]
        if not labeled:
            raise InputError(
                f"no node that can run pods has the label {place}",
                "list labels: kubectl get nodes --show-labels",
            )
        return labeled[participant.index % len(labeled)].name
    names = [node.name for node in nodes]
    if place not in names:
        raise InputError(
            f"placement puts {participant} on {place!r}, which is not a node that can run pods",
            f"use one of: {', '.join(names)}",
        )
    return place


def slots(cell: Cell, nodes: Sequence[NodeInfo] | None) -> dict[str, Slot]:
    """Return the pod slot of each participant; without `nodes` that can run them, the scheduler selects nodes."""
    places = dict.fromkeys(cell.participants, "") if nodes is None else assign(cell, nodes)
    host = on_host(cell)
    return {participant.name: Slot.of(participant, node, host, cell) for participant, node in places.items()}


def pin_cores(cell: Cell, ready_pods: Mapping[str, ReadyPod]) -> core_layout.Layout:
    """Apply the cell's core layout on each machine, to the participants that run there."""
    cpus: dict[str, tuple[int, ...] | None] = dict.fromkeys(load.name for load in cell.loads)
    includes_scheduling, harness = False, None
    for machine in {pod.machine for pod in ready_pods.values()}:
        local = {name: pod for name, pod in ready_pods.items() if pod.machine == machine}
        publishers = [one.name for one in cell.publishing if one.name in local]
        subscribers = [one.name for one in cell.subscribing if one.name in local]
        cores = tuple(next(iter(local.values())).facts["cpus"])
        by_role = not cell.graph
        assigned = core_layout.assign(cell.layout, len(publishers), len(subscribers), cores, by_role)
        # `assign` numbers the participants of this machine only.
        numbered = participants(len(publishers), len(subscribers))
        for name, local_participant in zip([*publishers, *subscribers], numbered, strict=True):
            cpus[name] = assigned.cpus[local_participant.name]
        includes_scheduling = includes_scheduling or assigned.includes_scheduling
        harness = assigned.harness
    return core_layout.Layout(cpus, harness, includes_scheduling)
