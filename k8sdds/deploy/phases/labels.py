"""Set the profile's labels on the nodes, and remove those that only an earlier profile had.

An annotation of each node lists the labels that deploy set. All other labels stay as they are.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from k8sdds import versions
from k8sdds.deploy.actions import Action, Effect
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts.cluster_state import ClusterState
from k8sdds.deploy.phases.join import Join
from k8sdds.deploy.phases.phase import ControlPlanePhase, steps
from k8sdds.model.profile import Node


class Labels(ControlPlanePhase):
    """Label all nodes from the control plane, after they have joined."""

    title = "labels"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan one action that patches every node whose labels differ."""
        metadata = {}
        for target in state.profile.nodes:
            # A node that joins again is a new object without labels.
            cluster = state.cluster if state.is_joined(target.name) else ClusterState()
            changes = label_changes(cluster, target)
            if changes:
                metadata[target.name] = changes
        if not metadata:
            return []
        # Labels and annotation change in one request: an interrupted deploy has set both or neither.
        script = "".join(
            f"kubectl patch node {name} --type merge --patch"
            f" {shlex.quote(json.dumps({'metadata': changes}))} >/dev/null\n"
            for name, changes in metadata.items()
        )
        effect = Effect(
            node_labels={name: changes["labels"] for name, changes in metadata.items()},
            own_labels={name: _own_labels(changes) for name, changes in metadata.items()},
        )
        needs = steps(state.workers(), Join)
        return [
            Action(node.name, self.title, f"label {len(metadata)} nodes", script, needs=needs, effect=effect)
        ]


def label_changes(cluster: ClusterState, node: Node) -> dict[str, Any]:
    """Return the metadata to merge into a node so that it has the profile's labels; empty: no changes."""
    current = cluster.labels.get(node.name, {})
    previous = cluster.own_labels.get(node.name, frozenset())
    new = {key: value for key, value in node.labels.items() if current.get(key) != value}
    dropped = previous - set(node.labels)
    # A label that already had this value was set by the user, so deploy never removes it.
    own = (previous | set(new)) & set(node.labels)
    if not new and own == previous:
        return {}
    labels: dict[str, str | None] = {**new, **dict.fromkeys(sorted(dropped & set(current)))}
    return {
        "labels": labels,
        "annotations": {versions.NODE_LABELS_ANNOTATION: ",".join(sorted(own)) or None},
    }


def _own_labels(changes: dict[str, Any]) -> frozenset[str]:
    names = changes["annotations"][versions.NODE_LABELS_ANNOTATION] or ""
    return frozenset(names.split(",")) - {""}
