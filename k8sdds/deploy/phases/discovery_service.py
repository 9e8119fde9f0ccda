"""A discovery service for networks without multicast: Fast DDS's discovery server, replicated."""

from __future__ import annotations

from k8sdds import versions
from k8sdds.deploy import smoke_test
from k8sdds.deploy.actions import Action
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.objects import changes
from k8sdds.discovery import server
from k8sdds.discovery.service import REPLICAS
from k8sdds.kubernetes import apply
from k8sdds.model.profile import Node

PHASE = "discovery service"
SERVICE = server.FASTDDS


def objects(wanted: DesiredState) -> list[apply.Object]:
    """Its objects and their namespace, stamped."""
    places = sum("worker" in node.roles for node in wanted.profile.nodes)
    made = SERVICE.objects(versions.SYSTEM_NAMESPACE, max(1, min(REPLICAS, places)))
    return apply.stamped([smoke_test.namespace(), *made])


def plan(wanted: DesiredState, node: Node) -> list[Action]:
    """Applied when all nodes have its image; removed where it is not wanted any more."""
    if not node.is_control_plane:
        return []
    kind, name = SERVICE.ready
    there = wanted.cluster.objects
    if not wanted.profile.discovery_service:
        left = [one for one in objects(wanted) if one["kind"] != "Namespace" and apply.identity(one) in there]
        lines = "".join(
            f"kubectl delete {one['kind'].lower()} {one['metadata']['name']} --namespace {versions.SYSTEM_NAMESPACE}"
            " --ignore-not-found >/dev/null\n"
            for one in left
        )
        return [Action(node.name, PHASE, "remove the discovery service", lines)] if left else []
    needs = tuple((one.name, phase) for one in wanted.workers() for phase in ("join", "images"))
    ready = apply.wait_script((f"{kind}/{versions.SYSTEM_NAMESPACE}/{name}",))
    made = changes(wanted, PHASE, f"run {SERVICE.title}", objects(wanted), needs=needs, then=ready)
    if not made and f"StatefulSet/{versions.SYSTEM_NAMESPACE}/{name}" in wanted.cluster.not_ready:
        return [Action(node.name, PHASE, f"wait for {SERVICE.title}", ready, needs=needs, timeout_s=240)]
    return made
