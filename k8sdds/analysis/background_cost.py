"""What each network costs beside the trials: its own pods, kubelets, softirqs, packet filters, pod starts.

From the run folder's readings (docs/results.md): nodes are read before and after each block, never while a
trial measures. A block is the unit: its numbers are totals or means over all of it, so they carry no
interval, and blocks of one network are averaged. Empty for campaigns without readings, such as the lab's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from k8sdds.analysis import network_usage
from k8sdds.kubernetes.metrics import node_meter
from k8sdds.kubernetes.metrics.pod_startup import STEPS
from k8sdds.kubernetes.metrics.quantities import unix_s
from k8sdds.results.run_folder import RunFolder

Row = dict[str, Any]
START_COLUMNS = tuple(f"pod_{step}" for step in STEPS)
COLUMNS = ("network", "blocks", *network_usage.COLUMNS, "pods", *START_COLUMNS)


def by_block(run: RunFolder) -> list[Row]:
    """One row for each block that was read at both ends or whose pods' starts were seen."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for line in run.readings():
        groups.setdefault((line.get("block", 0), str(line.get("network"))), []).append(line)
    attempts = run.attempts() if groups else []
    return [
        {"network": network, "block": block, **_block(lines, attempts)}
        for (block, network), lines in groups.items()
    ]


def by_network(run: RunFolder) -> list[Row]:
    """The means over each network's blocks, with COLUMNS; what no block has is None."""
    rows: dict[str, list[Row]] = {}
    for row in by_block(run):
        rows.setdefault(row["network"], []).append(row)
    return [
        {"network": network, "blocks": len(some)}
        | {name: _mean(row[name] for row in some) for name in COLUMNS[2:]}
        for network, some in rows.items()
    ]


SOURCES = {
    "resource": "the network's own pods",
    "kubelet": "kubelets",
    "nft": "packet filters",
    "iptables": "older packet filters",
}
"""What a meter's sources are for."""


def lacks(run: RunFolder) -> list[str]:
    """What was to be metered and could not be, each with its reason, once."""
    found: dict[str, None] = {}
    nodes: dict[str, set[str]] = {}
    reasons: dict[str, str] = {}
    for line in run.readings():
        if line.get("kind") == "lack":
            found[str(line.get("said"))] = None
        for source, why in (line.get("lacks") or {}).items():
            # One node's reason stands for all: they differ in its address.
            reasons.setdefault(source, str(why))
            nodes.setdefault(source, set()).add(str(line.get("node")))
    said = [
        f"{SOURCES.get(source, source)} on {', '.join(sorted(nodes[source]))}: {why}"
        for source, why in reasons.items()
    ]
    return [*found, *said]


def _block(lines: Sequence[Row], attempts: Sequence[Row]) -> Row:
    ends: dict[str, dict[str, node_meter.Reading]] = {"before": {}, "after": {}}
    for line in lines:
        if line.get("kind") == "node" and line.get("when") in ends:
            try:
                reading = node_meter.read(line)
            except ValueError:
                continue  # another format than this k8sdds knows
            # An interrupted block is read again: from its first beginning to its last end.
            if line["when"] == "after" or reading.node not in ends["before"]:
                ends[line["when"]][reading.node] = reading
    found = network_usage.between(ends["before"], ends["after"], _delivered_gbit(ends, attempts))
    return found | _starts(line for line in lines if line.get("kind") == "starts")


def _delivered_gbit(ends: dict[str, dict[str, node_meter.Reading]], attempts: Sequence[Row]) -> float:
    """Payload of all attempts between the readings, in 1e9 bits; invalid ones were carried too."""
    if not ends["before"] or not ends["after"]:
        return 0.0
    first = min(reading.at_s for reading in ends["before"].values())
    last = max(reading.at_s for reading in ends["after"].values())
    return sum(
        (one.get("received") or 0) * one["payload_bytes"] * 8 / 1e9
        for one in attempts
        if one.get("started_at") and first <= unix_s(one["started_at"]) <= last
    )


def _starts(lines: Iterable[Row]) -> Row:
    pods = [steps for line in lines for steps in line.get("pods", {}).values()]
    found: Row = {"pods": len(pods) or None}
    for step, column in zip(STEPS, START_COLUMNS, strict=True):
        known = [one[step] for one in pods if one.get(step) is not None]
        found[column] = median(known) if known else None
    return found


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
