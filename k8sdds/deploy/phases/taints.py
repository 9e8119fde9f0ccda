"""Set the profile's taints on the nodes, and remove those that only an earlier profile had.

An annotation of each node lists the taints that deploy set; the pods of k8sdds tolerate these. All other taints
stay as they are.
"""

from __future__ import annotations

import shlex

from k8sdds import versions
from k8sdds.deploy.actions import Action, Effect
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.facts.cluster_state import ClusterState
from k8sdds.deploy.phases.join import Join
from k8sdds.deploy.phases.phase import ControlPlanePhase, steps
from k8sdds.model.profile import Node, taint_identity


class Taints(ControlPlanePhase):
    """Taint all nodes from the control plane, after they have joined."""

    title = "taints"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan one action that changes every node whose taints differ."""
        scripts, own_taints = [], {}
        for target in state.profile.nodes:
            # A node that joins again is a new object without taints.
            cluster = state.cluster if state.is_joined(target.name) else ClusterState()
            script = _script(cluster, target)
            if script:
                scripts.append(script)
                own_taints[target.name] = _own(cluster, target)
        if not scripts:
            return []
        return [
            Action(
                node.name, self.title, f"taint {', '.join(own_taints)}", "".join(scripts),
                needs=steps(state.workers(), Join), effect=Effect(own_taints=own_taints),
            )
        ]  # fmt: skip


def _desired(node: Node) -> dict[str, str]:
    """Return the profile's taints, with the value that kubectl shows if none is given."""
    desired = {}
    for taint in node.taints:
        key_value, _, effect = taint.rpartition(":")
        key, _, value = key_value.partition("=")
        desired[taint_identity(taint)] = f"{key}={value}:{effect}"
    return desired


def _own(cluster: ClusterState, node: Node) -> dict[str, str]:
    """Return the taints that deploy has set when the node has the profile's taints.

    A taint that already had this value was set by the user, so deploy never removes it.
    """
    current, previous = cluster.taints.get(node.name, {}), cluster.own_taints.get(node.name, frozenset())
    desired = _desired(node)
    return {key: taint for key, taint in desired.items() if key in previous or current.get(key) != taint}


def _script(cluster: ClusterState, node: Node) -> str:
    """Return the script that sets and removes taints of a node; empty: no changes."""
    current, previous = cluster.taints.get(node.name, {}), cluster.own_taints.get(node.name, frozenset())
    own = _own(cluster, node)
    new = [taint for key, taint in own.items() if current.get(key) != taint]
    dropped = sorted((previous - set(_desired(node))) & set(current))
    if not new and previous == set(own):
        return ""
    changes = [*new, *(f"{key}-" for key in dropped)]
    # An interrupted script leaves an annotation with all taints that it may have set.
    script = _annotate(node.name, sorted(previous | set(own)))
    if changes:
        words = " ".join(shlex.quote(change) for change in changes)
        script += f"kubectl taint node {node.name} --overwrite {words} >/dev/null\n"
    return script + _annotate(node.name, sorted(own))


def _annotate(node: str, own: list[str]) -> str:
    annotation = versions.NODE_TAINTS_ANNOTATION
    word = f"{annotation}={','.join(own)}" if own else f"{annotation}-"
    return f"kubectl annotate node {node} --overwrite {shlex.quote(word)} >/dev/null\n"
