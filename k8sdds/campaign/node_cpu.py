"""Attribute CPU time to the nodes of a trial: of its participants, and of what the machine did for them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from k8sdds.discovery import SERVER
from k8sdds.model.measurement import OutsideCpu
from k8sdds.results import aggregate
from k8sdds.workloads import TrialOutputs
from k8sdds.workloads.outputs import machine_percent, percent, spin_percent

NodesCpu = dict[str, dict[str, float]]
"""By node, in percent of one core: `participants` and `shared`."""


def by_node(outputs: TrialOutputs) -> NodesCpu | None:
    """Return the CPU time of each node in percent of one core; None if it is not known of all participants.

    `participants` is the sum over its participants, without the time that a publisher spun until samples were due, and
    with the discovery service, if that runs like them.
    `shared` is its part of what its machine did for them outside of their pods: softirqs, threads of the kernel, and
    the network's daemons. Nodes that share a machine have parts in proportion to their participants.
    """
    participants: dict[str, float] = defaultdict(float)
    machines: dict[str, dict[str, float]] = defaultdict(dict)
    meters: dict[str, dict[str, Any]] = {}
    cell = outputs.trial.cell
    services = [service for service in cell.services if service.name in outputs.measurement.outcomes]
    for participant in [*cell.participants, *services]:
        own = outputs.meters_of(participant)
        used = _of_service(outputs, own) if participant in services else percent(own, own.get("cpu_s"))
        place = outputs.measurement.nodes.get(participant.name)
        if used is None or place is None or machine_percent(own, "softirq_s") is None:
            return None
        node, machine = place
        participants[node] += max(0.0, used - (spin_percent(outputs.summaries.get(participant)) or 0.0))
        machines[machine][node] = participants[node]
        meters.setdefault(machine, own)
    shared = {machine: _outside_pods(outputs, machine, meters[machine]) for machine in machines}
    elsewhere = {
        name: {"participants": 0.0, "shared": round(spent.services, 4)}
        for name, spent in outputs.measurement.outside.items()
        if name not in machines and spent.services
    }
    return elsewhere | {
        node: {
            "participants": round(used, 4),
            "shared": round(shared[machine] * (aggregate.ratio(used, sum(own.values())) or 0.0), 4),
        }
        for machine, own in machines.items()
        for node, used in own.items()
    }


def busiest(nodes: NodesCpu | None) -> float | None:
    """Return the CPU time of the node with the most."""
    return max((sum(parts.values()) for parts in nodes.values()), default=None) if nodes else None


def total(nodes: NodesCpu | None) -> float | None:
    """Return the CPU time of all nodes."""
    return sum(sum(parts.values()) for parts in nodes.values()) if nodes else None


def of_services(outputs: TrialOutputs) -> float | None:
    """Return the CPU time of the discovery service, in percent of one core; None without one, or if it is unknown."""
    cell = outputs.trial.cell
    if cell.discovery_kind != SERVER:
        return None
    metered = [_of_service(outputs, outputs.meters_of(service)) for service in cell.services]
    if any(used is not None for used in metered):
        return aggregate.total(metered)
    return aggregate.total(spent.services for spent in outputs.measurement.outside.values())


def _of_service(outputs: TrialOutputs, meters: dict[str, Any]) -> float | None:
    """Return the CPU time of a service in the attempt, in percent of the time in which publishers were to send.

    A service has no measured interval, and has next to nothing to do before and after what is sent.
    """
    used, sending_s = meters.get("cpu_s"), outputs.trial.warmup_s + outputs.trial.duration_s
    return None if used is None else float(used) / sending_s * 100


def _outside_pods(outputs: TrialOutputs, machine: str, meters: dict[str, Any]) -> float:
    """Return the CPU time of a machine for its participants outside of their pods, in percent of one core."""
    outside = outputs.measurement.outside.get(machine, OutsideCpu())
    known = (outside.kernel_threads or 0.0) + outside.network + outside.services
    return known + _softirqs(outputs, machine, meters, known + outside.others + outside.links)


def _softirqs(outputs: TrialOutputs, machine: str, meters: dict[str, Any], outside: float) -> float:
    """Return the softirqs of a machine that are in no process's CPU time, in percent of one core.

    Kernels without CONFIG_IRQ_TIME_ACCOUNTING also charge a softirq to the process that it interrupted. What is left of
    the machine's busy time without all processes is then an upper bound of the others. Busy time is what is not idle:
    the kernel measures idle time, but samples the rest at its ticks. `outside` is the CPU time outside of the pods.
    """
    times = meters.get("machine") or {}
    softirqs = machine_percent(meters, "softirq_s") or 0.0
    if outputs.measurement.outside.get(machine, OutsideCpu()).separate_interrupts:
        return softirqs
    unused = percent(meters, sum(times.get(name) or 0.0 for name in ("idle_s", "iowait_s", "steal_s")))
    pods = sum(
        percent(own, own.get("cpu_s")) or 0.0
        for name, own in outputs.meters.items()
        if outputs.measurement.nodes.get(name, ("", ""))[1] == machine
    )
    busy = 100 * (times.get("cpus") or 1) - (unused or 0.0)
    return min(softirqs, max(0.0, busy - pods - outside))
