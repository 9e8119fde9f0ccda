"""Plan WeaveNet's datapath: pods bridged on each node, and VXLAN between the nodes.

The lab replaces the Open vSwitch datapath by the kernel's bridge and VXLAN device: `datapath` is a bridge without
netfilter, like Open vSwitch, and forwards by learning instead of by flow rules.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Interface

from k8sdds.networks.common.bridge_cni import Bridge, NodePlan, bridge_pods, kube_forward, pod_datapath
from k8sdds.networks.datapath import Batch, Datapath, LabNode, Topology
from k8sdds.networks.network import Engine

POD_CIDR = "10.32.0.0/12"
VXLAN_PORT = 6784
PAPER_MTU = 1438
"""MTU of the pods in the K8sDDS paper: the maximum with the 62 bytes that Weave reserves for its overhead."""

_SYSCTLS = (
    ("net.ipv4.ip_forward", "1"),
    # The global switch would enable netfilter on the bridge `datapath` too, where Open vSwitch has none.
    # nf_call_iptables, below, enables it on the bridge `weave` only.
    ("net.bridge.bridge-nf-call-iptables", "0"),
)

_RULES = f"""
table ip nat {{
  chain WEAVE {{
    ip saddr {POD_CIDR} ip daddr 224.0.0.0/4 counter return
    ip saddr != {POD_CIDR} ip daddr {POD_CIDR} counter masquerade
    ip saddr {POD_CIDR} ip daddr != {POD_CIDR} counter masquerade
  }}
  chain POSTROUTING {{
    type nat hook postrouting priority srcnat; policy accept;
    counter jump WEAVE
  }}
}}
table ip filter {{{kube_forward()}
  chain WEAVE-NPC {{
    ct state related,established counter accept
    ip daddr 224.0.0.0/4 counter accept
    counter accept
  }}
  chain FORWARD {{
    type filter hook forward priority filter; policy accept;
    counter jump KUBE-FORWARD
    ct state new counter jump KUBE-SERVICES
    oifname "weave" counter jump WEAVE-NPC
    iifname "weave" counter accept
  }}
}}
"""


def fast_datapath(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath without encryption."""
    return datapath(topology, mtu)


def datapath(topology: Topology, mtu: int, endpoint: Callable[[LabNode], str] | None = None) -> Datapath:
    """Plan pods on `weave`, and VXLAN between the nodes.

    `endpoint` returns the address of a node's VXLAN device; by default the device is bound to eth0 and its address.
    """
    return pod_datapath(topology, mtu, lambda node: _on_node(topology, node, mtu, endpoint), _SYSCTLS)


def _on_node(
    topology: Topology, node: LabNode, mtu: int, endpoint: Callable[[LabNode], str] | None
) -> NodePlan:
    # With separate endpoints, packets pass a tunnel device first, so the VXLAN device is not bound to eth0.
    local = f"local {endpoint(node)}" if endpoint else f"dev eth0 local {node.address}"
    bridge = Bridge("weave", mtu, IPv4Interface(f"10.32.{node.index}.1/12"))
    lines, pod_batches, attachments = bridge_pods(
        topology, node, bridge, routes=("route add 224.0.0.0/4 dev eth0",)
    )
    vxlan = (
        "link set weave type bridge nf_call_iptables 1",
        f"link add datapath mtu {mtu} type bridge mcast_snooping 0",
        "link set datapath up",
        f"link add vethwe-bridge mtu {mtu} type veth peer name vethwe-datapath mtu {mtu}",
        "link set vethwe-bridge master weave up",
        "link set vethwe-datapath master datapath up",
        f"link add vxlan-6784 mtu {mtu} type vxlan id 1 {local} dstport {VXLAN_PORT} learning",
        "link set vxlan-6784 master datapath up",
    )
    flooding = tuple(
        f"fdb append 00:00:00:00:00:00 dev vxlan-6784 dst {endpoint(peer) if endpoint else peer.address}"
        " self permanent"
        for peer in topology.peers(node)
    )
    batches = [
        Batch(node.name, "ip", (*lines, *vxlan)),
        *pod_batches,
        Batch(node.name, "bridge", flooding),
        Batch(node.name, "nft", (_RULES,)),
    ]
    return batches, attachments
