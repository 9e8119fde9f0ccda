"""Flannel: pods on the bridge cni0; between nodes a VXLAN device (`flannel-vxlan`) or plain routes
(`flannel-hostgw`).

Facts from flannel's documentation and sources (v0.28): VXLAN with VNI 1 on UDP port 8472, learning off,
one permanent neighbour, one forwarding entry and one on-link route for every other node, each the
peer's flannel.1; masquerade rules in FLANNEL-POSTRTG, forward rules in FLANNEL-FWD. host-gw: one route
for every other node by its address, so all nodes must be on one network.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Interface

from k8sdds import versions
from k8sdds.networks.cluster_install import ReadyCondition
from k8sdds.networks.common.bridge_cni import (
    NODE_SYSCTLS,
    Bridge,
    NodePart,
    bridge_pods,
    kube_forward,
    pod_datapath,
)
from k8sdds.networks.flannel import cluster as flannel_cluster
from k8sdds.networks.network import LINK_MTU, Batch, Datapath, Engine, Network, Node, Topology

CLUSTER = "10.244.0.0/16"
VXLAN_HEADERS = 50
"""Outer IPv4 (20) + UDP (8) + VXLAN (8) + inner Ethernet (14) bytes."""
VNI = 1
UDP_PORT = 8472


def _vtep_mac(node: Node) -> str:
    return f"02:f1:00:00:00:{node.index:02x}"


def _vtep_address(node: Node) -> str:
    return str(node.pod_subnet.network_address)


def _rules(node: Node) -> str:
    return f"""
table ip nat {{
  chain POSTROUTING {{
    type nat hook postrouting priority srcnat; policy accept;
    counter jump FLANNEL-POSTRTG
  }}
  chain FLANNEL-POSTRTG {{
    meta mark & 0x00004000 == 0x00004000 counter return
    ip saddr {node.pod_subnet} ip daddr {CLUSTER} counter return
    ip saddr {CLUSTER} ip daddr {node.pod_subnet} counter return
    ip saddr != {CLUSTER} ip daddr {node.pod_subnet} counter return
    ip saddr {CLUSTER} ip daddr != 224.0.0.0/4 counter masquerade fully-random
    ip saddr != {CLUSTER} ip daddr {CLUSTER} counter masquerade fully-random
  }}
}}
table ip filter {{{kube_forward()}
  chain FLANNEL-FWD {{
    ip saddr {CLUSTER} counter accept
    ip daddr {CLUSTER} counter accept
  }}
  chain FORWARD {{
    type filter hook forward priority filter; policy accept;
    counter jump KUBE-FORWARD
    ct state new counter jump KUBE-SERVICES
    counter jump FLANNEL-FWD
  }}
}}
"""


def _vxlan_device(topology: Topology, node: Node, mtu: int) -> list[Batch]:
    """flannel.1 with static neighbours, forwarding entries and routes for every other node."""
    lines = [
        f"link add flannel.1 mtu {mtu} address {_vtep_mac(node)}"
        f" type vxlan id {VNI} dev eth0 local {node.address} dstport {UDP_PORT} nolearning",
        f"addr add {_vtep_address(node)}/32 dev flannel.1",
        "link set flannel.1 up",
    ]
    forwarding = []
    for peer in topology.peers(node):
        lines += [
            f"neigh add {_vtep_address(peer)} lladdr {_vtep_mac(peer)} dev flannel.1 nud permanent",
            f"route add {peer.pod_subnet} via {_vtep_address(peer)} dev flannel.1 onlink",
        ]
        forwarding.append(f"fdb add {_vtep_mac(peer)} dev flannel.1 dst {peer.address} self permanent")
    return [Batch(node.name, "ip", tuple(lines)), Batch(node.name, "bridge", tuple(forwarding))]


def _host_routes(topology: Topology, node: Node, mtu: int) -> list[Batch]:
    """One route for every other node."""
    routes = [f"route add {peer.pod_subnet} via {peer.address} dev eth0" for peer in topology.peers(node)]
    return [Batch(node.name, "ip", tuple(routes))]


def datapath(topology: Topology, mtu: int, between: Callable[[Topology, Node, int], list[Batch]]) -> Datapath:
    """Pods on cni0; `between` gives what carries packets to the other nodes."""

    def on_node(node: Node) -> NodePart:
        bridge = Bridge("cni0", mtu, IPv4Interface(f"{node.pod_subnet.network_address + 1}/24"))
        in_node, in_pods, attached = bridge_pods(topology, node, bridge)
        batches = [Batch(node.name, "ip", tuple(in_node)), *in_pods, *between(topology, node, mtu)]
        return [*batches, Batch(node.name, "nft", (_rules(node),))], attached

    return pod_datapath(topology, mtu, on_node, NODE_SYSCTLS)


def _vxlan(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    return datapath(topology, mtu, _vxlan_device)


def _hostgw(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    return datapath(topology, mtu, _host_routes)


KUBE_PROXY = "kube-proxy's rules for Services are empty; no flanneld and no kubelet run beside"

VXLAN = Network(
    name="flannel-vxlan",
    title="Flannel, VXLAN backend",
    layer="L2 overlay",
    encapsulation="VXLAN",
    multicast="",
    encryption="",
    policy=False,
    architectures=versions.ARCHITECTURES,
    versions="flannel 0.11 to 0.28",
    fidelity="equivalent",
    differences=KUBE_PROXY,
    default_mtu=LINK_MTU - VXLAN_HEADERS,
    max_mtu=LINK_MTU - VXLAN_HEADERS,
    needs=("bridge", "vxlan", "nftables", "br_netfilter"),
    lab=_vxlan,
    cluster=flannel_cluster.half(
        lambda asked: {"Type": "vxlan", "VNI": VNI, "Port": UDP_PORT},
        ReadyCondition(links=("flannel.1",), routes_to_peers=True),
        links=("flannel.*",),
    ),
)

HOSTGW = Network(
    name="flannel-hostgw",
    title="Flannel, host-gw backend",
    layer="L3 routes",
    encapsulation="",
    multicast="",
    encryption="",
    policy=False,
    architectures=versions.ARCHITECTURES,
    versions="flannel 0.11 to 0.28",
    fidelity="equivalent",
    differences=KUBE_PROXY,
    default_mtu=LINK_MTU,
    max_mtu=LINK_MTU,
    needs=("bridge", "nftables", "br_netfilter"),
    lab=_hostgw,
    cluster=flannel_cluster.half(lambda asked: {"Type": "host-gw"}, ReadyCondition(routes_to_peers=True)),
)
