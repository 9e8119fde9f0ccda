"""The profile's labels on the nodes. Others, those that a profile named before included, stay as they are."""

from __future__ import annotations

import shlex

from k8sdds.deploy.actions import Action
from k8sdds.deploy.wanted import Wanted
from k8sdds.model.profile import Node

PHASE = "labels"


def plan(wanted: Wanted, node: Node) -> list[Action]:
    """Set from the control plane, after a node has joined."""
    if not node.is_control_plane:
        return []
    lines = []
    for one in wanted.profile.nodes:
        there = wanted.cluster.labels.get(one.name, {})
        words = [f"{key}={value}" for key, value in one.labels.items() if there.get(key) != value]
        if words:
            lines.append(f"kubectl label node {one.name} --overwrite {shlex.join(words)} >/dev/null\n")
    if not lines:
        return []
    needs = tuple((one.name, "join") for one in wanted.workers())
    return [Action(wanted.head, PHASE, f"label {len(lines)} nodes", "".join(lines), needs=needs)]
