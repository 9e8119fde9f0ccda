"""The profile's labels on the nodes. Those that an earlier profile set and this one does not are taken off.

Which labels deploy has set stands in an annotation of the node; all others are somebody else's, and stay.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from k8sdds import versions
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts.cluster_state import ClusterState
from k8sdds.model.profile import Node

PHASE = "labels"


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """Set from the control plane, after a node has joined."""
    if not node.is_control_plane:
        return []
    # A node that joins again is a new one.
    patches = {
        one.name: patch(wanted.cluster if wanted.joined(one.name) else ClusterState(), one)
        for one in wanted.profile.nodes
    }
    # Labels and the record of them in one request: whoever is interrupted has set both or neither.
    lines = [
        f"kubectl patch node {name} --type merge --patch {shlex.quote(json.dumps(one))} >/dev/null\n"
        for name, one in patches.items()
        if one
    ]
    if not lines:
        return []
    needs = tuple((one.name, "join") for one in wanted.workers())
    return [Action(wanted.head, PHASE, f"label {len(lines)} nodes", "".join(lines), needs=needs)]


def patch(cluster: ClusterState, node: Node) -> dict[str, Any]:
    """What makes a node's labels as the profile has them, as a merge patch; empty: nothing is to be done."""
    there, own = cluster.labels.get(node.name, {}), cluster.own_labels.get(node.name, frozenset())
    new = {key: value for key, value in node.labels.items() if there.get(key) != value}
    gone = own - set(node.labels)
    # A label that was there with this value before is not ours to take off one day.
    ours = (own | set(new)) & set(node.labels)
    if not new and ours == own:
        return {}
    changes: dict[str, str | None] = {**new, **dict.fromkeys(sorted(gone & set(there)))}
    record = ",".join(sorted(ours)) or None
    return {"metadata": {"labels": changes, "annotations": {versions.NODE_LABELS_ANNOTATION: record}}}
