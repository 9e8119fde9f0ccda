"""Kube-router: pods on the bridge kube-bridge, routes between nodes learned by BGP.

Facts from kube-router's documentation and sources (v2.11): nodes of one subnet get plain routes with
routing protocol 17 and no tunnel; the pods' MTU is 1480 all the same, since --auto-mtu leaves room for
IP-in-IP; masquerade by sets of pod and node addresses; network policy chains before every forward.
"""

from __future__ import annotations

from ipaddress import IPv4Interface

from k8sdds.model.network import LINK_MTU, Batch, Datapath, Engine, Network, Node, Topology
from k8sdds.networks.pods import NODE_SYSCTLS, Bridge, NodePart, bridge_pods, kube_forward, pod_datapath

IPIP_HEADER = 20
BGP_ROUTES = 17
"""Routing protocol number with which kube-router marks its routes."""


def _rules(topology: Topology, node: Node) -> str:
    pod_subnets = ", ".join(str(other.pod_subnet) for other in topology.nodes)
    node_addresses = ", ".join(other.address for other in topology.nodes)
    return f"""
table ip nat {{
  set kube-router-pod-subnets {{ type ipv4_addr; flags interval; elements = {{ {pod_subnets} }}; }}
  set kube-router-node-ips {{ type ipv4_addr; elements = {{ {node_addresses} }}; }}
  chain POSTROUTING {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr @kube-router-pod-subnets ip daddr != @kube-router-pod-subnets \
ip daddr != @kube-router-node-ips counter masquerade fully-random
  }}
}}
table ip filter {{{kube_forward()}
  chain KUBE-ROUTER-FORWARD {{
    ip saddr {node.pod_subnet} counter jump KUBE-POD-FW
    ip daddr {node.pod_subnet} counter jump KUBE-POD-FW
    oifname "kube-bridge" counter accept
    iifname "kube-bridge" counter accept
  }}
  chain KUBE-POD-FW {{
    ct state related,established counter accept
    counter meta mark set meta mark | 0x00020000
  }}
  chain FORWARD {{
    type filter hook forward priority filter; policy accept;
    counter jump KUBE-ROUTER-FORWARD
    counter jump KUBE-FORWARD
    ct state new counter jump KUBE-SERVICES
  }}
}}
"""


def _lab(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    def on_node(node: Node) -> NodePart:
        bridge = Bridge("kube-bridge", mtu, IPv4Interface(f"{node.pod_subnet.network_address + 1}/24"))
        in_node, in_pods, attached = bridge_pods(topology, node, bridge)
        routes = [
            f"route add {peer.pod_subnet} via {peer.address} dev eth0 proto {BGP_ROUTES}"
            for peer in topology.peers(node)
        ]
        batches = [Batch(node.name, "ip", (*in_node, *routes)), *in_pods]
        return [*batches, Batch(node.name, "nft", (_rules(topology, node),))], attached

    return pod_datapath(topology, mtu, on_node, NODE_SYSCTLS)


KUBE_ROUTER = Network(
    name="kube-router",
    title="Kube-router, nodes of one subnet",
    layer="L3 routes",
    encapsulation="",
    multicast="",
    encryption="",
    policy=True,
    architectures=("amd64", "arm64", "arm"),
    versions="kube-router 0.3 to 2.11",
    fidelity="equivalent",
    differences="routes are set once instead of learned by BGP; one policy chain stands for all pods' chains;"
    " kube-proxy's rules for Services are empty",
    default_mtu=LINK_MTU - IPIP_HEADER,
    max_mtu=LINK_MTU,
    needs=("bridge", "nftables", "br_netfilter"),
    lab=_lab,
)
