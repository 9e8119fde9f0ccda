"""Plan what the reference bridge CNI plugin configures for the pods of a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from typing import Any

from k8sdds.model.ip_families import IpFamily
from k8sdds.networks.datapath import Attachment, Batch, CniPlugins, Datapath, LabNode, LabPod, Topology

BRIDGE, HOST_LOCAL, PORTMAP = "bridge", "host-local", "portmap"
"""Names of CNI plugins."""

Interface = IPv4Interface | IPv6Interface
"""An address with the length of its prefix."""
Sysctls = Mapping[IpFamily, tuple[tuple[str, str], ...]]
"""(key, value) for each IP family, set on every node."""
NodeLinks = Callable[[Topology, LabNode, int], list[Batch]]
"""(topology, node, mtu) → batches that connect the node to the other nodes."""


def first_address(node: LabNode) -> Interface:
    """Return the first address of the node's pod subnet, which most plugins give to the bridge."""
    subnet = node.pod_subnet
    return ip_interface(f"{subnet.network_address + 1}/{subnet.prefixlen}")


@dataclass(frozen=True)
class Bridge:
    """A node's bridge for pods, and the addresses of the pods on it."""

    name: str
    mtu: int
    address: Interface
    """Address of the bridge: the pods' gateway, and the first host of the node's pod subnet."""

    def pod_address(self, slot: int) -> Interface:
        """Return the address of the pod with this index on the node."""
        return ip_interface(f"{self.address.ip + 1 + slot}/{self.address.network.prefixlen}")


class NodePlan:
    """What a network configures on one node and in its pods."""

    def __init__(self) -> None:
        self.ip: list[str] = []
        """Lines for `ip` on the node."""
        self.pods: list[Batch] = []
        self.after: list[Batch] = []
        """What is configured on the node when its pods have their interfaces."""
        self.attachments: dict[str, Attachment] = {}
        self.link_sysctls: list[tuple[str, str]] = []
        """(key, value) of links of the node."""

    def attach(self, pod: LabPod, address: object, lines: Sequence[str], interface: str = "eth0") -> None:
        """Add a pod with the address of its interface, and the lines for `ip` in the pod."""
        self.pods.append(Batch(pod.name, "ip", ("link set lo up", *lines)))
        self.attachments[pod.name] = Attachment(pod.name, interface, str(address))


def pod_datapath(
    topology: Topology,
    mtu: int,
    plan_node: Callable[[LabNode, NodePlan], None],
    sysctls: Sysctls,
) -> Datapath:
    """Combine the plans of all nodes into the datapath of a network whose pods have network namespaces."""
    plans = [(node, NodePlan()) for node in topology.nodes]
    for node, plan in plans:
        plan_node(node, plan)
    return Datapath(
        mtu=mtu,
        attachments={pod: attachment for _, plan in plans for pod, attachment in plan.attachments.items()},
        namespaces=tuple(pod.name for pod in topology.pods),
        batches=tuple(
            batch
            for node, plan in plans
            for batch in (Batch(node.name, "ip", tuple(plan.ip)), *plan.pods, *plan.after)
        ),
        sysctls=tuple((node.name, *pair) for node, _ in plans for pair in sysctls.get(node.family, ())),
        link_sysctls=tuple((node.name, *pair) for node, plan in plans for pair in plan.link_sysctls),
    )


def bridge_pods(
    topology: Topology, node: LabNode, bridge: Bridge, plan: NodePlan, routes: tuple[str, ...] = ()
) -> None:
    """Plan the bridge and the pods of one node.

    Each pod gets a veth pair (`veth-POD` on the bridge, `eth0` in the pod) and a default route through the bridge's
    address. `routes` are additional `ip` lines for each pod.
    """
    broadcast = " broadcast +" if bridge.address.version == 4 else ""
    plan.ip += [
        # As the plugin does, so that its MAC address does not change with the pods on it.
        f"link add {bridge.name} address 02:b0:00:00:00:{node.index:02x} mtu {bridge.mtu} type bridge mcast_snooping 1",
        f"addr add {bridge.address}{broadcast} dev {bridge.name}",
        f"link set {bridge.name} up",
    ]
    for pod in topology.pods_on(node):
        host_end, address = f"veth-{pod.name}", bridge.pod_address(pod.slot)
        plan.ip += [
            f"link add {host_end} mtu {bridge.mtu} type veth"
            f" peer name eth0 mtu {bridge.mtu} netns {pod.name}",
            f"link set {host_end} master {bridge.name} up",
            # As the CNI configurations of Flannel, Kube-router and Weave request.
            f"link set {host_end} type bridge_slave hairpin on",
        ]
        default = f"route add default via {bridge.address.ip}"
        lines = (f"addr add {address}{broadcast} dev eth0", "link set eth0 up", default, *routes)
        plan.attach(pod, address.ip, lines)


def bridge_plugins(configuration: Mapping[str, Any], nodes: Sequence[LabNode]) -> CniPlugins:
    """Return the CNI plugins of a node: of this configuration, with the ranges of pods that the agent adds to it."""
    bridge, *others = configuration["plugins"]
    ranges = [[{"subnet": str(node.pod_subnet)}] for node in nodes]
    completed = {**bridge, "ipam": {**bridge["ipam"], "ranges": ranges}}
    return CniPlugins((BRIDGE, HOST_LOCAL, PORTMAP), {**configuration, "plugins": [completed, *others]})


FORWARDING: Sysctls = {
    "ipv4": (("net.ipv4.ip_forward", "1"),),
    "ipv6": (("net.ipv6.conf.all.forwarding", "1"),),
}
NODE_SYSCTLS: Sysctls = {
    "ipv4": (*FORWARDING["ipv4"], ("net.bridge.bridge-nf-call-iptables", "1")),
    "ipv6": (*FORWARDING["ipv6"], ("net.bridge.bridge-nf-call-ip6tables", "1")),
}
"""What kubeadm requires on every node."""


def routes_to_peers(topology: Topology, node: LabNode, by: str = "dev eth0") -> tuple[str, ...]:
    """Return a route to the pods of every other node through its address; `by` are the device and options."""
    return tuple(f"route add {peer.pod_subnet} via {peer.address} {by}" for peer in topology.peers(node))
