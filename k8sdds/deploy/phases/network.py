"""Install the pod network, or replace it by another."""

from __future__ import annotations

from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.phase import (
    CLAIM,
    IMAGES,
    JOIN,
    KUBERNETES,
    NETWORK,
    RUNTIME,
    TUNING,
    apply_objects,
    on_control_plane,
    steps,
)
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node


@on_control_plane
def network(state: DesiredState, node: Node) -> list[Action]:
    """Apply the network as soon as the API server answers, so that joining nodes get it at once; or replace it."""
    desired = state.network
    title = replacement(state)
    if not title:
        objects = apply.stamped(desired.manifests, desired.name)
        return apply_objects(state, NETWORK, f"apply the network {desired.name}", objects)
    # A switch replaces the network on all nodes, so all nodes must have joined before.
    needs = steps(state.workers(), CLAIM, TUNING, RUNTIME, KUBERNETES, IMAGES, JOIN)
    return [Action(node.name, NETWORK, title, "", needs=needs)]


def is_switch(action: Action) -> bool:
    """Return whether an action has no script because it is applied as `k8sdds network switch` does."""
    return action.phase == NETWORK and not action.script


def replacement(state: DesiredState) -> str:
    """Return the title of the network switch if another network or other options are installed; else ""."""
    name, cluster = state.network.name, state.cluster
    others = sorted(cluster.networks - {name})
    if others:
        return f"replace {' and '.join(others)} by {name}, and recreate all pods"
    if cluster.networks:
        for manifest in apply.stamped(state.network.manifests, name):
            if cluster.objects.get(apply.identity(manifest)) not in (None, apply.stamp(manifest)):
                return f"install {name} again with other options, and recreate all pods"
    return ""
