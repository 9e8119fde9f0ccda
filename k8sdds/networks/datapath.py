"""Describe a lab network as plain data: its nodes and pods, and what a network configures on them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from k8sdds.model.ip_families import IpFamily, Subnet
from k8sdds.model.link import STANDARD_MTU
from k8sdds.model.services import IPTABLES, ProxyMode
from k8sdds.model.trial import Participant

LINK_MTU = STANDARD_MTU
"""MTU of the links between nodes, unless the experiment sets another one."""

SWITCH_SYSCTLS = {
    f"net.bridge.bridge-nf-call-{family}": "0" for family in ("iptables", "ip6tables", "arptables")
}
"""Settings of a bridge that is the switch between nodes, if br_netfilter is loaded. A switch has no packet filters, but
by default the kernel passes every frame of a bridge to those of its namespace."""


Tool = Literal[
    "ip", "ip -6", "bridge", "tc", "nft", "iptables", "ip6tables", "swanctl", "wg", "ethtool", "ipset"
]

NODE_SUBNETS: dict[IpFamily, Subnet] = {
    "ipv4": ipaddress.IPv4Network("192.168.77.0/24"),
    "ipv6": ipaddress.IPv6Network("fd00:192:168:77::/64"),
}
"""Addresses of the nodes. IPv6 addresses are unique local ones (RFC 4193)."""
POD_CIDRS: dict[IpFamily, str] = {"ipv4": "10.244.0.0/16", "ipv6": "fd00:10:244::/48"}
"""Addresses of the pods of all nodes."""


@dataclass(frozen=True)
class LabNode:
    """A machine of the lab: a network namespace whose eth0 is connected to the switch."""

    index: int
    family: IpFamily = "ipv4"
    """IP version of its addresses. A node with both versions is planned once for each."""
    proxy: ProxyMode = IPTABLES
    """Mode of kube-proxy, whose rules the node has."""

    @property
    def name(self) -> str:
        """Name of the node's network namespace."""
        return f"node{self.index}"

    @property
    def ipv6(self) -> bool:
        """Whether its addresses are those of IPv6."""
        return self.family == "ipv6"

    @property
    def address(self) -> str:
        """Address of eth0 in the nodes' subnet."""
        return str(NODE_SUBNETS[self.family][10 + self.index])

    @property
    def other_address(self) -> str:
        """An address in the nodes' subnet that no node has: that of this node after its address has changed."""
        return str(NODE_SUBNETS[self.family][-2 - self.index])

    @property
    def prefix(self) -> int:
        """Length of the prefix of the nodes' subnet."""
        return NODE_SUBNETS[self.family].prefixlen

    @property
    def host_prefix(self) -> int:
        """Length of a prefix that contains one address: 32 or 128."""
        return NODE_SUBNETS[self.family].max_prefixlen

    @property
    def pod_subnet(self) -> Subnet:
        """The part of POD_CIDRS that Kubernetes would assign to this node: a /24 or a /64."""
        pods = ipaddress.ip_network(POD_CIDRS[self.family])
        prefix = 64 if self.ipv6 else 24
        first = pods.network_address + (self.index << (pods.max_prefixlen - prefix))
        return ipaddress.ip_network(f"{first}/{prefix}")


@dataclass(frozen=True)
class LabPod:
    """The pod of one participant."""

    participant: Participant
    node: int
    """Index of its node."""
    slot: int
    """Index among the pods of its node."""
    index: int
    """Index among all pods."""

    @property
    def name(self) -> str:
        """Name of the pod's network namespace and of its participant."""
        return self.participant.name


@dataclass(frozen=True)
class Topology:
    """The nodes of a lab network, all on one switch, and their pods."""

    nodes: tuple[LabNode, ...]
    pods: tuple[LabPod, ...]
    policies: int = 0
    """NetworkPolicies that select all pods. Each allows packets from these pods, and nothing else."""

    def in_family(self, family: IpFamily) -> Topology:
        """Return the same topology with the nodes' addresses of this family."""
        return replace(self, nodes=tuple(replace(node, family=family) for node in self.nodes))

    def peers(self, node: LabNode) -> tuple[LabNode, ...]:
        """Return all other nodes."""
        return tuple(other for other in self.nodes if other != node)

    def pods_on(self, node: LabNode) -> tuple[LabPod, ...]:
        """Return the pods of a node."""
        return tuple(pod for pod in self.pods if pod.node == node.index)


@dataclass(frozen=True)
class Batch:
    """Commands for one tool in one network namespace, written as an engineer would type them."""

    namespace: str
    tool: Tool
    lines: tuple[str, ...]


@dataclass(frozen=True)
class File:
    """A file inside the sandbox, written with mode 0600.

    `$NAME` in the text is replaced by a key of the lab network when the file is written, so that no plan contains
    a secret: `$psk`, `$private_node0`, `$public_node0`.
    """

    path: str
    text: str


@dataclass(frozen=True)
class BpfObject:
    """BPF programs that `tc` attaches to devices."""

    source: str
    """Text of the C file."""
    path: str
    """Object file inside the sandbox."""


@dataclass(frozen=True)
class Daemon:
    """A program that runs on a node as long as the lab network exists."""

    namespace: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    log: str
    """File inside the sandbox that receives the daemon's output."""
    ready: tuple[str, ...]
    """Command, run in the daemon's namespace until it succeeds once: the daemon is ready then."""
    rejoins: tuple[Batch, ...] = ()
    """Batches that connect its node with the others when it is ready again after it has ended."""


@dataclass(frozen=True)
class ErrorHint:
    """What a tool's error message means, and how to fix the error."""

    phrase: str
    """Text that the tool's output contains."""
    cause: str
    remedy: str


@dataclass(frozen=True)
class EncryptionProof:
    """How to verify that only encrypted packets pass between nodes."""

    encrypted: str
    """nft expression that matches the packets that carry the pods' traffic."""
    allowed: tuple[str, ...]
    """nft expressions that match other packets that may pass, such as the key exchange."""
    counters: dict[str, tuple[str, ...]]
    """Node name → command that prints what the node's tunnels transferred."""
    received_bytes: str
    """Regular expression for the command's output; each match's group is the bytes that one tunnel decrypted."""


@dataclass(frozen=True)
class Attachment:
    """Where a participant is connected: its network namespace, interface and address."""

    namespace: str
    interface: str
    address: str
    other_address: str | None = None
    """The address of the other IP family, in a dual stack."""


@dataclass(frozen=True)
class Datapath:
    """What a network configures on the nodes.

    The lab applies it in this order: namespaces, sysctls, BPF objects, batches, sysctls of links, files, daemons,
    tunnels.
    """

    mtu: int
    """MTU of the pods' interfaces."""
    attachments: dict[str, Attachment]
    """By pod name."""
    namespaces: tuple[str, ...] = ()
    """Network namespaces of the pods."""
    batches: tuple[Batch, ...] = ()
    sysctls: tuple[tuple[str, str, str], ...] = ()
    """(namespace, key, value)"""
    link_sysctls: tuple[tuple[str, str, str], ...] = ()
    """The same for links that the batches create."""
    bpf_objects: tuple[BpfObject, ...] = ()
    in_pods: bool = True
    """Whether participants run in pods; if not, they run on the node itself."""
    files: tuple[File, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    tunnels: tuple[Batch, ...] = ()
    """Batches to apply when all daemons are ready: sequentially within a namespace, namespaces in parallel."""
    error_hints: tuple[ErrorHint, ...] = ()
    """For failures of `tunnels`."""
    encryption_proof: EncryptionProof | None = None
    """For networks that encrypt."""


def dual_stack(first: Datapath, second: Datapath) -> Datapath:
    """Return the datapath for two IP families, whose plans share the links: the first family is the one to use."""
    attachments = {
        name: replace(attachment, other_address=second.attachments[name].address)
        for name, attachment in first.attachments.items()
    }
    return replace(
        first,
        attachments=attachments,
        batches=(*first.batches, *second.batches),
        sysctls=_each_once(first.sysctls, second.sysctls),
        link_sysctls=_each_once(first.link_sysctls, second.link_sysctls),
    )


def _each_once(*settings: Sequence[tuple[str, str, str]]) -> tuple[tuple[str, str, str], ...]:
    return tuple(dict.fromkeys(setting for group in settings for setting in group))


@dataclass(frozen=True)
class CniPlugins:
    """What a container runtime on a node calls for each pod, as on a cluster where the network's agent has run."""

    programs: tuple[str, ...]
    """Names of the plugins' programs (`k8sdds.bundle.contents`)."""
    configuration: Mapping[str, Any]
    """The list of plugins."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the agent that the plugins read: path to text."""


NodePlugins = Callable[[Sequence[LabNode], int], CniPlugins]
"""(the node, once for each IP family; MTU of pods) → its CNI plugins."""
