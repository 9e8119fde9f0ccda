"""What the bridge CNI plugin does for the pods of one node, shared by networks that use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Interface

from k8sdds.networks.network import Attachment, Batch, Datapath, Node, Topology


@dataclass(frozen=True)
class Bridge:
    """A node's bridge for pods, and the addressing of the pods on it."""

    name: str
    mtu: int
    address: IPv4Interface
    """The bridge's own address, the pods' gateway."""
    first_host: int = 2
    """Host part of the first pod's address, counted from the address of the bridge's network on this node."""

    def pod_address(self, slot: int) -> IPv4Interface:
        """Address of the pod with this number on the node."""
        base = int(self.address.ip) - 1
        return IPv4Interface((base + self.first_host + slot, self.address.network.prefixlen))


def bridge_pods(
    topology: Topology, node: Node, bridge: Bridge, routes: tuple[str, ...] = ()
) -> tuple[list[str], list[Batch], dict[str, Attachment]]:
    """Commands for one node: (lines for `ip` in the node, batches in the pods, attachments).

    Each pod gets a veth pair: `veth-POD` on the bridge, `eth0` in the pod, and a default route by the
    bridge's address, as the reference bridge plugin does. `routes` are further routes inside each pod.
    """
    in_node = [
        f"link add {bridge.name} mtu {bridge.mtu} type bridge mcast_snooping 0",
        f"addr add {bridge.address} dev {bridge.name}",
        f"link set {bridge.name} up",
    ]
    batches: list[Batch] = []
    attachments: dict[str, Attachment] = {}
    for pod in topology.on(node):
        host_end = f"veth-{pod.name}"
        in_node += [
            f"link add {host_end} mtu {bridge.mtu} type veth"
            f" peer name eth0 mtu {bridge.mtu} netns {pod.name}",
            f"link set {host_end} master {bridge.name} up",
        ]
        address = bridge.pod_address(pod.slot)
        batches.append(
            Batch(
                pod.name,
                "ip",
                (
                    "link set lo up",
                    f"addr add {address} dev eth0",
                    "link set eth0 up",
                    f"route add default via {bridge.address.ip}",
                    *routes,
                ),
            )
        )
        attachments[pod.name] = Attachment(pod.name, "eth0", str(address.ip))
    return in_node, batches, attachments


NodePart = tuple[list[Batch], dict[str, Attachment]]
"""What a network does on one node: its batches, and where the node's pods are attached."""


def pod_datapath(
    topology: Topology, mtu: int, on_node: Callable[[Node], NodePart], sysctls: tuple[tuple[str, str], ...]
) -> Datapath:
    """The datapath of a network whose pods have network namespaces of their own, node by node.

    `sysctls` are (key, value), set on every node.
    """
    batches: list[Batch] = []
    attachments: dict[str, Attachment] = {}
    for node in topology.nodes:
        node_batches, attached = on_node(node)
        batches += node_batches
        attachments |= attached
    return Datapath(
        mtu=mtu,
        attachments=attachments,
        namespaces=tuple(pod.name for pod in topology.pods),
        batches=tuple(batches),
        sysctls=tuple((node.name, key, value) for node in topology.nodes for key, value in sysctls),
    )


NODE_SYSCTLS = (("net.ipv4.ip_forward", "1"), ("net.bridge.bridge-nf-call-iptables", "1"))
"""What kubeadm asks of every node. (key, value)"""


def kube_forward() -> str:
    """kube-proxy's FORWARD rules in its iptables mode, as nft shows them: every forwarded packet passes."""
    return """
  chain KUBE-FORWARD {
    ct state invalid counter drop
    meta mark & 0x00004000 == 0x00004000 counter accept
    ct state related,established counter accept
  }
  chain KUBE-SERVICES {
  }"""
