"""A network's cluster half as pure data: what is asked of it, what it installs, what it makes on a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

Manifest = dict[str, Any]
"""One Kubernetes object."""


@dataclass(frozen=True)
class InstallOptions:
    """What a profile asks of a network."""

    pod_cidr: IPv4Network
    service_cidr: IPv4Network
    mtu_bytes: int | None = None
    """Of the pods' interfaces; None: what the plugin itself finds out."""
    interface: str | None = None
    """Between the nodes; None: that of the default route."""
    password: str = ""
    plugins_on_nodes: bool = False
    """Whether the nodes have the CNI plugins already, from a bundle."""


@dataclass(frozen=True)
class Footprint:
    """What a network makes on a node, to prove that it is there and that nothing of it is left.

    Names are those of the kernel or of files; `*` and `?` match as in a shell.
    """

    links: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Files and folders that are the network's own."""
    chains: tuple[str, ...] = ()
    """Of iptables, in all tables and both variants."""
    rules: tuple[str, ...] = ()
    """Regular expressions for rules that stand in chains of others."""
    nft_tables: tuple[str, ...] = ()
    """As `family name`."""
    sets: tuple[str, ...] = ()
    """Of ipset."""
    route_protocols: tuple[int, ...] = ()
    route_tables: tuple[int, ...] = ()
    """Routing tables, with the rules that lead to them."""
    xfrm: bool = False
    """IPsec policies between pods, or of the port below, and states between nodes."""
    xfrm_port: int | None = None
    ports: tuple[int, ...] = ()
    """TCP ports on which its agent listens to its peers."""
    annotations: tuple[str, ...] = ()
    """Beginnings of annotations of Node objects."""
    release: tuple[tuple[str, str, str], ...] = ()
    """(link, image, command): a link that only a program of the network can remove, run from its image."""


@dataclass(frozen=True)
class ReadyCondition:
    """What stands on a node when the network is ready there, beside its pod."""

    links: tuple[str, ...] = ()
    routes_to_peers: bool = False
    """A route to the pods' range of every other node."""
    xfrm_to_peers: bool = False
    """An IPsec policy and a state towards every other node."""
    connected: tuple[str, ...] = ()
    """A container of the agent, and a command in it that fails until it is connected to its peers."""


@dataclass(frozen=True)
class PathEvidence:
    """How a node's links and routes show that this network carries packets, to whoever may only look.

    Names of links match as in a shell.
    """

    bridge: str = ""
    """The link that the node's pods are on; empty: they use the node's own."""
    tunnels: tuple[str, ...] = ()
    """Links of which one takes every packet for another node; none: the routes lead straight to the node."""
    may: tuple[str, ...] = ()
    """Tunnels that it may use all the same, such as between nodes of different subnets."""
    unseen: str = ""
    """What makes it this network and cannot be seen so."""


@dataclass(frozen=True)
class ClusterInstall:
    """How a network is installed on a cluster, and how one sees it there."""

    folder: str
    """Below deploy/networks."""
    render: Callable[[InstallOptions, list[Manifest]], list[Manifest]]
    """(what is asked, the folder's objects) → the objects to apply. Pure; may change the list it is given."""
    signs: Footprint
    present: ReadyCondition
    daemonset: str
    """Its agent, in the namespace of networks."""
    carrier: PathEvidence
    programs: tuple[str, ...] = ()
    """What the agent starts, by name: the plugin's own image has it, one made by others may not."""


def find(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    """The object of this kind and name; KeyError if there is none."""
    for one in manifests:
        if one["kind"] == kind and one["metadata"]["name"] == name:
            return one
    raise KeyError(f"{kind} {name}")


def container(daemonset: Manifest, name: str) -> Manifest:
    """A container of a DaemonSet, also one of those that run first; KeyError if there is none."""
    pod = daemonset["spec"]["template"]["spec"]
    for one in (*pod.get("initContainers", ()), *pod["containers"]):
        if one["name"] == name:
            return one
    raise KeyError(name)


def without_container(daemonset: Manifest, name: str) -> None:
    """Leave out a container that would run first."""
    pod = daemonset["spec"]["template"]["spec"]
    pod["initContainers"] = [one for one in pod["initContainers"] if one["name"] != name]


def set_variables(one: Manifest, values: Mapping[str, str]) -> None:
    """Set variables of a container's environment that stand in it already; KeyError for others."""
    known = {variable["name"]: variable for variable in one["env"]}
    for name, value in values.items():
        known[name]["value"] = value


def images(manifests: list[Manifest]) -> tuple[str, ...]:
    """All images that the objects' pods run, each once."""
    found: dict[str, None] = {}
    for one in manifests:
        pod = one.get("spec", {}).get("template", {}).get("spec", {})
        for part in (*pod.get("initContainers", ()), *pod.get("containers", ())):
            found[part["image"]] = None
    return tuple(found)
