"""What the networks cost beside the trials, as a table of the report; only clusters' campaigns have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from k8sdds.analysis import background_cost, kubectl_top
from k8sdds.report import formats
from k8sdds.results.run_folder import RunFolder

MIB = 2**20
SHOWN = (
    ("network_cpu_s_per_gbit", "CPU of its pods", "s per delivered Gbit", 1),
    ("network_memory_bytes", "memory of its pods", "MiB per node", MIB),
    ("softirq_s_per_gbit", "softirqs", "s per delivered Gbit", 1),
    ("softirq_percent", "softirqs", "% of all cores", 1),
    ("kubelet_cpu_percent", "kubelet", "% of one core", 1),
    ("kubelet_memory_bytes", "kubelet", "MiB", MIB),
    ("nft_chains", "nftables chains", "per node", 1),
    ("nft_rules", "nftables rules", "per node", 1),
    ("legacy_rules", "legacy iptables rules", "per node", 1),
    ("pod_scheduled_s", "pod scheduled", "s after it was made", 1),
    ("pod_network_ready_s", "its network ready", "s", 1),
    ("pod_running_s", "running", "s", 1),
)
"""Column of `analysis.upkeep` with its words, unit and divisor."""


@dataclass(frozen=True)
class Table:
    """The table as text."""

    heads: list[tuple[str, str]]
    rows: list[tuple[str, list[str]]]


def table(run: RunFolder) -> Table | None:
    """Networks by what they cost, without columns that nobody read; None where nothing was read."""
    found = background_cost.by_network(run)
    shown = [item for item in SHOWN if any(row[item[0]] is not None for row in found)]
    if not shown:
        return None
    rows = [(row["network"], [_cell(row[name], divisor) for name, _, _, divisor in shown]) for row in found]
    return Table([(words, unit) for _, words, unit, _ in shown], rows)


def top_rows(run: RunFolder) -> list[dict[str, str]]:
    """What `kubectl top nodes` showed, as text; empty where nobody asked."""
    return [
        {
            "network": row["network"],
            "node": row["node"],
            "readings": str(row["readings"]),
            "cpu": formats.number(row["cpu_cores"]),
            "memory": formats.number(row["memory_bytes"] / MIB),
            "window": " to ".join(formats.number(seconds) for seconds in sorted(set(row["window_s"]))),
        }
        for row in kubectl_top.by_node(run)
    ]


def _cell(value: Any, divisor: float) -> str:
    if value is not None and divisor == 1 and value == int(value):
        return str(int(value))  # a count
    return formats.number(None if value is None else value / divisor)
