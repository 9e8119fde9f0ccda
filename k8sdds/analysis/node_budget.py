"""Sum the CPU time of all flows of an application on each node.

The flows are measured one at a time, so a sum joins the trials of one block. In a block, the CPU time of a node is

    sum over flows of (participants of the flow on the node) + what its machine did for them outside of their pods

where the latter is the sum over flows too, unless the flows were measured with the others as background: then each
trial has the packets of all flows, and the largest part counts.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from k8sdds.analysis.overhead import Row

BLOCK = "block_key"
"""Key of a trial with its block: trials are compared only within one."""


def rows(trials: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return the CPU time for each block in which all flows have it, of the busiest node and of all nodes.

    Args:
        trials: Valid trials of a configuration by flow, each with its BLOCK.

    Returns:
        `node_cpu_percent` and `total_cpu_percent` by block; None if a trial does not have them.
    """
    by_block: dict[Any, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for flow, own in trials.items():
        for row in own:
            by_block[row[BLOCK]][flow].append(row)
    found = {
        block: _by_node(list(flows.values()))
        for block, flows in by_block.items()
        if len(flows) == len(trials)
    }
    return [
        {
            BLOCK: block,
            "node_cpu_percent": max(nodes, default=None),
            "total_cpu_percent": math.fsum(nodes) if nodes else None,
        }
        for block, nodes in found.items()
    ]


def _by_node(flows: Sequence[Sequence[Row]]) -> list[float]:
    """Return the CPU time of each node with all flows; empty if it is not known of one of them."""
    participants: dict[str, float] = defaultdict(float)
    shared: dict[str, list[float]] = defaultdict(list)
    for own in flows:
        known = [nodes for row in own if (nodes := _nodes(row))]
        if not known:
            return []
        for node in {node for nodes in known for node in nodes}:
            parts = [nodes[node] for nodes in known if node in nodes]
            participants[node] += fmean(part["participants"] for part in parts)
            shared[node].append(fmean(part["shared"] for part in parts))
    total = max if any(_has_background(row) for own in flows for row in own) else sum
    return [used + total(shared[node]) for node, used in participants.items()]


def _nodes(row: Row) -> dict[str, dict[str, float]]:
    """Return the CPU time by node of a record, or of a row of the tidy table, where it is JSON text."""
    value = row.get("nodes_cpu")
    return json.loads(value) if isinstance(value, str) else value or {}


def _has_background(row: Row) -> bool:
    return (row.get("background") or "none") != "none"
