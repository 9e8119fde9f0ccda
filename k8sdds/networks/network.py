"""What is known of a network, and its datapath in the lab as plain data."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from k8sdds.model.trial import Participant
from k8sdds.networks.cluster_install import ClusterInstall

LINK_MTU = 1500
"""MTU of the links between nodes, as of any Ethernet."""

Tool = Literal["ip", "bridge", "tc", "nft", "swanctl", "wg"]


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

    participant: Participant
    node: int
    slot: int
    """Its number among the pods of its node, from 0."""
    index: int
    """Its number among all pods, from 0."""

    @property
    def name(self) -> str:
        """Name of its network namespace and of its participant."""
        return self.participant.name


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
class File:
    """A file inside the sandbox, mode 0600.

    `$NAME` in its text stands for a key of the bench that is made when the file is written, so that no
    plan ever holds a secret: `$psk`, `$private_node0`, `$public_node0`.
    """

    path: str
    text: str


@dataclass(frozen=True)
class Daemon:
    """A program of the network that runs on a node as long as the bench stands."""

    namespace: str
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    log: str
    """File inside the sandbox with what it prints."""
    ready: tuple[str, ...]
    """A command in its namespace that fails until the daemon serves it, and then need not be run again."""


@dataclass(frozen=True)
class ErrorHint:
    """What a tool's words mean to the user, and what to do about it."""

    phrase: str
    what: str
    remedy: str


@dataclass(frozen=True)
class WireProof:
    """How to see that only encrypted packets are on the wire between nodes."""

    encrypted: str
    """nft expression for the packets that carry the pods' traffic."""
    beside: tuple[str, ...]
    """nft expressions for what may be there besides, such as the key exchange."""
    tally: dict[str, tuple[str, ...]]
    """Node to a command there that prints what its tunnels carried."""
    received: str
    """Regular expression whose groups are the bytes that a tunnel has decrypted on that node."""


@dataclass(frozen=True)
class Attachment:
    """Where a pod is on the network: the network namespace it runs in, and its address there."""

    namespace: str
    interface: str
    address: str


@dataclass(frozen=True)
class Datapath:
    """What a network adds to bare nodes. Applied in order: namespaces, sysctls, batches, files, daemons,
    finish."""

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
    files: tuple[File, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    finish: tuple[Batch, ...] = ()
    """Batches for when all daemons are ready: in order within a namespace, namespaces side by side."""
    meanings: tuple[ErrorHint, ...] = ()
    """For failures of `finish`."""
    wire: WireProof | None = None
    """For networks that encrypt."""


Fidelity = Literal["real", "equivalent", "modelled"]


@dataclass(frozen=True)
class Engine:
    """One way to carry a network's datapath, where there are several."""

    option: str
    """What experiments call it: `engine: kernel`."""
    title: str
    """What stands in labels and results, such as `userspace ESP`."""
    mode: str
    """Of ESP: `tunnel` or `transport`."""
    default_mtu: int
    max_mtu: int
    needs: tuple[str, ...]
    """Kernel features and programs beside those of the network."""


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
    lab: Callable[[Topology, int, Engine | None], Datapath]
    """(topology, mtu, engine) → datapath; the engine is None where there is no choice."""
    cluster: ClusterInstall | None = None
    """How it is installed on a cluster; None where there is nothing to install."""
    unprotected: str | None = None
    """For a network that encrypts: the network that remains without it."""
    engine: str | None = None
    """What replaces the plugin's own datapath, where there is no choice."""
    engines: tuple[Engine, ...] = ()
    """Where there is a choice: the plugin's own first, the one that asks least of the kernel last."""

    def engine_of(self, options: Mapping[str, object]) -> Engine | None:
        """The engine that the options name, or the last: it works on most machines."""
        if not self.engines:
            return None
        return next((one for one in self.engines if one.option == options.get("engine")), self.engines[-1])

    def engine_title(self, options: Mapping[str, object]) -> str | None:
        """What carries the datapath, in words; None where there is nothing to tell."""
        chosen = self.engine_of(options)
        return chosen.title if chosen else self.engine

    def needs_of(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """Features without which the lab cannot carry it under the given options."""
        chosen = self.engine_of(options)
        return (*self.needs, *chosen.needs) if chosen else self.needs

    def mtu(self, options: Mapping[str, object]) -> int:
        """MTU of the pods' interfaces under the given options."""
        wanted = options.get("mtu")
        if isinstance(wanted, int):
            return wanted
        chosen = self.engine_of(options)
        return chosen.default_mtu if chosen else self.default_mtu

    def problem(self, options: Mapping[str, object]) -> str | None:
        """What is wrong with the options, or None."""
        chosen = self.engine_of(options)
        known = [one.option for one in self.engines]
        if "engine" in options and options["engine"] not in known:
            has = f"one of {', '.join(known)}" if known else "no choice of engines"
            return f"{self.name}: engine {options['engine']!r} is not known: there is {has}"
        most = chosen.max_mtu if chosen else self.max_mtu
        if self.mtu(options) > most:
            taker = chosen.title if chosen else self.encapsulation or "the network"
            return (
                f"{self.name}: mtu {self.mtu(options)} does not fit: links carry {LINK_MTU} bytes"
                f" and {taker} leaves at most {most}"
            )
        return None
