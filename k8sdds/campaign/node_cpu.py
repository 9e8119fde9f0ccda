"""Attribute CPU time to the nodes of a trial."""

from __future__ import annotations

from collections import defaultdict

from k8sdds.results import aggregate
from k8sdds.workloads import TrialOutputs
from k8sdds.workloads.outputs import percent


def by_node(outputs: TrialOutputs) -> dict[str, dict[str, float]] | None:
    """Return the CPU time of each node in percent of one core; None: it is not known of all participants.

    `participants` is the sum over its participants. `shared` is its part of what the kernel did for packets (softirqs)
    and of the network's daemons. Both are known of whole machines only: nodes that share a machine have parts in
    proportion to their participants.
    """
    places = outputs.measurement.nodes
    participants: dict[str, float] = defaultdict(float)
    machines: dict[str, dict[str, float]] = defaultdict(dict)
    softirqs: dict[str, float] = {}
    for participant in outputs.trial.cell.participants:
        meters = outputs.meters_of(participant)
        used = percent(meters, meters.get("cpu_s"))
        softirq = percent(meters, (meters.get("machine") or {}).get("softirq_s"))
        if participant.name not in places or used is None or softirq is None:
            return None
        node, machine = places[participant.name]
        participants[node] += used
        machines[machine][node] = participants[node]
        softirqs.setdefault(machine, softirq)
    daemons = outputs.measurement.daemons_cpu_percent or 0.0
    shared = {
        node: (softirqs[machine] + daemons / len(machines))
        * (aggregate.ratio(used, sum(own.values())) or 0.0)
        for machine, own in machines.items()
        for node, used in own.items()
    }
    return {
        node: {"participants": round(used, 4), "shared": round(shared[node], 4)}
        for node, used in participants.items()
    }


def busiest(nodes: dict[str, dict[str, float]] | None) -> float | None:
    """Return the CPU time of the node with the most."""
    return max((sum(parts.values()) for parts in nodes.values()), default=None) if nodes else None
