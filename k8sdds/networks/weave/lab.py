"""WeaveNet: one emulated Ethernet for all pods, bridged on each node and carried between nodes by VXLAN.

Facts from Weave's documentation and sources (2.6 to 2.9): pods on the bridge `weave`, a veth pair
(vethwe-bridge, vethwe-datapath) to an Open vSwitch datapath, VXLAN on UDP port 6784 between all nodes,
addresses from 10.32.0.0/12, MTU 1376 unless WEAVE_MTU says otherwise (the study set 1438, the most that
fits the 62 bytes Weave reckons for its overhead). Multicast and broadcast go to every peer as unicast.

The lab replaces the Open vSwitch datapath by the kernel's bridge and VXLAN device: `datapath` is a
bridge without netfilter, as Open vSwitch has none, and forwards by learning instead of flow rules.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Interface

from k8sdds import versions
from k8sdds.networks.common.bridge_cni import Bridge, NodePart, bridge_pods, kube_forward, pod_datapath
from k8sdds.networks.network import LINK_MTU, Batch, Datapath, Engine, Network, Node, Topology
from k8sdds.networks.weave import cluster as weave_cluster

PODS = "10.32.0.0/12"
UDP_PORT = 6784
PAPER_MTU = 1438
VXLAN_HEADERS = 50

_SYSCTLS = (
    ("net.ipv4.ip_forward", "1"),
    # The machine-wide switch would make the `datapath` bridge call netfilter too, which Open vSwitch
    # never does; `weave` itself gets the switch of its own below.
    ("net.bridge.bridge-nf-call-iptables", "0"),
)


def _rules() -> str:
    return f"""
table ip nat {{
  chain WEAVE {{
    ip saddr {PODS} ip daddr 224.0.0.0/4 counter return
    ip saddr != {PODS} ip daddr {PODS} counter masquerade
    ip saddr {PODS} ip daddr != {PODS} counter masquerade
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


def _on_node(topology: Topology, node: Node, mtu: int, endpoint: Callable[[Node], str] | None) -> NodePart:
    # Bound to eth0 unless its packets are to pass a tunnel device first.
    local = f"local {endpoint(node)}" if endpoint else f"dev eth0 local {node.address}"
    bridge = Bridge("weave", mtu, IPv4Interface(f"10.32.{node.index}.1/12"))
    in_node, in_pods, attachments = bridge_pods(
        topology, node, bridge, routes=("route add 224.0.0.0/4 dev eth0",)
    )
    fast_datapath = (
        "link set weave type bridge nf_call_iptables 1",
        f"link add datapath mtu {mtu} type bridge mcast_snooping 0",
        "link set datapath up",
        f"link add vethwe-bridge mtu {mtu} type veth peer name vethwe-datapath mtu {mtu}",
        "link set vethwe-bridge master weave up",
        "link set vethwe-datapath master datapath up",
        f"link add vxlan-6784 mtu {mtu} type vxlan id 1 {local} dstport {UDP_PORT} learning",
        "link set vxlan-6784 master datapath up",
    )
    flooding = tuple(
        f"fdb append 00:00:00:00:00:00 dev vxlan-6784 dst {endpoint(peer) if endpoint else peer.address}"
        " self permanent"
        for peer in topology.peers(node)
    )
    batches = [
        Batch(node.name, "ip", (*in_node, *fast_datapath)),
        *in_pods,
        Batch(node.name, "bridge", flooding),
        Batch(node.name, "nft", (_rules(),)),
    ]
    return batches, attachments


def datapath(topology: Topology, mtu: int, endpoint: Callable[[Node], str] | None = None) -> Datapath:
    """Pods on `weave`, VXLAN between the nodes' addresses, or between those that `endpoint` gives."""
    return pod_datapath(topology, mtu, lambda node: _on_node(topology, node, mtu, endpoint), _SYSCTLS)


def _lab(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    return datapath(topology, mtu)


WEAVENET = Network(
    name="weavenet",
    title="WeaveNet, fast datapath",
    layer="L2 overlay",
    encapsulation="VXLAN",
    multicast="head-end replication: a copy to every node",
    encryption="",
    policy=True,
    architectures=versions.ARCHITECTURES,
    versions="Weave Net 2.6 to 2.9",
    fidelity="modelled",
    differences="Open vSwitch's datapath is replaced by the kernel's bridge and VXLAN device; the network"
    " policy chain accepts; kube-proxy's rules for Services are empty",
    default_mtu=PAPER_MTU,
    max_mtu=LINK_MTU - VXLAN_HEADERS,
    needs=("bridge", "vxlan", "nftables", "br_netfilter"),
    lab=_lab,
    cluster=weave_cluster.half(PAPER_MTU, encrypted=False),
    engine="Linux bridge",
)
