"""Install the pod network, or replace it by another."""

from __future__ import annotations

from k8sdds.deploy.actions import Action, Effect, applied
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.network_switch.switch import switch
from k8sdds.deploy.phases.claim import Claim
from k8sdds.deploy.phases.images import Images
from k8sdds.deploy.phases.join import Join
from k8sdds.deploy.phases.kubernetes import Kubernetes
from k8sdds.deploy.phases.phase import ControlPlanePhase, apply_objects, steps, workloads
from k8sdds.deploy.phases.runtime import Runtime
from k8sdds.deploy.phases.tuning import Tuning
from k8sdds.deploy.runner import Runner
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node


class Network(ControlPlanePhase):
    """Apply the network as soon as the API server answers, so that joining nodes get it immediately."""

    title = "network"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan to apply objects that differ, or to replace another network."""
        network = state.network
        objects = apply.stamped(network.manifests, network.name)
        title = replacement(state)
        if not title:
            return apply_objects(
                state, self.title, f"apply the network {network.name}", objects, secret=network.secrets
            )
        # A switch replaces the network on all nodes, so all nodes must have joined before.
        needs = steps(state.workers(), Claim, Tuning, Runtime, Kubernetes, Images, Join)
        effect = Effect(objects=applied(objects), ready_workloads=workloads(objects))
        return [Action(node.name, self.title, title, "", needs=needs, effect=effect)]

    def apply(self, action: Action, state: DesiredState, runner: Runner) -> None:
        """Apply the network's objects, or switch networks as `k8sdds network switch` does."""
        if action.script:
            runner.run(action)
        else:
            switch(state.profile, state.profile.network, runner.connections)


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
