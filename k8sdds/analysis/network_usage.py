"""Compute the cost of a network from two readings of every node and the payload delivered between them."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from k8sdds import networks
from k8sdds.kubernetes.metrics.node_meter import Pod, Reading, Usage
from k8sdds.results import aggregate

SHORTEST_S = 60
"""Shortest interval for which the kubelet's numbers are used. They are up to 15 s old, so the error for this
interval is up to 25 %."""

NETWORK_PODS = networks.agent_pods()

COLUMNS = (
    "interval_s", "nodes", "delivered_gbit", "network_pods", "network_cpu_s", "network_cpu_s_per_gbit",
    "network_memory_bytes", "kubelet_cpu_percent", "kubelet_memory_bytes", "softirq_s",
    "softirq_percent", "softirq_s_per_gbit", "busy_percent", "nft_chains", "nft_rules", "legacy_chains",
    "legacy_rules",
)  # fmt: skip


def is_network(pod: Pod) -> bool:
    """Return whether a pod belongs to the pod network."""
    return any(fnmatch.fnmatchcase("/".join(pod), pattern) for pattern in NETWORK_PODS)


def between(
    before: Mapping[str, Reading], after: Mapping[str, Reading], delivered_gbit: float
) -> dict[str, Any]:
    """Return COLUMNS for one interval, from the nodes that were read at both ends and did not reboot.

    The network's CPU time is the sum over its pods on all nodes. `network_memory_bytes` and the columns for
    kubelets and packet filters are means over nodes at the end of the interval. A value is None if it was not
    read, or if the interval is too short for the kubelet's readings.
    """
    both = [
        (before[name], after[name])
        for name in sorted(before.keys() & after.keys())
        if before[name].boot_id == after[name].boot_id and after[name].at_s > before[name].at_s
    ]
    usage: dict[str, Any] = dict.fromkeys(COLUMNS)
    usage["nodes"], usage["delivered_gbit"] = len(both), delivered_gbit
    if not both:
        return usage
    # Nodes that share a kernel read the same /proc/stat, so each kernel counts once.
    kernels = {start.boot_id: (start, end) for start, end in both}.values()
    interval_s = fmean(end.at_s - start.at_s for start, end in both)
    softirq_s = sum(end.stat["softirq_s"] - start.stat["softirq_s"] for start, end in kernels)
    capacity_s = sum((end.at_s - start.at_s) * end.cpus for start, end in kernels)
    idle_s = sum(_idle(end) - _idle(start) for start, end in kernels)
    usage |= {
        "interval_s": interval_s,
        "softirq_s": softirq_s,
        "softirq_percent": softirq_s / capacity_s * 100,
        "softirq_s_per_gbit": softirq_s / delivered_gbit if delivered_gbit else None,
        "busy_percent": max(0.0, (1 - idle_s / capacity_s) * 100),
    }
    usage |= _kubelets(both, interval_s) | _rules([end for _, end in both])
    if interval_s >= SHORTEST_S:
        usage |= _network(both, delivered_gbit)
    return usage


def _idle(reading: Reading) -> float:
    return reading.stat["idle_s"] + reading.stat["iowait_s"]


def _network(both: list[tuple[Reading, Reading]], delivered_gbit: float) -> dict[str, Any]:
    cpu_s, memory, pods = 0.0, [], 0
    for before, after in both:
        if before.resources is None or after.resources is None:
            # A sum that omits a node would make the network look cheaper than it is.
            return {}
        network_pods = [pod for pod in after.resources.pods if is_network(pod)]
        pods += len(network_pods)
        memory.append(sum(after.resources.pods[pod].memory_bytes or 0 for pod in network_pods))
        for pod in network_pods:
            usage = before.resources.pods.get(pod), after.resources.pods[pod]
            cpu_s += _cpu(*usage, after.at_s - before.at_s)
    return {
        "network_pods": pods,
        "network_cpu_s": cpu_s,
        "network_cpu_s_per_gbit": cpu_s / delivered_gbit if delivered_gbit else None,
        "network_memory_bytes": fmean(memory),
    }


def _cpu(before: Usage | None, after: Usage, interval_s: float) -> float:
    """Return a pod's CPU seconds in the interval, scaled from the times at which the kubelet read them."""
    if after.cpu_s is None:
        return 0.0
    if before is None or before.cpu_s is None or after.cpu_s < before.cpu_s:
        return after.cpu_s  # the pod started or restarted within the interval
    apart_s = (after.cpu_at_s or 0) - (before.cpu_at_s or 0)
    return (after.cpu_s - before.cpu_s) * (interval_s / apart_s if apart_s > 0 else 1)


def _kubelets(both: list[tuple[Reading, Reading]], interval_s: float) -> dict[str, Any]:
    cpu, memory = [], []
    for before, after in both:
        if not before.kubelet or not after.kubelet:
            continue
        start_s, end_s = before.kubelet.cpu_s, after.kubelet.cpu_s
        if start_s is not None and end_s is not None and end_s >= start_s:
            cpu.append((end_s - start_s) / interval_s * 100)
        memory.append(after.kubelet.memory_bytes)
    return {"kubelet_cpu_percent": aggregate.mean(cpu), "kubelet_memory_bytes": aggregate.mean(memory)}


def _rules(readings: list[Reading]) -> dict[str, Any]:
    rules = [reading.rules for reading in readings if reading.rules]
    names = ("nft_chains", "nft_rules", "legacy_chains", "legacy_rules")
    return {name: aggregate.mean(getattr(counts, name) for counts in rules) for name in names}
