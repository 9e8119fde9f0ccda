"""Plan WeaveNet's datapath: pods bridged on each node, and VXLAN between the nodes.

The lab replaces the Open vSwitch datapath by the kernel's bridge and VXLAN device: `datapath` is a bridge without
netfilter, like Open vSwitch, and forwards by learning instead of by flow rules.

With encryption (WEAVE_PASSWORD), the kernel's ESP encrypts the VXLAN packets of the fast datapath in transport mode
with AES-256-GCM; the weave routers negotiate the keys. In the lab, IKEv2 negotiates them. The userspace engine has no
transport mode. There the VXLAN devices use separate addresses, with an ESP tunnel between every two of them. Multicast
takes the same path as on `weavenet`: a copy to every node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Interface

from k8sdds.networks.common import encapsulation, iptables, strongswan
from k8sdds.networks.common.bridge_cni import FORWARDING, Bridge, NodePlan, Sysctls, bridge_pods, pod_datapath
from k8sdds.networks.common.iptables import comment
from k8sdds.networks.datapath import LINK_MTU, Batch, Datapath, LabNode, Topology
from k8sdds.networks.network import Engine

POD_CIDR = "10.32.0.0/12"
VXLAN_PORT = 6784
CONTROL_PORT = 6784
"""TCP port of weaver's API."""
PAPER_MTU = 1438
"""MTU of the pods in the K8sDDS paper: the maximum with the 62 bytes that Weave reserves for its overhead."""

_SYSCTLS: Sysctls = {
    "ipv4": (
        *FORWARDING["ipv4"],
        # The global switch would enable netfilter on the bridge `datapath` too, where Open vSwitch has none.
        # nf_call_iptables, below, enables it on the bridge `weave` only.
        ("net.bridge.bridge-nf-call-iptables", "0"),
    )
}

_MULTICAST = "224.0.0.0/4"
_ALLOWED = "0x40000/0x40000"
"""Mark of packets that a pod may send."""
_FROM_OTHER_NODES = "-m physdev --physdev-is-bridged --physdev-in=vethwe-bridge"
_TO_OTHER_NODES = "-m physdev --physdev-is-bridged --physdev-out=vethwe-bridge"
_NEW, _KNOWN = "-m state --state NEW", "-m state --state RELATED,ESTABLISHED"

_NAT = {
    "POSTROUTING": ("-j WEAVE",),
    "WEAVE": (
        f"-s {POD_CIDR} -d {_MULTICAST} -j RETURN",
        f"! -s {POD_CIDR} -d {POD_CIDR} -j MASQUERADE",
        f"-s {POD_CIDR} ! -d {POD_CIDR} -j MASQUERADE",
    ),
}

_INPUT = (
    f"-d 127.0.0.1/32 -p tcp -m tcp --dport {CONTROL_PORT} -m addrtype ! --src-type LOCAL -m conntrack"
    f" ! --ctstate RELATED,ESTABLISHED {comment('block non-local access to the control port')} -j DROP",
    "-i weave -j WEAVE-NPC-EGRESS",
)

_FILTER = {
    "FORWARD": (
        f"-i weave {comment('before KUBE-FORWARD')} -j WEAVE-NPC-EGRESS",
        f"-o weave {comment('before KUBE-FORWARD')} -j WEAVE-NPC",
        f"-o weave {_NEW} -j NFLOG --nflog-group 86",
        "-o weave -j DROP",
        "-i weave ! -o weave -j ACCEPT",
        "-o weave -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    ),
    "WEAVE-NPC": (
        f"{_KNOWN} -j ACCEPT",
        f"-d {_MULTICAST} -j ACCEPT",
        f"{_TO_OTHER_NODES} -j ACCEPT",
        f"{_NEW} -j WEAVE-NPC-DEFAULT",
        f"{_NEW} -j WEAVE-NPC-INGRESS",
    ),
    "WEAVE-NPC-DEFAULT": (f"-d {POD_CIDR} {comment('pods without an ingress policy')} -j ACCEPT",),
    "WEAVE-NPC-INGRESS": (),
    "WEAVE-NPC-EGRESS": (
        f"{_KNOWN} -j ACCEPT",
        f"{_FROM_OTHER_NODES} -j RETURN",
        "-m addrtype --dst-type LOCAL -j RETURN",
        f"-d {_MULTICAST} -j RETURN",
        f"{_NEW} -j WEAVE-NPC-EGRESS-DEFAULT",
        f"{_NEW} -m mark ! --mark {_ALLOWED} -j WEAVE-NPC-EGRESS-CUSTOM",
    ),
    "WEAVE-NPC-EGRESS-DEFAULT": (
        f"-s {POD_CIDR} {comment('pods without an egress policy')} -j WEAVE-NPC-EGRESS-ACCEPT",
        f"-s {POD_CIDR} {comment('pods without an egress policy')} -j RETURN",
    ),
    "WEAVE-NPC-EGRESS-CUSTOM": (),
    "WEAVE-NPC-EGRESS-ACCEPT": (f"-j MARK --set-xmark {_ALLOWED}",),
}
"""The chains of weave-npc with one Kubernetes namespace and without policies. An address range replaces the ipset with
the addresses of the namespace's pods."""

_IN_POD = {
    "filter": {
        "INPUT": (f"-s {POD_CIDR} -d {_MULTICAST} -i eth0 -j ACCEPT", f"-d {_MULTICAST} -i eth0 -j DROP"),
    }
}
"""Rules of Weave's CNI plugin in each pod, which every received packet passes."""

_NEIGHBOR_SYSCTLS = (("base_reachable_time", "5"), ("delay_first_probe_time", "2"), ("ucast_solicit", "1"))
"""How Weave verifies neighbors of its bridge and of pods: sooner than the kernel does by default."""


def datapath(
    topology: Topology,
    mtu: int,
    engine: Engine | None = None,
    endpoint: Callable[[LabNode], str] | None = None,
) -> Datapath:
    """Plan pods on `weave`, and VXLAN between the nodes.

    `endpoint` returns the address of a node's VXLAN device; by default the device is bound to eth0 and its address.
    """
    plain = pod_datapath(topology, mtu, partial(_on_node, topology, mtu, endpoint), _SYSCTLS)
    links = [(node.name, "weave") for node in topology.nodes] + [(pod.name, "eth0") for pod in topology.pods]
    neighbors = tuple(
        (namespace, f"net.ipv4.neigh.{link}.{key}", value)
        for namespace, link in links
        for key, value in _NEIGHBOR_SYSCTLS
    )
    rules = tuple(Batch(pod.name, "iptables", iptables.tables_text(_IN_POD)) for pod in topology.pods)
    return replace(plain, batches=(*plain.batches, *rules), link_sysctls=neighbors)


def _on_node(
    topology: Topology, mtu: int, endpoint: Callable[[LabNode], str] | None, node: LabNode, plan: NodePlan
) -> None:
    # With separate endpoints, packets pass a tunnel device first, so the VXLAN device is not bound to eth0.
    local = f"local {endpoint(node)}" if endpoint else f"dev eth0 local {node.address}"
    bridge = Bridge("weave", mtu, IPv4Interface(f"10.32.{node.index}.1/12"))
    bridge_pods(topology, node, bridge, plan)
    plan.ip += [
        "link set weave type bridge nf_call_iptables 1",
        f"link add datapath mtu {mtu} type bridge mcast_snooping 0",
        "link set datapath up",
        f"link add vethwe-bridge mtu {mtu} type veth peer name vethwe-datapath mtu {mtu}",
        "link set vethwe-bridge master weave up",
        "link set vethwe-datapath master datapath up",
        f"link add vxlan-6784 mtu {mtu} type vxlan id 1 {local} dstport {VXLAN_PORT} learning",
        "link set vxlan-6784 master datapath up",
    ]
    flooding = tuple(
        f"fdb append 00:00:00:00:00:00 dev vxlan-6784 dst {endpoint(peer) if endpoint else peer.address}"
        " self permanent"
        for peer in topology.peers(node)
    )
    plan.after += [
        Batch(node.name, "bridge", flooding),
        iptables.kubernetes_batch(
            node, before={"filter": _FILTER}, after={"filter": {"INPUT": _INPUT}, "nat": _NAT}
        ),
    ]


# -- encryption --------------------------------------------------------------------------------------------

CIPHER = "aes256gcm16"
PAPER_MTU_ENCRYPTED = 1414
"""MTU of the pods in the K8sDDS paper."""
_MAX_USERSPACE_MTU = strongswan.TUN_MTU - encapsulation.VXLAN

ENGINES = strongswan.engines(
    "transport",
    (PAPER_MTU_ENCRYPTED, LINK_MTU - encapsulation.VXLAN - encapsulation.ESP_TRANSPORT),
    (_MAX_USERSPACE_MTU - 20, _MAX_USERSPACE_MTU),
)


def encrypted(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the encrypted datapath."""
    if engine is not None and engine.mode == "tunnel":
        endpoints = tuple(
            Batch(node.name, "ip", (f"addr add {_endpoint(node)}/32 dev lo",)) for node in topology.nodes
        )
        plain = datapath(topology, mtu, endpoint=_endpoint)
        plain = replace(plain, batches=(*endpoints, *plain.batches))
        return strongswan.encrypted(plain, topology, engine, CIPHER, _tunnel_selectors)
    plain = datapath(topology, mtu)
    return strongswan.encrypted(plain, topology, engine, CIPHER, _transport_selectors)


def _endpoint(node: LabNode) -> str:
    """Return the address of a node's VXLAN device in tunnel mode."""
    return f"172.31.0.{10 + node.index}"


def _tunnel_selectors(node: LabNode, peer: LabNode) -> tuple[str, str]:
    return f"{_endpoint(node)}/32", f"{_endpoint(peer)}/32"


def _transport_selectors(node: LabNode, peer: LabNode) -> tuple[str, str]:
    # All UDP between the nodes, because VXLAN's source ports vary. charon exempts IKE by separate policies.
    return f"{node.address}/32[udp]", f"{peer.address}/32[udp]"
