"""What `kubectl top` showed of nodes and of the campaign's pods, with the window that it leaves out.

Averages of 10 to 30 s by the metrics server, read before and after each block: they show what others who
measure with `kubectl top` would have seen, and are no record of any trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from k8sdds.results.run_folder import RunFolder

Row = dict[str, Any]
COLUMNS = ("network", "block", "when", "kind", "name", "at", "window_s", "cpu_cores", "memory_bytes")
NODE, POD = "node", "pod"


def readings(run: RunFolder) -> list[Row]:
    """Every reading once, with COLUMNS, in the order in which they were made."""
    found: dict[tuple[str, str, str], Row] = {}
    for line in run.readings():
        if line.get("kind") != "top":
            continue
        for one in line.get("tops") or ():
            if isinstance(one, Mapping) and {"name", "at", *COLUMNS[-3:]} <= one.keys():
                row = {name: line.get(name) for name in COLUMNS[:3]}
                row |= {name: one[name] for name in COLUMNS[4:]}
                row["kind"] = POD if one.get("namespace") else NODE
                # Between two of its own readings the server repeats the last.
                found.setdefault((row["kind"], row["name"], row["at"]), row)
    return [{name: row[name] for name in COLUMNS} for row in found.values()]


def by_node(run: RunFolder) -> list[Row]:
    """For each network and node: number of readings, mean CPU and memory, shortest and longest window.

    Of those after a block, whose windows are at its end: before it they show what was there before.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in readings(run):
        if row["kind"] == NODE and row["when"] == "after":
            groups.setdefault((str(row["network"]), row["name"]), []).append(row)
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
