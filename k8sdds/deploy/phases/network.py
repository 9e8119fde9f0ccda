"""The network of the pods: its objects, as the network's own module describes them."""

from __future__ import annotations

from k8sdds.deploy import kube
from k8sdds.deploy.actions import Action
from k8sdds.deploy.phases.objects import changes
from k8sdds.deploy.wanted import Wanted
from k8sdds.model.profile import Node

PHASE = "network"


def plan(wanted: Wanted, node: Node) -> list[Action]:
    """Applied as soon as there is an API server; nodes that join get it at once."""
    if not node.is_control_plane:
        return []
    network = wanted.network
    objects = kube.stamped(network.manifests, network.name)
    return changes(wanted, PHASE, f"apply the network {network.name}", objects, secret=network.secrets)
