"""What is known of a network, and its datapath in the lab as plain data."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

LINK_MTU = 1500
"""MTU of the links between nodes, as of any Ethernet."""

Tool = Literal["ip", "bridge", "tc", "nft"]


@dataclass(frozen=True)
class Node:
    """A machine of the lab: a network namespace with eth0 on the switch."""

    index: int

    @property
    def name(self) -> str:
        """Name of its network namespace."""
        return f"node{self.index}"

    @property
    def address(self) -> str:
        """IPv4 address of eth0 on the nodes' network 192.168.77.0/24."""
        return f"192.168.77.{10 + self.index}"

    @property
    def pod_subnet(self) -> ipaddress.IPv4Network:
        """The /24 of the cluster's 10.244.0.0/16 that Kubernetes would give this node."""
        return ipaddress.IPv4Network(f"10.244.{self.index}.0/24")


@dataclass(frozen=True)
class Pod:
    """A place for one participant."""

    name: str
    node: int
    slot: int
    """Its number among the pods of its node, from 0."""
    index: int
    """Its number among all pods, from 0."""


@dataclass(frozen=True)
class Topology:
    """Nodes on one switch, and the pods on them."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]

    def peers(self, node: Node) -> tuple[Node, ...]:
        """All nodes but this one."""
        return tuple(other for other in self.nodes if other != node)

    def on(self, node: Node) -> tuple[Pod, ...]:
        """The pods of a node."""
        return tuple(pod for pod in self.pods if pod.node == node.index)


@dataclass(frozen=True)
class Batch:
    """Commands for one tool in one namespace, as an engineer would type them."""

    namespace: str
    tool: Tool
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Attachment:
    """Where a pod is on the network: the network namespace it runs in, and its address there."""

    namespace: str
    interface: str
    address: str


@dataclass(frozen=True)
class Datapath:
    """What a network adds to bare nodes. Applied in order: namespaces, sysctls, batches."""

    mtu: int
    attachments: dict[str, Attachment]
    """By the pod's name."""
    namespaces: tuple[str, ...] = ()
    """Network namespaces of pods, to be made before the batches."""
    batches: tuple[Batch, ...] = ()
    sysctls: tuple[tuple[str, str, str], ...] = ()
    """(namespace, key, value)"""
    in_pods: bool = True
    """False where participants run on the node itself, in no pod."""


@dataclass(frozen=True)
class Capabilities:
    """What this kernel can do, each probed by doing it in a throw-away namespace."""

    features: frozenset[str] = frozenset()
    lacks: dict[str, str] = field(default_factory=dict)
    """Feature to what the kernel or tool said when it was tried."""

    def has(self, feature: str) -> bool:
        """Whether the feature was seen to work."""
        return feature in self.features


Fidelity = Literal["real", "equivalent", "modelled"]


@dataclass(frozen=True)
class Network:
    """A CNI plugin in one mode: its facts and its datapath in the lab."""

    name: str
    title: str
    layer: str
    """What carries a packet between nodes: `none`, `L2 overlay` or `L3 routes`."""
    encapsulation: str
    multicast: str
    """How multicast crosses nodes; empty: it does not."""
    encryption: str
    policy: bool
    """Whether the plugin enforces Kubernetes' NetworkPolicy."""
    architectures: tuple[str, ...]
    versions: str
    """Upstream versions these facts and the datapath follow."""
    fidelity: Fidelity
    differences: str
    """What the lab's datapath leaves out or replaces."""
    default_mtu: int
    needs: tuple[str, ...]
    """Kernel features without which the lab cannot carry it."""
    max_mtu: int
    """Largest pod MTU on links of 1500."""
    lab: Callable[[Topology, int, Capabilities], Datapath]
    """(topology, mtu, capabilities) → datapath"""
    engine: str | None = None

    def mtu(self, options: dict[str, object]) -> int:
        """MTU of the pods' interfaces under the given options."""
        wanted = options.get("mtu")
        return int(wanted) if isinstance(wanted, int) else self.default_mtu

    def problem(self, options: dict[str, object]) -> str | None:
        """What is wrong with the options, or None."""
        if self.mtu(options) > self.max_mtu:
            return (
                f"{self.name}: mtu {self.mtu(options)} does not fit: links carry {LINK_MTU} bytes"
                f" and {self.encapsulation or 'the network'} leaves at most {self.max_mtu}"
            )
        return None
