"""Decide whether a network is ready on a node, and which pods must still join it. Pure functions."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network
from typing import Any

from k8sdds.deploy.network_switch.cluster_objects import ClusterNode, controller
from k8sdds.deploy.network_switch.node_state import NodeState
from k8sdds.kubernetes import objects
from k8sdds.kubernetes.apply import Object
from k8sdds.model.ip_families import Subnet, is_inside
from k8sdds.networks.cluster_install import AgentConnections, ReadyCondition
from k8sdds.versions import CAMPAIGN_LABEL, KUBE_SYSTEM_NAMESPACE

TOKEN_VOLUME = "kube-api-access-"
"""Prefix of volumes with service account tokens."""


def missing(
    condition: ReadyCondition, node: ClusterNode, state: NodeState, nodes: Sequence[ClusterNode]
) -> list[str]:
    """Return a message for each part of a network that a node does not have yet."""
    messages = []
    links = [link["ifname"] for link in state.links]
    messages += [
        f"link {pattern}"
        for pattern in condition.links
        if not any(fnmatchcase(name, pattern) for name in links)
    ]
    for peer in nodes:
        if peer.name == node.name:
            continue
        pods, addresses = " and ".join(map(str, peer.pods)) or "no range", " or ".join(peer.addresses)
        if condition.routes_to_peers and not (
            peer.pods and all(_has_route(state, each) for each in peer.pods)
        ):
            messages.append(f"route to the pods of {peer.name} ({pods})")
        port = condition.sessions_to_peers
        if port is not None and not any((address, port) in state.sessions for address in peer.addresses):
            messages.append(f"session with {peer.name} ({addresses}, TCP port {port})")
        if condition.xfrm_to_peers:
            destinations = {policy.destination for policy in state.xfrm_policies}
            if not destinations & set(map(str, peer.pods)):
                messages.append(f"IPsec policy for the pods of {peer.name} ({pods})")
            if not any(sa.destination in peer.addresses for sa in state.xfrm_states):
                messages.append(
                    f"IPsec state for {peer.name} ({addresses}): the key exchange is not complete"
                )
    return messages


def missing_connections(expected: AgentConnections, output: str, peers: int) -> list[str]:
    """Return a message if an agent, which printed `output` about its peers, is not connected to all as expected."""
    lines = [line for line in output.splitlines() if line and not re.search(expected.ignored, line)]
    other = [line for line in lines if not re.search(expected.expected, line)]
    if len(lines) - len(other) >= peers and not other:
        return []
    shown = "; ".join(" ".join(line.split()) for line in other) or "no other connections"
    return [f"{len(lines) - len(other)} of {peers} connections match {expected.expected!r}: {shown}"]


def _has_route(state: NodeState, pods: Subnet) -> bool:
    """Return whether a route other than the default route leads to all these pods."""
    return any(
        route["dst"] != "default" and is_inside(pods, ip_network(route["dst"], strict=False))
        for route in state.routes
        if route.get("type", "unicast") == "unicast"
    )


def uses_pod_network(pod: Object) -> bool:
    """Return whether a pod runs, or will run, on the pod network."""
    if pod["spec"].get("hostNetwork") or pod["metadata"].get("deletionTimestamp"):
        return False
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def pods_of_old_network(pods: Sequence[Object], installed_at: str) -> list[Object]:
    """Return the pods that joined a network before `installed_at`, a timestamp of the API server."""
    old = []
    for pod in pods:
        joined_at = _joined_network_at(pod)
        if uses_pod_network(pod) and joined_at is not None and joined_at < installed_at:
            old.append(pod)
    return old


def _joined_network_at(pod: Object) -> str | None:
    """Return when the pod joined its network; None if it has not yet."""
    if joined := objects.condition(pod, "PodReadyToStartContainers"):
        joined_at: str = joined["lastTransitionTime"]
        return joined_at if joined["status"] == "True" else None
    status = pod.get("status", {})
    # Kubernetes before 1.29 does not have this condition: use the time at which the kubelet accepted the pod.
    return status.get("startTime") if status.get("podIP") else None


def pods_without_address(pods: Sequence[Object], pod_cidrs: Sequence[Subnet]) -> list[str]:
    """Return a message for each scheduled pod that does not have an address in each range of pods."""
    messages = []
    for pod in pods:
        if uses_pod_network(pod) and pod["spec"].get("nodeName"):
            status = pod.get("status", {})
            addresses = [entry["ip"] for entry in status.get("podIPs", ())] or [status.get("podIP")]
            addresses = [address for address in addresses if address]
            if not all(any(ip_address(address) in subnet for address in addresses) for subnet in pod_cidrs):
                name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                found = " and ".join(addresses) or "no address"
                messages.append(f"{name} on {pod['spec']['nodeName']} has {found}")
    return messages


def is_system_pod(pod: Object) -> bool:
    """Return whether a pod in kube-system belongs to a controller that replaces it as soon as it is deleted."""
    is_replaced = controller(pod).get("kind") == "ReplicaSet"
    return is_replaced and pod["metadata"]["namespace"] == KUBE_SYSTEM_NAMESPACE


def missing_replacements(deleted: Sequence[Object], pods: Sequence[Object]) -> list[str]:
    """Return a message for each controller of deleted pods that has not created as many, or has none that is ready.

    One ready pod is sufficient, as for a Deployment with the condition Available: each may need several probes.
    """
    old = {pod["metadata"]["uid"] for pod in deleted}
    new = [
        pod for pod in pods
        if pod["metadata"]["uid"] not in old and not pod["metadata"].get("deletionTimestamp")
    ]  # fmt: skip
    created = Counter(controller(pod).get("uid") for pod in new)
    ready = {controller(pod).get("uid") for pod in new if _is_ready(pod)}
    names = {
        controller(pod)["uid"]: f"{pod['metadata']['namespace']}/{controller(pod)['name']}" for pod in deleted
    }
    return [
        f"{names[uid]}: {created[uid]} of {count} pods recreated, {'some' if uid in ready else 'none'} ready"
        for uid, count in Counter(controller(pod)["uid"] for pod in deleted).items()
        if created[uid] < count or uid not in ready
    ]


def _is_ready(pod: Object) -> bool:
    return objects.condition(pod, "Ready").get("status") == "True"


def is_campaign_pod(pod: Object) -> bool:
    """Return whether the pod belongs to a campaign, which stops or creates it itself."""
    return CAMPAIGN_LABEL in pod["metadata"].get("labels", {})


def recreation_manifest(pod: Object) -> Object:
    """Return a manifest that creates the pod again, on the same node."""
    metadata: Mapping[str, Any] = pod["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations") if metadata.get(key)}
    spec = copy.deepcopy(pod["spec"])
    # The API server adds the token volume again.
    spec["volumes"] = [
        volume for volume in spec.get("volumes", ()) if not volume["name"].startswith(TOKEN_VOLUME)
    ]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        mounts = container.get("volumeMounts", ())
        container["volumeMounts"] = [mount for mount in mounts if not mount["name"].startswith(TOKEN_VOLUME)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": kept, "spec": spec}
