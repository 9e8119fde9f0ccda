"""Set the profile's labels and taints on the nodes, and remove those that only an earlier profile had.

Annotations of each node list the labels and the taints that deploy set. All others stay as they are. The pods of k8sdds
tolerate these taints.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from k8sdds import versions
from k8sdds.deploy import limits
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts import ClusterState
from k8sdds.deploy.phases.phase import JOIN, LABELS, TAINTS, on_control_plane, steps
from k8sdds.model.profile import Node, taint_identity


@on_control_plane
def label(state: DesiredState, node: Node) -> list[Action]:
    """Label all nodes whose labels differ, after they have joined."""
    changes = {target.name: label_changes(_cluster(state, target), target) for target in state.profile.nodes}
    # Labels and annotation change in one request: an interrupted deploy has set both or neither.
    scripts = [
        f"kubectl patch node {name} --type merge --patch {shlex.quote(json.dumps({'metadata': metadata}))}"
        " >/dev/null\n"
        for name, metadata in changes.items()
        if metadata
    ]
    if not scripts:
        return []
    needs = steps(state.workers(), JOIN)
    title, timeout_s = f"label {len(scripts)} nodes", limits.of_cluster(limits.METADATA_S, len(scripts))
    return [Action(node.name, LABELS, title, "".join(scripts), needs=needs, timeout_s=timeout_s)]


@on_control_plane
def taint(state: DesiredState, node: Node) -> list[Action]:
    """Taint all nodes whose taints differ, after they have joined."""
    scripts = {target.name: _taint_script(_cluster(state, target), target) for target in state.profile.nodes}
    names = [name for name, script in scripts.items() if script]
    if not names:
        return []
    needs = steps(state.workers(), JOIN)
    title, timeout_s = f"taint {', '.join(names)}", limits.of_cluster(limits.METADATA_S, len(names))
    return [Action(node.name, TAINTS, title, "".join(scripts.values()), needs=needs, timeout_s=timeout_s)]


def _cluster(state: DesiredState, node: Node) -> ClusterState:
    """Return the state of the cluster. A node that joins again is a new object without labels and taints."""
    return state.cluster if state.is_joined(node.name) else ClusterState()


def label_changes(cluster: ClusterState, node: Node) -> dict[str, Any]:
    """Return the metadata to merge into a node so that it has the profile's labels; empty if nothing changes."""
    current = cluster.labels.get(node.name, {})
    previous = cluster.own_labels.get(node.name, set())
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


def _taint_script(cluster: ClusterState, node: Node) -> str:
    """Return the script that sets and removes taints of a node; empty if nothing changes."""
    current, previous = cluster.taints.get(node.name, {}), cluster.own_taints.get(node.name, set())
    desired = _desired_taints(node)
    # A taint that already had this value was set by the user, so deploy never removes it.
    own = {key: taint for key, taint in desired.items() if key in previous or current.get(key) != taint}
    new = [taint for key, taint in own.items() if current.get(key) != taint]
    if not new and previous == set(own):
        return ""
    dropped = sorted((previous - set(desired)) & set(current))
    changes = [*new, *(f"{key}-" for key in dropped)]
    # An interrupted script leaves an annotation with all taints that it may have set.
    script = _annotate(node.name, sorted(previous | set(own)))
    if changes:
        script += f"kubectl taint node {node.name} --overwrite {shlex.join(changes)} >/dev/null\n"
    return script + _annotate(node.name, sorted(own))


def _desired_taints(node: Node) -> dict[str, str]:
    """Return the profile's taints, with the value that kubectl shows if none is given."""
    desired = {}
    for text in node.taints:
        key_value, _, effect = text.rpartition(":")
        key, _, value = key_value.partition("=")
        desired[taint_identity(text)] = f"{key}={value}:{effect}"
    return desired


def _annotate(node: str, own: list[str]) -> str:
    annotation = versions.NODE_TAINTS_ANNOTATION
    word = f"{annotation}={','.join(own)}" if own else f"{annotation}-"
    return f"kubectl annotate node {node} --overwrite {shlex.quote(word)} >/dev/null\n"
