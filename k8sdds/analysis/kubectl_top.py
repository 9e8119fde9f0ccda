"""Read the recorded `kubectl top` values of nodes and of the campaign's pods, with their averaging windows.

The metrics server averages over 10 to 30 s. k8sdds reads it before and after each block. The values show what
a user of `kubectl top` would have seen. They are not measurements of a trial.
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
    """Return every reading once, with COLUMNS, in chronological order."""
    unique: dict[tuple[str, str, str], Row] = {}
    for line in run.readings():
        if line.get("kind") != "top":
            continue
        for top in line.get("tops") or ():
            if isinstance(top, Mapping) and {"name", "at", *COLUMNS[-3:]} <= top.keys():
                row = {name: line.get(name) for name in COLUMNS[:3]}
                row |= {name: top[name] for name in COLUMNS[4:]}
                row["kind"] = POD if top.get("namespace") else NODE
                # The metrics server returns the same values until it takes its next reading.
                unique.setdefault((str(row["kind"]), str(row["name"]), str(row["at"])), row)
    return [{name: row[name] for name in COLUMNS} for row in unique.values()]


def by_node(run: RunFolder) -> list[Row]:
    """Return readings, mean CPU and memory, and shortest and longest window for each network and node.

    Readings taken before a block are not used, because their averaging window lies before the block. The window
    of a reading taken after a block lies at the end of the block.
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
