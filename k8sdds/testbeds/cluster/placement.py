"""Where a cell's participants are: the slots of their pods, and their cores on each machine. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from k8sdds.model.trial import Cell, participants
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.cluster.blocks import HOST
from k8sdds.testbeds.cluster.nodes import Node, assign
from k8sdds.testbeds.cluster.pod_pool import ReadyPod
from k8sdds.testbeds.cluster.pods import Slot


def slots(cell: Cell, nodes: Sequence[Node] | None) -> dict[str, Slot]:
    """Participant to its pod's slot, on these nodes; where none may be seen the scheduler will place them."""
    places = dict.fromkeys(cell.participants, "") if nodes is None else assign(cell, nodes)
    host = cell.network == HOST
    return {one.name: Slot.of(one, node, host, cell.cpu_quota) for one, node in places.items()}


def layout(cell: Cell, members: Mapping[str, ReadyPod]) -> core_layout.Layout:
    """Cores on each machine for the participants that run there, each machine by itself."""
    cpus: dict[str, tuple[int, ...] | None] = {}
    scheduling, harness = False, None
    for machine in {member.machine for member in members.values()}:
        here = {name: one for name, one in members.items() if one.machine == machine}
        pubs = [one.name for one in cell.participants if one.publishes and one.name in here]
        subs = [one.name for one in cell.participants if one.subscribes and one.name in here]
        free = tuple(next(iter(here.values())).facts["cpus"])
        assigned = core_layout.assign(cell.layout, len(pubs), len(subs), free)
        # The layout numbers the participants of this machine alone.
        for name, numbered in zip([*pubs, *subs], participants(len(pubs), len(subs)), strict=True):
            cpus[name] = assigned.cpus[numbered.name]
        scheduling = scheduling or assigned.includes_scheduling
        harness = assigned.harness
    return core_layout.Layout(cpus, harness, scheduling)
