"""Describe how a network is installed on a cluster: options, objects, footprint, ready condition. Pure data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from k8sdds.model.ip_families import IpFamily, Subnet

Manifest = dict[str, Any]
"""One Kubernetes object."""


@dataclass(frozen=True)
class InstallOptions:
    """What a profile configures for its network."""

    pod_cidrs: tuple[Subnet, ...]
    """Addresses of pods: one range for each IP family, the first family first."""
    service_cidrs: tuple[Subnet, ...]
    mtu_bytes: int | None = None
    """MTU of the pods' interfaces; None leaves the choice to the plugin."""
    interface: str | None = None
    """Interface between the nodes; None selects that of the default route."""
    password: str = ""
    cni_plugins_installed: bool = False
    """Whether the nodes already have the standard CNI plugins, from a bundle."""

    @property
    def pods_by_family(self) -> dict[IpFamily, Subnet]:
        """Addresses of pods by IP family."""
        return {("ipv6" if subnet.version == 6 else "ipv4"): subnet for subnet in self.pod_cidrs}

    @property
    def pod_cidr(self) -> Subnet:
        """Addresses of pods in the first family, for networks with one."""
        return self.pod_cidrs[0]


@dataclass(frozen=True)
class NodeFeature:
    """A kernel feature that every node of a cluster needs, and how to provide it."""

    name: str
    """Its name in the facts of a machine (k8sdds/deploy/facts/probe.py)."""
    remedy: str
    """Instruction for a machine whose kernel does not have it."""


BRIDGE_FEATURE = NodeFeature("bridge", "install a kernel with the module bridge")
IPIP_FEATURE = NodeFeature("ipip", "install a kernel with the module ipip, or use another network")
MACVLAN_FEATURE = NodeFeature("macvlan", "install a kernel with the module macvlan, or use another network")
VXLAN_FEATURE = NodeFeature(
    "vxlan",
    "Ubuntu on a Raspberry Pi: apt install linux-modules-extra-raspi; or use network: flannel-hostgw",
)
IP_SET_FEATURES = (
    NodeFeature("ip_set", "install a kernel with the module ip_set, or use another network"),
    NodeFeature("xt_set", "install a kernel with the module xt_set, or use another network"),
)
ESP_FEATURE = NodeFeature(
    "esp", "Raspberry Pi: install a 64-bit system and its modules esp4 and xfrm_user; or use another network"
)


@dataclass(frozen=True)
class Footprint:
    """What a network creates on a node: used to detect the network and to remove it completely.

    Names of links, files, chains, tables and sets are shell patterns (`*` and `?`).
    """

    links: tuple[str, ...] = ()
    shared_tunnels: tuple[str, ...] = ()
    """Tunnels that the kernel's module creates, such as `tunl0`: addresses in the pod range are removed from them."""
    files: tuple[str, ...] = ()
    """Files and folders that only the network uses."""
    saved_sysctls: tuple[tuple[str, str], ...] = ()
    """(file, sysctl): the agent saves the previous value of this sysctl in this file, which is below `files`."""
    iptables_chains: tuple[str, ...] = ()
    """Chains in any table of iptables and ip6tables, nft and legacy."""
    iptables_rules: tuple[str, ...] = ()
    """Regular expressions for rules in chains that the network does not own."""
    nft_tables: tuple[str, ...] = ()
    """As `family name`."""
    ip_sets: tuple[str, ...] = ()
    route_protocols: tuple[int, ...] = ()
    route_tables: tuple[int, ...] = ()
    """Routing tables; the policy rules that select them are part of the footprint."""
    local_rule_priority: int | None = None
    """Priority to which it moves the routing rule for the node's own addresses; the rule is moved back to 0."""
    bpf_programs: tuple[str, ...] = ()
    """BPF programs that it attaches at tc to links of the node."""
    xfrm: bool = False
    """Whether it creates IPsec states between nodes, and policies between pods or for `xfrm_port`."""
    xfrm_port: int | None = None
    """UDP destination port of the policies, for a network that encrypts its own tunnel packets."""
    listen_ports: tuple[int, ...] = ()
    """TCP ports on which the agent listens for its peers."""
    node_annotations: tuple[str, ...] = ()
    """Prefixes of annotations of Node objects."""
    device_removal: tuple[tuple[str, str, str], ...] = ()
    """(link, image, command) for links that `ip link delete` cannot remove: the command runs in the image."""


@dataclass(frozen=True)
class AgentConnections:
    """A command of an agent that prints its connections, one per line."""

    container: str
    command: tuple[str, ...]
    expected: str
    """Regular expression of the line of a working connection to a peer."""
    ignored: str
    """Regular expression of lines that are not about a peer."""


@dataclass(frozen=True)
class ReadyCondition:
    """What must exist on a node before the network is ready there, in addition to the agent's ready pod."""

    links: tuple[str, ...] = ()
    """Links, as shell patterns; of each one link suffices."""
    routes_to_peers: bool = False
    """A route to the pod subnet of every other node, in each IP family."""
    sessions_to_peers: int | None = None
    """TCP port, on one of both ends, of an established connection to every other node."""
    xfrm_to_peers: bool = False
    """An IPsec policy and an IPsec state for every other node."""
    connections: AgentConnections | None = None
    """How the agent shows its connections to all peers."""


@dataclass(frozen=True)
class PathEvidence:
    """How a node's link counters and routes show, without privileges, that this network carries packets.

    Names of links are shell patterns.
    """

    bridge: str = ""
    """Link that leads to the node's pods, as the node's routes show; empty if pods use the node's own link."""
    tunnels: tuple[str, ...] = ()
    """Links of which one carries all packets to other nodes; empty if routes lead directly to the nodes."""
    optional_tunnels: tuple[str, ...] = ()
    """Tunnels that the network may use in addition, such as between nodes of different subnets."""
    unverified: str = ""
    """What distinguishes this network and cannot be observed in this way."""
    varies: bool = False
    """Whether installations by others may carry packets in other ways, such as by tunnels between subnets only."""
    on_node_link: bool = False
    """Whether pods send frames directly on the node's link to the other nodes, without the node's routes."""
    unused: tuple[str, ...] = ()
    """Links that must not carry the packets, such as the bridge of the pods' first interfaces."""


@dataclass(frozen=True)
class ClusterInstall:
    """How k8sdds installs a network on a cluster, verifies it and removes it."""

    manifest_folder: str
    """Folder with `manifest.yaml`, below deploy/networks."""
    render: Callable[[InstallOptions, list[Manifest]], list[Manifest]]
    """(options, objects of the manifest) → objects to apply. Pure; may modify the given list."""
    footprint: Footprint
    ready: ReadyCondition
    daemonset: str
    """Name of the agent's DaemonSet, in the namespace of networks."""
    path: PathEvidence
    node_features: tuple[NodeFeature, ...]
    bundle_images: tuple[str, ...] = ()
    """Shell patterns for images in a bundle that only this plugin needs."""
    programs: tuple[str, ...] = ()
    """Programs that the agent starts; the plugin's own image contains them, other builds may not."""
    min_password_characters: int | None = None
    """Minimum length of the password that all nodes share; None if the network takes no password."""
    ipv4_only: str = ""
    """Why k8sdds does not install it on clusters with IPv6; empty if it does."""
    replaces_kube_proxy: bool = False
    """Whether its agent handles the Services of pods, so that kube-proxy's rules translate none of their packets."""
    host_network_multicast: bool = False
    """Whether only pods on the node's own network receive multicast, through the machines' switch."""


def custom_resources(
    group: str,
    version: str,
    cluster_wide: Sequence[str] = (),
    namespaced: Sequence[str] = (),
) -> list[Manifest]:
    """Return CustomResourceDefinitions of these kinds, in which an agent stores its state, without a schema."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": version, "served": True, "storage": True, "schema": schema}
    # Without this annotation, the API server rejects definitions in the groups of Kubernetes.
    protected = group.endswith(".k8s.io")
    annotations = {"api-approved.kubernetes.io": "unapproved, without a schema"} if protected else {}
    found = []
    for scope, kinds in (("Cluster", cluster_wide), ("Namespaced", namespaced)):
        for kind in kinds:
            singular = kind.lower()
            plural = re.sub("y$", "ie", re.sub("s$", "se", singular)) + "s"
            names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": singular}
            found.append({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}", "annotations": annotations},
                "spec": {"group": group, "scope": scope, "names": names, "versions": [served]},
            })  # fmt: skip
    return found


def find(manifests: Iterable[Manifest], kind: str, name: str) -> Manifest:
    """Return the object with this kind and name. Raises KeyError if it does not exist."""
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests}[kind, name]


def containers(manifest: Manifest) -> list[Manifest]:
    """Return the init containers and containers of an object's pods; empty if it has none."""
    pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
    return [*pod.get("initContainers", ()), *pod.get("containers", ())]


def container(daemonset: Manifest, name: str) -> Manifest:
    """Return a container or init container of a DaemonSet. Raises KeyError if it does not exist."""
    return {part["name"]: part for part in containers(daemonset)}[name]


def remove_from_pods(daemonset: Manifest, key: Literal["initContainers", "volumes"], name: str) -> None:
    """Remove an init container, or a volume that no container mounts, from a DaemonSet."""
    pod = daemonset["spec"]["template"]["spec"]
    pod[key] = [part for part in pod[key] if part["name"] != name]


def set_variables(container: Manifest, values: Mapping[str, str]) -> None:
    """Set environment variables that a container already declares. Raises KeyError for others."""
    declared = {variable["name"]: variable for variable in container["env"]}
    for name, value in values.items():
        declared[name]["value"] = value


def images(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """Return all images that the objects' pods run, without duplicates."""
    return tuple(dict.fromkeys(part["image"] for manifest in manifests for part in containers(manifest)))


def bridge_cni_config(
    name: str, bridge: str, mtu_bytes: int | None, cni_version: str = "0.3.1"
) -> dict[str, Any]:
    """Return the CNI configuration of a network whose pods are on a bridge, with host ports."""
    plugin: dict[str, Any] = {
        "type": "bridge",
        "bridge": bridge,
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local"},
        **({} if mtu_bytes is None else {"mtu": mtu_bytes}),
    }
    plugins = [plugin, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return {"cniVersion": cni_version, "name": name, "plugins": plugins}
