"""Whether a network stands: what each node still lacks of it, and which pods are not on it yet. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from k8sdds.deploy.network_switch.footprint import NodeState
from k8sdds.kubernetes.kubectl import ClusterNode
from k8sdds.networks.cluster_install import ReadyCondition

Object = dict[str, Any]

TOKEN = "kube-api-access-"
"""Volumes of service accounts' tokens begin so."""


def lacks(
    present: ReadyCondition, node: ClusterNode, seen: NodeState, nodes: Sequence[ClusterNode]
) -> list[str]:
    """What is not there yet on a node, in words."""
    found = []
    links = {link["ifname"] for link in seen.links}
    found += [f"the link {name}" for name in present.links if name not in links]
    for peer in nodes:
        if peer.name == node.name:
            continue
        if present.routes_to_peers and not _routed(seen, peer.pods):
            found.append(f"a route to the pods of {peer.name} ({peer.pods})")
        if present.xfrm_to_peers:
            if not any(policy.destination == str(peer.pods) for policy in seen.policies):
                found.append(f"an IPsec policy for the pods of {peer.name} ({peer.pods})")
            if not any(state.destination == peer.address for state in seen.states):
                found.append(f"an IPsec state towards {peer.name} ({peer.address}): no keys are agreed yet")
    return found


def _routed(seen: NodeState, pods: IPv4Network | None) -> bool:
    """Whether some route that is not the default one leads to all these pods."""
    for route in seen.routes:
        if route.get("type", "unicast") != "unicast" or route["dst"] == "default" or ":" in route["dst"]:
            continue
        if pods is not None and pods.subnet_of(IPv4Network(route["dst"], strict=False)):
            return True
    return False


def has_network_of_its_own(pod: Object) -> bool:
    """Whether a pod runs, or is to run, on the pods' network."""
    if pod["spec"].get("hostNetwork") or pod["metadata"].get("deletionTimestamp"):
        return False
    return pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def older(pods: Sequence[Object], since: str) -> list[Object]:
    """Pods whose network was made before this time (as the API server writes it), so by another network."""
    found = []
    for pod in pods:
        made = _networked_at(pod)
        if has_network_of_its_own(pod) and made is not None and made < since:
            found.append(pod)
    return found


def _networked_at(pod: Object) -> str | None:
    """When the pod got its network; None: not yet."""
    status = pod.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodReadyToStartContainers":
            at: str = condition["lastTransitionTime"]
            return at if condition["status"] == "True" else None
    # Kubernetes before 1.29: the time at which the kubelet began with it.
    return status.get("startTime") if status.get("podIP") else None


def without_network(pods: Sequence[Object], pod_cidr: IPv4Network) -> list[str]:
    """Pods that have no address of the pods' range yet, as NAMESPACE/NAME: what is wrong."""
    found = []
    for pod in pods:
        if has_network_of_its_own(pod) and pod["spec"].get("nodeName"):
            address = pod.get("status", {}).get("podIP")
            if not address or IPv4Address(address) not in pod_cidr:
                name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
                found.append(f"{name} on {pod['spec']['nodeName']} has {address or 'no address'}")
    return found


def by_itself(pod: Object) -> bool:
    """Whether nobody would make the pod again."""
    owners = pod["metadata"].get("ownerReferences", ())
    return not any(owner.get("controller") for owner in owners)


def again(pod: Object) -> Object:
    """A pod as it was asked for, to be made once more on its node."""
    kept: Mapping[str, Any] = pod["metadata"]
    meta = {key: kept[key] for key in ("name", "namespace", "labels", "annotations") if kept.get(key)}
    spec = copy.deepcopy(pod["spec"])
    # The account's token is mounted by the API server, again.
    spec["volumes"] = [one for one in spec.get("volumes", ()) if not one["name"].startswith(TOKEN)]
    for part in (*spec.get("initContainers", ()), *spec["containers"]):
        mounts = part.get("volumeMounts", ())
        part["volumeMounts"] = [one for one in mounts if not one["name"].startswith(TOKEN)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
