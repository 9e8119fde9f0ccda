"""Detect the installed network and read which software it runs: agents, CNI plugins, kube-proxy, with their digests.

What this user may not read is missing: DaemonSets name the images of agents, of the init containers that install CNI
plugins, and of kube-proxy. Their pods show the digests that run. Without access to pods, the nodes list the digests of
their images.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, get_args

from k8sdds import versions
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.services import IPTABLES, ProxyMode
from k8sdds.networks import detection
from k8sdds.networks.cluster_install import Manifest, containers
from k8sdds.networks.detection import DetectedNetwork
from k8sdds.networks.plugin import Signs, is_running
from k8sdds.system import reading, yaml_text
from k8sdds.system.errors import NetworkChanged, PrerequisiteError
from k8sdds.system.parallel import in_threads
from k8sdds.testbeds.cluster import permissions
from k8sdds.testbeds.cluster.nodes import NodeInfo

if TYPE_CHECKING:
    from k8sdds.testbeds.cluster.network_switch import NetworkSwitch

APPS = "/apis/apps/v1"
PROXY_CONFIG = f"{versions.KUBE_SYSTEM_NAMESPACE}/kube-proxy"
"""ConfigMap of kube-proxy, as kubeadm creates it."""
KUBE_PROXY = "kube-proxy"
NOT_READABLE = "not readable: this user may not list DaemonSets"
NO_AGENT = "no agent that k8sdds knows runs on the cluster"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def detect(client: KubernetesClient, nodes: Sequence[NodeInfo]) -> DetectedNetwork:
    """Return the installed network. `nodes`: empty if this user may not list them."""
    listed = daemonsets(client)
    signs = Signs(
        annotations={key: value for node in nodes for key, value in node.annotations.items()},
        labels={key: value for node in nodes for key, value in node.labels.items()},
        reasons=frozenset(node.network_reason for node in nodes),
        images=frozenset(image for node in nodes for image in node.images),
        # Of several with one name, the one whose pods are ready.
        daemonsets=None
        if listed is None
        else {item["metadata"]["name"]: item for item in sorted(listed, key=is_running)},
    )
    signs = replace(signs, config_maps=_config_maps(client, detection.config_maps(signs)))
    return detection.detect(signs)


def proxy_mode(client: KubernetesClient) -> ProxyMode | None:
    """Return the mode of kube-proxy; None if unknown, because another program runs or this user may not read it."""
    found = _config_maps(client, [PROXY_CONFIG]).get(PROXY_CONFIG, {})
    try:
        config = yaml_text.plain(yaml_text.load(found.get("config.conf", ""), PROXY_CONFIG))
    except reading.UnreadableError:
        return None
    # Without a mode, kube-proxy uses iptables on Linux.
    mode = (config.get("mode") or IPTABLES) if isinstance(config, dict) else None
    return next((known for known in get_args(ProxyMode) if known == mode), None)


def cpu_managers(client: KubernetesClient, nodes: Sequence[str]) -> dict[str, str]:
    """Return the policy of the CPU manager of each node's kubelet, such as `static`, if this user may read it."""
    if not client.is_allowed("get", "", "nodes/proxy"):
        return {}

    def policy(node: str) -> str:
        # The API server answers 502 or 503 if it does not reach the kubelet, which must not stop a campaign.
        found = permissions.readable_at_once(client, f"{permissions.NODES}/{node}/proxy/configz") or {}
        return str(found.get("kubeletconfig", {}).get("cpuManagerPolicy") or "")

    policies = dict(zip(nodes, in_threads(policy, nodes), strict=True))
    return {node: policy for node, policy in policies.items() if policy}


def daemonsets(client: KubernetesClient) -> list[Manifest] | None:
    """Return the DaemonSets of the cluster, or only those of kube-system; None if this user may not list them."""
    for scope in ("", f"/namespaces/{versions.KUBE_SYSTEM_NAMESPACE}"):
        listed = permissions.readable(client, f"{APPS}{scope}/daemonsets")
        if listed is not None:
            return list(listed["items"])
    return None


def _config_maps(client: KubernetesClient, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """Return the ConfigMaps with these names (NAMESPACE/NAME) that exist and that this user may read."""
    paths = {name: "{}/configmaps/{}".format(*name.split("/", 1)) for name in names}
    found = {
        name: permissions.readable(client, f"{permissions.NAMESPACES}/{path}") for name, path in paths.items()
    }
    return {name: config_map.get("data") or {} for name, config_map in found.items() if config_map}


@dataclass(frozen=True)
class InstalledSoftware:
    """What runs the network of a cluster."""

    agents: Mapping[str, str] | None = None
    """NAMESPACE/NAME of each DaemonSet to its UID and generation, which change with it; None if not readable."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Component, such as `k8sdds-network/flannel flanneld`, to its images with their digests."""
    networks: tuple[str, ...] = ()
    """Names of the networks of which k8sdds installed the agents."""

    def describe(self) -> dict[str, str]:
        """Return the components with their images, or why they are unknown."""
        if self.agents is None:
            return {"agents": NOT_READABLE}
        return dict(self.images) if self.agents else {"agents": NO_AGENT, **self.images}

    def change(self, other: InstalledSoftware) -> str:
        """Describe how the network of the other reading differs; empty if it does not, or is not readable."""
        if self.agents is None or other.agents is None or self.agents == other.agents:
            return ""
        before, after = (", ".join(each.networks or each.agents or ()) for each in (self, other))
        if not after:
            return f"{before} was removed"
        if before != after:
            return f"{before or 'no network'} was replaced by {after}"
        changes = {
            "removed": self.agents.keys() - other.agents.keys(),
            "added": other.agents.keys() - self.agents.keys(),
            "installed again or updated": {
                name for name, version in self.agents.items() if other.agents.get(name, version) != version
            },
        }
        return "; ".join(f"{', '.join(sorted(names))} was {what}" for what, names in changes.items() if names)


class InstalledNetwork:
    """The pod network that a campaign measures: its software as read for a block, and whether it is still the same.

    `name`, the network that is installed at the start, counts if its agents do not name one.
    """

    def __init__(
        self, client: KubernetesClient, nodes: Sequence[NodeInfo], switch: NetworkSwitch | None, name: str
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._switch = switch
        self._name = name
        self._software = InstalledSoftware()
        self._cni_plugins: dict[str, str] = {}

    def forget(self) -> None:
        """Expect another network from now on: a switch of this campaign that fails is not a change by others."""
        self._software = InstalledSoftware()

    def read(self) -> None:
        """Read the software of the network, with which `require_unchanged` compares from now on."""
        before, self._software = self._software, read(self._client, self._nodes)
        if self._switch is not None and before.agents != self._software.agents:
            self._cni_plugins = self._switch.cni_plugins()

    def facts(self) -> dict[str, Any]:
        """Return the name and the software of the network."""
        return {
            "installed_network": ", ".join(self._software.networks) or self._name,
            "network_software": self._software.describe() | self._cni_plugins,
        }

    def require_unchanged(self) -> None:
        """Raise NetworkChanged unless the network is the one that was read last."""
        if self._software.agents is None:
            return  # nothing was read yet, or this user may not see the agents
        try:
            now = read(self._client, (), with_images=False)
        except PrerequisiteError:
            return  # the API server does not answer; the check is repeated after the next attempt
        if change := self._software.change(now):
            remedy = "install the network again"
            if self._switch is not None:
                self._switch.abandon()
                remedy = "change the cluster when no campaign runs"
            raise NetworkChanged(
                f"the network of the cluster was changed while the campaign ran: {change}", remedy
            )


def read(client: KubernetesClient, nodes: Sequence[NodeInfo], with_images: bool = True) -> InstalledSoftware:
    """Return the software of the network. `nodes`: empty if this user may not list them."""
    listed = daemonsets(client)
    if listed is None:
        return InstalledSoftware()
    agents = [manifest for manifest in listed if detection.is_agent(manifest)]
    components = [*agents, *(manifest for manifest in listed if manifest["metadata"]["name"] == KUBE_PROXY)]
    return InstalledSoftware(
        {
            _name(manifest): f"{manifest['metadata']['uid']} {manifest['metadata'].get('generation')}"
            for manifest in agents
        },
        _images(client, nodes, components) if with_images else {},
        tuple(sorted({detection.own_name(manifest) for manifest in agents} - {""})),
    )


def _name(manifest: Manifest) -> str:
    return f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


def _images(
    client: KubernetesClient, nodes: Sequence[NodeInfo], components: Sequence[Manifest]
) -> dict[str, str]:
    namespaces = dict.fromkeys(manifest["metadata"]["namespace"] for manifest in components)
    pods = [pod for namespace in namespaces for pod in permissions.readable_pods(client, namespace)]
    found = {}
    for manifest in components:
        uid = manifest["metadata"]["uid"]
        own = [
            pod
            for pod in pods
            if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", ()))
        ]
        for container in containers(manifest):
            name, image = container["name"], container.get("image", "")
            texts = dict.fromkeys(_running(own, name, image)) or [with_digest(image, _listed(nodes, image))]
            found[f"{_name(manifest)} {name}"] = " and ".join(texts)
    return found


def _running(pods: Iterable[Manifest], container: str, image: str) -> Iterator[str]:
    """Yield a container's image in each pod that reports what runs.

    The runtime has only its own ID of an image that was imported, not pulled. This is not the digest in a registry.
    """
    for pod in pods:
        status: Mapping[str, Any] = pod.get("status", {})
        for entry in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
            image_id = str(entry.get("imageID"))
            if entry.get("name") != container or not (digest := _DIGEST.search(image_id)):
                continue
            if "@" in image_id:
                yield with_digest(image, (digest.group(),))
            else:
                yield f"{image.partition('@')[0]} (image ID {digest.group()})"


def _listed(nodes: Iterable[NodeInfo], image: str) -> tuple[str, ...]:
    """Return the digests of an image that the nodes list under the same name."""
    repository = image.partition("@")[0].rpartition(":")[0]
    found = (
        match.group()
        for node in nodes
        for names in node.image_names
        if image in names
        for name in names
        if name.startswith(f"{repository}@") and (match := _DIGEST.search(name))
    )
    return tuple(dict.fromkeys(found))


def with_digest(image: str, digests: Sequence[str]) -> str:
    """Return an image with its digests, such as `flannel:v0.28.4@sha256:…`."""
    name, _, own = image.partition("@")
    known = digests or ([own] if own else [])
    return f"{name}@{','.join(known)}" if known else f"{name} (digest not readable)"
