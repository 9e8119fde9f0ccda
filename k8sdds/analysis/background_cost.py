"""Compute what each network costs outside of trials: pods, kubelets, softirqs, packet filters, pod starts.

The input is the run folder's readings (docs/reference/run-folder.md). k8sdds reads the nodes before and after each
block, never during a measurement. Values are totals or means over a whole block, so they have no confidence interval.
The values for a network are means over its blocks. Campaigns without readings, such as all campaigns in the
lab, produce no rows.

The values of `kubectl top` show what its users would have seen. The metrics server averages over 10 to 30 s, so they
are not measurements of a trial.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

from k8sdds import networks
from k8sdds.kubernetes.metrics.node_meter import Pod, Reading, Usage, parse
from k8sdds.kubernetes.metrics.pod_startup import STEPS
from k8sdds.kubernetes.metrics.quantities import parse_time_s
from k8sdds.results import aggregate
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.grouping import Row, grouped

SHORTEST_S = 60
"""Shortest interval for which the kubelet's numbers are used. They are up to 15 s old, so the error for this
interval is up to 25 %."""

NETWORK_PODS = networks.agent_pods()

USAGE_COLUMNS = (
    "interval_s", "nodes", "delivered_gbit", "network_pods", "network_cpu_s", "network_cpu_s_per_gbit",
    "network_memory_bytes", "kubelet_cpu_percent", "kubelet_memory_bytes", "softirq_s",
    "softirq_percent", "softirq_s_per_gbit", "busy_percent", "nft_chains", "nft_rules", "legacy_chains",
    "legacy_rules",
)  # fmt: skip
START_COLUMNS = tuple(f"pod_{step}" for step in STEPS)
COLUMNS = ("network", "blocks", *USAGE_COLUMNS, "pods", *START_COLUMNS)

SOURCES = {
    "resource": "the network's own pods",
    "kubelet": "kubelets",
    "nft": "packet filters",
    "iptables": "older packet filters",
}
"""Describes what the node meter reads from each source."""


def by_block(run: RunFolder) -> list[Row]:
    """Return a row for each block with readings at both ends or with observed pod starts."""
    groups = grouped(run.readings(), lambda line: (line.get("block", 0), str(line.get("network"))))
    attempts = run.attempts() if groups else []
    return [
        {"network": network, "block": block, **_block(lines, attempts)}
        for (block, network), lines in groups.items()
    ]


def by_network(run: RunFolder) -> list[Row]:
    """Return the means over the blocks of each network, with COLUMNS. A value is None if no block has it."""
    rows = grouped(by_block(run), lambda row: row["network"])
    return [
        {"network": network, "blocks": len(blocks)}
        | {name: aggregate.mean(block[name] for block in blocks) for name in COLUMNS[2:]}
        for network, blocks in rows.items()
    ]


def missing_readings(run: RunFolder) -> list[str]:
    """Return a message for each quantity that could not be metered, with the reason, without duplicates."""
    failures: dict[str, None] = {}
    nodes: dict[str, set[str]] = {}
    reasons: dict[str, str] = {}
    for line in run.readings():
        if line.get("kind") == "lack":
            failures[str(line.get("said"))] = None
        for source, reason in (line.get("lacks") or {}).items():
            # The reasons of several nodes differ only in the node's address, so the first is enough.
            reasons.setdefault(source, str(reason))
            nodes.setdefault(source, set()).add(str(line.get("node")))
    by_source = [
        f"{SOURCES.get(source, source)} on {', '.join(sorted(nodes[source]))}: {reason}"
        for source, reason in reasons.items()
    ]
    return [*failures, *by_source]


def _block(lines: Sequence[Row], attempts: Sequence[Row]) -> Row:
    ends: dict[str, dict[str, Reading]] = {"before": {}, "after": {}}
    for line in lines:
        if line.get("kind") == "node" and line.get("when") in ends:
            try:
                reading = parse(line)
            except ValueError:
                continue  # written by another version of the meter
            # A resumed block has several readings: use the first before and the last after it.
            if line["when"] == "after" or reading.node not in ends["before"]:
                ends[line["when"]][reading.node] = reading
    usage = usage_between(ends["before"], ends["after"], _delivered_gbit(ends, attempts))
    return usage | _starts(line for line in lines if line.get("kind") == "starts")


def _delivered_gbit(ends: dict[str, dict[str, Reading]], attempts: Sequence[Row]) -> float:
    """Return the payload of all attempts between the readings, in 1e9 bits, including invalid attempts."""
    if not ends["before"] or not ends["after"]:
        return 0.0
    first = min(reading.at_s for reading in ends["before"].values())
    last = max(reading.at_s for reading in ends["after"].values())
    bits: float = sum(
        _payload_bytes(attempt) * 8
        for attempt in attempts
        if attempt.get("started_at") and first <= parse_time_s(attempt["started_at"]) <= last
    )
    return bits / 1e9


def _payload_bytes(attempt: Row) -> int:
    """Return the payload that an attempt delivered. Only the sizes of a recorded schedule vary."""
    counted = (attempt.get("link_bytes") or {}).get("delivered_bytes") if attempt.get("schedule") else None
    if counted:
        return sum(filter(None, counted.values()))
    return (attempt.get("received") or 0) * int(attempt["payload_bytes"])


def _starts(lines: Iterable[Row]) -> Row:
    pods = [steps for line in lines for steps in (line.get("pods") or {}).values()]
    starts: Row = {"pods": len(pods) or None}
    for step, column in zip(STEPS, START_COLUMNS, strict=True):
        known = [steps[step] for steps in pods if steps.get(step) is not None]
        starts[column] = median(known) if known else None
    return starts


# -- between two readings of every node ------------------------------------------------------------------------


def is_network(pod: Pod) -> bool:
    """Return whether a pod belongs to the pod network."""
    return any(fnmatch.fnmatchcase("/".join(pod), pattern) for pattern in NETWORK_PODS)


def usage_between(before: Mapping[str, Reading], after: Mapping[str, Reading], delivered_gbit: float) -> Row:
    """Return USAGE_COLUMNS for one interval, from the nodes that were read at both ends and did not reboot.

    The network's CPU time is the sum over its pods on all nodes. `network_memory_bytes` and the columns for
    kubelets and packet filters are means over nodes at the end of the interval. A value is None if it was not
    read, or if the interval is too short for the kubelet's readings.
    """
    both = [
        (before[name], after[name])
        for name in sorted(before.keys() & after.keys())
        if before[name].boot_id == after[name].boot_id and after[name].at_s > before[name].at_s
    ]
    usage: Row = dict.fromkeys(USAGE_COLUMNS)
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


def _network(both: list[tuple[Reading, Reading]], delivered_gbit: float) -> Row:
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


def _kubelets(both: list[tuple[Reading, Reading]], interval_s: float) -> Row:
    cpu, memory = [], []
    for before, after in both:
        if not before.kubelet or not after.kubelet:
            continue
        start_s, end_s = before.kubelet.cpu_s, after.kubelet.cpu_s
        if start_s is not None and end_s is not None and end_s >= start_s:
            cpu.append((end_s - start_s) / interval_s * 100)
        memory.append(after.kubelet.memory_bytes)
    return {"kubelet_cpu_percent": aggregate.mean(cpu), "kubelet_memory_bytes": aggregate.mean(memory)}


def _rules(readings: list[Reading]) -> Row:
    rules = [reading.rules for reading in readings if reading.rules]
    names = ("nft_chains", "nft_rules", "legacy_chains", "legacy_rules")
    return {name: aggregate.mean(getattr(counts, name) for counts in rules) for name in names}


# -- kubectl top -----------------------------------------------------------------------------------------------

TOP_COLUMNS = ("network", "block", "when", "kind", "name", "at", "window_s", "cpu_cores", "memory_bytes")
NODE, POD = "node", "pod"


def top_readings(run: RunFolder) -> list[Row]:
    """Return every reading once, with TOP_COLUMNS, in chronological order."""
    unique: dict[tuple[str, str, str], Row] = {}
    for line in run.readings():
        if line.get("kind") != "top":
            continue
        for top in line.get("tops") or ():
            known = line | top | {"kind": POD if top.get("namespace") else NODE}
            row = {name: known.get(name) for name in TOP_COLUMNS}
            # The metrics server returns the same values until it takes its next reading.
            unique.setdefault((row["kind"], row["name"], row["at"]), row)
    return list(unique.values())


def top_by_node(run: RunFolder) -> list[Row]:
    """Return readings, mean CPU and memory, and shortest and longest window for each network and node.

    Readings taken before a block are not used, because their averaging window lies before the block. The window
    of a reading taken after a block lies at the end of the block.
    """
    after = (row for row in top_readings(run) if row["kind"] == NODE and row["when"] == "after")
    groups = grouped(after, lambda row: (str(row["network"]), row["name"]))
    return [
        {
            "network": network,
            "node": node,
            "readings": len(rows),
            "cpu_cores": fmean(row["cpu_cores"] for row in rows),
            "memory_bytes": fmean(row["memory_bytes"] for row in rows),
            "window_s": (min(row["window_s"] for row in rows), max(row["window_s"] for row in rows)),
        }
        for (network, node), rows in groups.items()
    ]
