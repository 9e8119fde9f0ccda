"""Run a replicated Fast DDS discovery server, for networks without multicast."""

from __future__ import annotations

from k8sdds import versions
from k8sdds.deploy import smoke_test
from k8sdds.deploy.actions import Action, Effect
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.images import Images
from k8sdds.deploy.phases.join import Join
from k8sdds.deploy.phases.phase import ControlPlanePhase, apply_objects, delete_objects, steps
from k8sdds.discovery import server
from k8sdds.discovery.service import REPLICAS
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node, taint_identity, toleration

SERVICE = server.FASTDDS
WORKLOAD = f"statefulset/{versions.SYSTEM_NAMESPACE}/{SERVICE.ready[1]}"
STATEFUL_SET = f"StatefulSet/{versions.SYSTEM_NAMESPACE}/{SERVICE.ready[1]}"


class DiscoveryService(ControlPlanePhase):
    """Apply the service when all nodes have its image; delete it if the profile does not request it."""

    title = "discovery service"

    def plan(self, state: DesiredState, node: Node) -> list[Action]:
        """Plan to apply objects that differ, to wait for servers that are not ready, or to delete all."""
        desired = objects(state)
        if not state.profile.discovery_service:
            existing = [
                manifest
                for manifest in desired
                if manifest["kind"] != "Namespace" and apply.identity(manifest) in state.cluster.objects
            ]
            return delete_objects(state, self.title, "delete the discovery service", existing)
        needs = steps(state.workers(), Join, Images)
        actions = apply_objects(
            state, self.title, f"run {SERVICE.title}", desired, needs=needs, wait_for=(WORKLOAD,)
        )
        if not actions and STATEFUL_SET in state.cluster.not_ready:
            actions = [
                Action(
                    node.name, self.title, f"wait for {SERVICE.title}", apply.wait_script((WORKLOAD,)),
                    needs=needs, timeout_s=240, effect=Effect(ready_workloads=(STATEFUL_SET,)),
                )
            ]  # fmt: skip
        return actions


def objects(state: DesiredState) -> list[apply.Object]:
    """Return the objects of the service and their namespace, stamped."""
    workers = sum("worker" in node.roles for node in state.profile.nodes)
    taints = {taint_identity(taint) for node in state.profile.nodes for taint in node.taints}
    tolerations = [toleration(taint) for taint in sorted(taints)]
    service = SERVICE.objects(
        versions.SYSTEM_NAMESPACE, max(1, min(REPLICAS, workers)), tolerations=tolerations
    )
    return apply.stamped([smoke_test.namespace(), *service])
