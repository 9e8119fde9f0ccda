"""Plan Calico's datapath: routed pods without a bridge, and blocks of addresses that each node announces.

A pod has an address with 32 bits. Its gateway is 169.254.1.1, for which the node's end of the veth pair answers ARP.
With IPv6, the address has 128 bits, and the gateway is the link-local address of the node's end.
Blocks of other nodes are reached by plain routes (BGP), through vxlan.calico, or through tunl0 (IP in IP).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from k8sdds.model.ip_families import IpFamily
from k8sdds.networks.calico import rules
from k8sdds.networks.common import encapsulation, iptables
from k8sdds.networks.common.bridge_cni import FORWARDING, NodeLinks, NodePlan, pod_datapath, routes_to_peers
from k8sdds.networks.datapath import Batch, Datapath, LabNode, LabPod, Topology
from k8sdds.networks.network import Engine

GATEWAYS: dict[IpFamily, str] = {"ipv4": "169.254.1.1", "ipv6": "fe80::ecee:eeff:feee:eeee"}
HOST_MAC = "ee:ee:ee:ee:ee:ee"
"""MAC address of the node's end of each pod's veth pair."""
BIRD, FELIX = 12, 80
"""Routing protocol numbers of routes learned by BGP, and of those that Felix adds."""
VNI = 4096


def bgp(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath without encapsulation."""
    return _routed(topology, mtu, _bgp_routes)


def vxlan(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath with VXLAN between nodes."""
    return _routed(topology, mtu, _vxlan_device, rules.VXLAN)


def ipip(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath with IP in IP between nodes."""
    return _routed(topology, mtu, _ipip_device, rules.IPIP)


def _routed(topology: Topology, mtu: int, node_links: NodeLinks, tunnel: str = "") -> Datapath:
    def plan_node(node: LabNode, plan: NodePlan) -> None:
        gateway = GATEWAYS[node.family]
        if not node.ipv6:
            # The lab's nodes have no default route, without which the kernel answers no ARP requests for the gateway.
            plan.ip.append(f"route add {gateway} dev eth0")
        scope = "" if node.ipv6 else " scope link"
        for pod in topology.pods_on(node):
            device, address = _device(pod), _address(node, pod)
            plan.ip += [
                f"link add {device} mtu {mtu} address {HOST_MAC} type veth peer name eth0 mtu {mtu} netns {pod.name}",
                f"link set {device} up",
                f"route add {address} dev {device}{scope}",
            ]
            in_pod = (
                f"addr add {address}/{node.host_prefix} dev eth0",
                "link set eth0 up",
                f"route add {gateway} dev eth0{scope}",
                f"route add default via {gateway} dev eth0",
            )
            plan.attach(pod, address, in_pod)
            plan.link_sysctls += _link_sysctls(node, device)
        tables = rules.tables([_device(pod) for pod in topology.pods_on(node)], tunnel, node.family)
        plan.after += [
            *node_links(topology, node, mtu),
            iptables.kubernetes_batch(node, before=tables, after=rules.LAST),
        ]

    return pod_datapath(topology, mtu, plan_node, FORWARDING)


def _link_sysctls(node: LabNode, device: str) -> tuple[tuple[str, str], ...]:
    """Return the sysctls of the node's end of a veth pair."""
    if node.ipv6:
        return ((f"net.ipv6.conf.{device}.proxy_ndp", "1"),)
    return (
        (f"net.ipv4.conf.{device}.proxy_arp", "1"),
        (f"net.ipv4.neigh.{device}.proxy_delay", "0"),
        (f"net.ipv4.conf.{device}.route_localnet", "1"),
    )


def _device(pod: LabPod) -> str:
    return f"cali-{pod.name}"


def _address(node: LabNode, pod: LabPod) -> IPv4Address | IPv6Address:
    # The first address of the block is that of the node's tunnel.
    return node.pod_subnet.network_address + 1 + pod.slot


def _bgp_routes(topology: Topology, node: LabNode, mtu: int) -> list[Batch]:
    return [Batch(node.name, "ip", _learned_routes(topology, node, "dev eth0"))]


def _learned_routes(topology: Topology, node: LabNode, device: str) -> tuple[str, ...]:
    """Return the routes of the node's own block, and of those of other nodes through a device."""
    own = f"route add blackhole {node.pod_subnet} proto {BIRD}"
    return own, *routes_to_peers(topology, node, f"{device} proto {BIRD}")


def _vxlan_device(topology: Topology, node: LabNode, mtu: int) -> list[Batch]:
    name = "vxlan-v6.calico" if node.ipv6 else "vxlan.calico"
    block = Batch(node.name, "ip", (f"route add blackhole {node.pod_subnet} proto {FELIX}",))
    connected = encapsulation.vxlan_device(
        topology, node, name, mtu, VNI, rules.VXLAN_PORT, _vtep_mac, f"proto {FELIX}"
    )
    return [block, *connected]


def _vtep_mac(node: LabNode) -> str:
    return f"66:ca:11:c{6 if node.ipv6 else 0}:00:{node.index:02x}"


def _ipip_device(topology: Topology, node: LabNode, mtu: int) -> list[Batch]:
    # The kernel's module creates tunl0 in every network namespace.
    lines = [
        f"link set tunl0 mtu {mtu} up",
        f"addr add {node.pod_subnet.network_address}/32 dev tunl0",
        *_learned_routes(topology, node, "dev tunl0 onlink"),
    ]
    return [Batch(node.name, "ip", tuple(lines))]
