"""Two readings of every node and what was delivered between them → what the network itself has cost."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from k8sdds import versions
from k8sdds.kubernetes.metrics.kubelet import Pod, Usage
from k8sdds.kubernetes.metrics.node_meter import Reading
from k8sdds.networks import NETWORKS

SHORTEST_S = 60
"""The kubelet's readings are up to 15 s old: a shorter interval would be off by a quarter and more."""

NETWORK_PODS = (
    f"{versions.NETWORK_NAMESPACE}/*",
    *dict.fromkeys(pattern for network in NETWORKS.values() for pattern in network.agent_pods),
    "kube-system/calico-node-*", "calico-system/calico-node-*", "kube-system/cilium-*",
    "kube-system/antrea-agent-*",
)  # fmt: skip
"""`namespace/name` patterns of the pods of networks: installed by k8sdds or by their own manifests."""

COLUMNS = (
    "interval_s", "nodes", "delivered_gbit", "network_pods", "network_cpu_s", "network_cpu_s_per_gbit",
    "network_memory_bytes", "kubelet_cpu_percent", "kubelet_memory_bytes", "softirq_s",
    "softirq_percent", "softirq_s_per_gbit", "busy_percent", "nft_chains", "nft_rules", "legacy_chains",
    "legacy_rules",
)  # fmt: skip


def is_network(pod: Pod) -> bool:
    """Whether a pod is part of the pod network."""
    return any(fnmatch.fnmatchcase("/".join(pod), pattern) for pattern in NETWORK_PODS)


def between(
    before: Mapping[str, Reading], after: Mapping[str, Reading], delivered_gbit: float
) -> dict[str, Any]:
    """The COLUMNS for one interval, by nodes that were read at both ends and have not been booted meanwhile.

    Network: sum over all nodes of the pods that were there at both ends; `network_memory_bytes` and what
    concerns kubelets and rules are means over nodes, at the end. Null where it was not read, or where the
    interval is too short for the kubelet's readings.
    """
    both = [
        (before[name], after[name])
        for name in sorted(before.keys() & after.keys())
        if before[name].boot_id == after[name].boot_id and after[name].at_s > before[name].at_s
    ]
    found: dict[str, Any] = dict.fromkeys(COLUMNS)
    found["nodes"], found["delivered_gbit"] = len(both), delivered_gbit
    if not both:
        return found
    # Nodes that share one kernel read the same /proc/stat: each kernel counts once.
    kernels = {one.boot_id: (one, other) for one, other in both}.values()
    interval_s = fmean(other.at_s - one.at_s for one, other in both)
    softirq_s = sum(other.stat["softirq_s"] - one.stat["softirq_s"] for one, other in kernels)
    capacity_s = sum((other.at_s - one.at_s) * other.cpus for one, other in kernels)
    idle_s = sum(_idle(other) - _idle(one) for one, other in kernels)
    found |= {
        "interval_s": interval_s,
        "softirq_s": softirq_s,
        "softirq_percent": softirq_s / capacity_s * 100,
        "softirq_s_per_gbit": softirq_s / delivered_gbit if delivered_gbit else None,
        "busy_percent": max(0.0, (1 - idle_s / capacity_s) * 100),
    }
    found |= _kubelets(both, interval_s) | _rules([other for _, other in both])
    if interval_s >= SHORTEST_S:
        found |= _network(both, delivered_gbit)
    return found


def _idle(reading: Reading) -> float:
    return reading.stat["idle_s"] + reading.stat["iowait_s"]


def _network(both: list[tuple[Reading, Reading]], delivered_gbit: float) -> dict[str, Any]:
    if any(one.resources is None or other.resources is None for one, other in both):
        # A sum without one of its nodes would look cheap.
        return {}
    cpu_s, memory, pods = 0.0, [], 0
    for one, other in both:
        own = [pod for pod in other.resources.pods if is_network(pod)]
        pods += len(own)
        memory.append(sum(other.resources.pods[pod].memory_bytes or 0 for pod in own))
        for pod in own:
            cpu_s += _cpu(one.resources.pods.get(pod), other.resources.pods[pod], other.at_s - one.at_s)
    return {
        "network_pods": pods,
        "network_cpu_s": cpu_s,
        "network_cpu_s_per_gbit": cpu_s / delivered_gbit if delivered_gbit else None,
        "network_memory_bytes": fmean(memory),
    }


def _cpu(one: Usage | None, other: Usage, interval_s: float) -> float:
    """CPU seconds of a pod within the interval: its rate between the two moments at which it was read."""
    if other.cpu_s is None:
        return 0.0
    if one is None or one.cpu_s is None or other.cpu_s < one.cpu_s:
        return other.cpu_s  # it started within the interval, or again
    apart_s = (other.cpu_at_s or 0) - (one.cpu_at_s or 0)
    return (other.cpu_s - one.cpu_s) * (interval_s / apart_s if apart_s > 0 else 1)


def _kubelets(both: list[tuple[Reading, Reading]], interval_s: float) -> dict[str, Any]:
    cpu, memory = [], []
    for one, other in both:
        if not one.kubelet or not other.kubelet:
            continue
        if one.kubelet.cpu_s is not None and (other.kubelet.cpu_s or 0) >= one.kubelet.cpu_s:
            cpu.append((other.kubelet.cpu_s - one.kubelet.cpu_s) / interval_s * 100)
        if other.kubelet.memory_bytes is not None:
            memory.append(other.kubelet.memory_bytes)
    return {
        "kubelet_cpu_percent": fmean(cpu) if cpu else None,
        "kubelet_memory_bytes": fmean(memory) if memory else None,
    }


def _rules(readings: list[Reading]) -> dict[str, Any]:
    counted = [one.rules for one in readings if one.rules]
    names = ("nft_chains", "nft_rules", "legacy_chains", "legacy_rules")
    return {name: fmean(getattr(one, name) for one in counted) if counted else None for name in names}
