"""The network of the pods: its objects, as the network's own module describes them."""

from __future__ import annotations

from k8sdds import versions
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.objects import changes
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node

PHASE = "network"


def replaces(wanted: DesiredState) -> str:
    """What replaces what, where another network is there, or this one with other options; else empty.

    That is more than to apply objects: switching.switch does it.
    """
    name, cluster = wanted.network.name, wanted.cluster
    others = sorted(cluster.networks - {name})
    if others:
        return f"replace {' and '.join(others)} by {name}, and make all pods again"
    for one in apply.stamped(wanted.network.manifests, name):
        there, wished = (
            cluster.objects.get(apply.identity(one)),
            one["metadata"]["annotations"][versions.SHA256_ANNOTATION],
        )
        if cluster.networks and there not in (None, wished):
            return f"replace {name} by itself with other options, and make all pods again"
    return ""


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """Applied as soon as there is an API server; nodes that join get it at once."""
    if not node.is_control_plane:
        return []
    network = wanted.network
    title = replaces(wanted)
    if title:
        return [Action(node.name, PHASE, title, "")]
    objects = apply.stamped(network.manifests, network.name)
    return changes(wanted, PHASE, f"apply the network {network.name}", objects, secret=network.secrets)
