"""Read and change what networks have in the API server: their objects, their agents, and what they wrote on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network

from k8sdds import versions
from k8sdds.kubernetes import apply, objects
from k8sdds.kubernetes.apply import Object
from k8sdds.kubernetes.client import CORE, STRATEGIC_PATCH, ApiError, KubernetesClient
from k8sdds.model.ip_families import TITLES, Subnet, address_of
from k8sdds.networks.macvlan import multus

AGENTS = (("apps/v1", "DaemonSet"),)
RBAC = "rbac.authorization.k8s.io/v1"
OTHERS = (
    ("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "ServiceAccount"),
    (RBAC, "Role"), (RBAC, "RoleBinding"), (RBAC, "ClusterRole"), (RBAC, "ClusterRoleBinding"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
)  # fmt: skip
"""Kinds of objects that networks install in addition to the DaemonSets of their agents."""
NODES = f"{CORE}/nodes"
OF_NETWORKS = f"{CORE}/namespaces/{versions.NETWORK_NAMESPACE}"
"""Path of the namespace of all networks."""


@dataclass(frozen=True)
class ClusterNode:
    """A node as the API server reports it."""

    name: str
    addresses: tuple[str, ...]
    """One address of each IP family."""
    pods: tuple[Subnet, ...]
    """Address ranges of its pods, one of each IP family."""
    annotations: tuple[str, ...] = ()
    """Names of its annotations."""
    unavailable: bool = False
    """Whether it has the condition NetworkUnavailable, which networks set."""
    is_ready: bool = True


def nodes(client: KubernetesClient) -> list[ClusterNode]:
    """Return all nodes of the cluster."""
    return [node_of(item) for item in client.get(NODES)["items"]]


def node_of(node: Object) -> ClusterNode:
    """Return the parts of a Node object that a switch uses."""
    status = node["status"]
    addresses = [entry["address"] for entry in status.get("addresses", ()) if entry["type"] == "InternalIP"]
    conditions = {item["type"]: item.get("status") for item in status.get("conditions", ())}
    ranges = node["spec"].get("podCIDRs") or [node["spec"].get("podCIDR")]
    return ClusterNode(
        name=node["metadata"]["name"],
        addresses=tuple(filter(None, (address_of(family, addresses) for family in TITLES))),
        pods=tuple(ip_network(text) for text in ranges if text),
        annotations=tuple(node["metadata"].get("annotations", {})),
        unavailable="NetworkUnavailable" in conditions,
        is_ready=conditions.get("Ready") == "True",
    )


def installed(client: KubernetesClient) -> list[Object]:
    """Return all objects of networks that k8sdds installed; their namespace is shared, so it is not included."""
    return objects.find_all(client, (*AGENTS, *OTHERS), versions.NETWORK_LABEL)


def agents_by_network(client: KubernetesClient) -> dict[str, Object]:
    """Return the installed networks by name, each with the DaemonSet of its agent."""
    return {
        agent["metadata"]["labels"][versions.NETWORK_LABEL]: agent
        for agent in _first_agents(objects.find_all(client, AGENTS, versions.NETWORK_LABEL))
    }


def _first_agents(manifests: Sequence[Object]) -> list[Object]:
    """Return the DaemonSets of the networks of pods' first interfaces."""
    return [
        each for each in manifests if each["kind"] == "DaemonSet" and each["metadata"]["name"] != multus.AGENT
    ]


def stop_agents(client: KubernetesClient, network: str, timeout_s: float) -> None:
    """Delete the agents of a network and wait for their end. They would recreate what is removed on nodes."""
    agents = objects.find_all(client, AGENTS, f"{versions.NETWORK_LABEL}={network}")
    # The DaemonSet exists until its pods have ended.
    objects.delete(client, agents, "Foreground")
    objects.await_deletion(client, agents, timeout_s)


def delete_others(client: KubernetesClient, network: str, timeout_s: float) -> None:
    """Delete the other objects of a network."""
    others = objects.find_all(client, OTHERS, f"{versions.NETWORK_LABEL}={network}")
    objects.delete(client, others)
    objects.await_deletion(client, others, timeout_s)


def clean_nodes(client: KubernetesClient, prefixes: Sequence[str]) -> None:
    """Remove what networks wrote on Node objects: annotations with these prefixes, and the condition that they set."""
    for node in nodes(client):
        own = [name for name in node.annotations if name.startswith(tuple(prefixes))]
        if own:
            client.patch(f"{NODES}/{node.name}", {"metadata": {"annotations": dict.fromkeys(own)}})
        if node.unavailable:
            condition = {"type": "NetworkUnavailable", "$patch": "delete"}
            patch = {"status": {"conditions": [condition]}}
            client.patch(f"{NODES}/{node.name}/status", patch, STRATEGIC_PATCH)


def agent_pods(client: KubernetesClient, daemonset: str) -> list[Object]:
    """Return the pods of a network's DaemonSet."""
    pods: list[Object] = client.get(f"{OF_NETWORKS}/pods")["items"]
    owner = {"kind": "DaemonSet", "name": daemonset}
    return [pod for pod in pods if owner.items() <= controller(pod).items()]


def controller(pod: Object) -> Object:
    """Return the reference to the controller that recreates a pod after its deletion; empty if it has none."""
    owners = pod["metadata"].get("ownerReferences", ())
    return next((owner for owner in owners if owner.get("controller")), {})


def is_running(pod: Object, container: str) -> bool:
    """Return whether a container of a pod runs."""
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return any(each["name"] == container and "running" in each.get("state", {}) for each in statuses)


def reasons(client: KubernetesClient, daemonset: str) -> list[str]:
    """Return why the agents of a network are not ready: waiting containers and warning events; else their logs."""
    pods = agent_pods(client, daemonset)
    lines = [line for pod in pods for line in _waiting(pod)]
    subjects = {daemonset, *(pod["metadata"]["name"] for pod in pods)}
    for event in client.get(f"{OF_NETWORKS}/events", fieldSelector="type=Warning")["items"]:
        subject = event["involvedObject"].get("name", "")
        if subject in subjects:
            lines.append(f"{subject}: {event.get('reason')}: {event.get('message', '').strip()}")
    return list(dict.fromkeys(lines))[-8:] or [line for pod in pods for line in _log(client, pod)][-12:]


def _waiting(pod: Object) -> list[str]:
    lines = []
    status, node = pod.get("status", {}), pod["spec"].get("nodeName", "no node")
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        ended = container.get("lastState", {}).get("terminated")
        state = container.get("state", {}).get("waiting") or ended
        if state and not container.get("ready"):
            message = f" {state['message']}" if state.get("message") else ""
            lines.append(f"{node}: {container['name']}: {state.get('reason', 'not ready')}{message}")
    return lines


def _log(client: KubernetesClient, pod: Object) -> list[str]:
    name, lines = pod["metadata"]["name"], []
    for container in pod["spec"]["containers"]:
        query = {"container": container["name"], "tailLines": 4}
        try:
            text = client.get_raw(f"{OF_NETWORKS}/pods/{name}/log", **query).decode(errors="replace")
        except ApiError:  # the container has not started
            continue
        lines += [f"{name}: {container['name']}: {line}" for line in text.splitlines()]
    return lines


# -- comparing objects -----------------------------------------------------------------------------------------


def agent_to_restore(before: Sequence[Object], desired: Sequence[Object]) -> Object | None:
    """Return the DaemonSet of the network that these objects install, or None if it cannot be restored.

    An interrupted switch may have left several networks, or one without its agent. The same network is restored only if
    it was whole and had other options.
    """
    old, new = network_names(before), network_names(desired)
    agents = _first_agents(before)
    if len(agents) != 1 or len(old) != 1:
        return None
    if old == new:
        existing, wanted = stamps(before), stamps(without_namespaces(desired))
        return agents[0] if existing.keys() == wanted.keys() and existing != wanted else None
    return agents[0]


def network_names(manifests: Sequence[Object]) -> set[str]:
    """Return the networks of these objects."""
    labels = (manifest["metadata"].get("labels", {}) for manifest in manifests)
    return {own[versions.NETWORK_LABEL] for own in labels if versions.NETWORK_LABEL in own}


def without_namespaces(manifests: Sequence[Object]) -> list[Object]:
    """Return the objects that remain a network's own: a namespace is shared by all."""
    return [manifest for manifest in manifests if manifest["kind"] != "Namespace"]


def stamps(manifests: Sequence[Object]) -> dict[str, str]:
    """Return the hash in each object's annotation by the object's identity; empty without annotation."""
    return {apply.identity(manifest): apply.stamp(manifest) for manifest in manifests}
