"""Compute what each network costs outside of trials: pods, kubelets, softirqs, packet filters, pod starts.

The input is the run folder's readings (docs/reference/run-folder.md). k8sdds reads the nodes before and after each
block, never during a measurement. Values are totals or means over a whole block, so they have no confidence interval.
The values for a network are means over its blocks. Campaigns without readings, such as all campaigns in the
lab, produce no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from k8sdds.analysis import network_usage
from k8sdds.kubernetes.metrics import node_meter
from k8sdds.kubernetes.metrics.pod_startup import STEPS
from k8sdds.kubernetes.metrics.quantities import parse_time_s
from k8sdds.results import aggregate
from k8sdds.results.run_folder import RunFolder

Row = dict[str, Any]
START_COLUMNS = tuple(f"pod_{step}" for step in STEPS)
COLUMNS = ("network", "blocks", *network_usage.COLUMNS, "pods", *START_COLUMNS)

SOURCES = {
    "resource": "the network's own pods",
    "kubelet": "kubelets",
    "nft": "packet filters",
    "iptables": "older packet filters",
}
"""Describes what the node meter reads from each source."""


def by_block(run: RunFolder) -> list[Row]:
    """Return a row for each block with readings at both ends or with observed pod starts."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for line in run.readings():
        groups.setdefault((line.get("block", 0), str(line.get("network"))), []).append(line)
    attempts = run.attempts() if groups else []
    return [
        {"network": network, "block": block, **_block(lines, attempts)}
        for (block, network), lines in groups.items()
    ]


def by_network(run: RunFolder) -> list[Row]:
    """Return the means over the blocks of each network, with COLUMNS. A value is None if no block has it."""
    rows: dict[str, list[Row]] = {}
    for row in by_block(run):
        rows.setdefault(row["network"], []).append(row)
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
    ends: dict[str, dict[str, node_meter.Reading]] = {"before": {}, "after": {}}
    for line in lines:
        if line.get("kind") == "node" and line.get("when") in ends:
            try:
                reading = node_meter.parse(line)
            except ValueError:
                continue  # written by another version of the meter
            # A resumed block has several readings: use the first before and the last after it.
            if line["when"] == "after" or reading.node not in ends["before"]:
                ends[line["when"]][reading.node] = reading
    usage = network_usage.between(ends["before"], ends["after"], _delivered_gbit(ends, attempts))
    return usage | _starts(line for line in lines if line.get("kind") == "starts")


def _delivered_gbit(ends: dict[str, dict[str, node_meter.Reading]], attempts: Sequence[Row]) -> float:
    """Return the payload of all attempts between the readings, in 1e9 bits, including invalid attempts."""
    if not ends["before"] or not ends["after"]:
        return 0.0
    first = min(reading.at_s for reading in ends["before"].values())
    last = max(reading.at_s for reading in ends["after"].values())
    bits: float = sum(
        (attempt.get("received") or 0) * attempt["payload_bytes"] * 8
        for attempt in attempts
        if attempt.get("started_at") and first <= parse_time_s(attempt["started_at"]) <= last
    )
    return bits / 1e9


def _starts(lines: Iterable[Row]) -> Row:
    pods = [steps for line in lines for steps in (line.get("pods") or {}).values()]
    starts: Row = {"pods": len(pods) or None}
    for step, column in zip(STEPS, START_COLUMNS, strict=True):
        known = [steps[step] for steps in pods if steps.get(step) is not None]
        starts[column] = median(known) if known else None
    return starts
