"""Plan Kube-router's datapath for nodes of one subnet.

Pods are on kube-bridge, routes lead to the other nodes' addresses. Sets of pod subnets and node addresses decide what
is masqueraded, and network policy chains come before every other forward rule.
"""

from __future__ import annotations

from ipaddress import IPv4Interface

from k8sdds.networks.common.bridge_cni import (
    NODE_SYSCTLS,
    Bridge,
    NodePlan,
    bridge_pods,
    kube_forward,
    pod_datapath,
)
from k8sdds.networks.datapath import Batch, Datapath, LabNode, Topology
from k8sdds.networks.network import Engine

BGP_PROTOCOL = 17
"""Routing protocol number of the routes that kube-router adds."""


def datapath(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath."""

    def plan_node(node: LabNode) -> NodePlan:
        bridge = Bridge("kube-bridge", mtu, IPv4Interface(f"{node.pod_subnet.network_address + 1}/24"))
        lines, pod_batches, attachments = bridge_pods(topology, node, bridge)
        routes = [
            f"route add {peer.pod_subnet} via {peer.address} dev eth0 proto {BGP_PROTOCOL}"
            for peer in topology.peers(node)
        ]
        batches = [Batch(node.name, "ip", (*lines, *routes)), *pod_batches]
        return [*batches, Batch(node.name, "nft", (_rules(topology, node),))], attachments

    return pod_datapath(topology, mtu, plan_node, NODE_SYSCTLS)


def _rules(topology: Topology, node: LabNode) -> str:
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
