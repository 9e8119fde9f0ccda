"""Cilium with BPF host routing: programs at tc hand packets from device to device, past the nodes' network stack.

Facts from Cilium's documentation, its sources and its agent on a cluster (1.18.2): a program on the node's end of each
pod's veth pair looks the packet up in maps (connection tracking, identities of addresses, policies) and sends it to the
node's interface, with bpf_redirect_neigh, or to cilium_vxlan. A program there hands arriving packets to the pod's own
interface with bpf_redirect_peer. Packets of pods pass no packet filter rules and no connection tracking of the kernel;
the tunnel's packets do.
"""

from __future__ import annotations

from dataclasses import replace

from k8sdds.networks.cilium import cluster, lab
from k8sdds.networks.common import encapsulation
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.network import ClusterEngine, Network, NetworkColor
from k8sdds.networks.plugin import Plugin, Signs
from k8sdds.system.kernel_features import CLANG, IPTABLES, NFTABLES, NOTRACK, TC_BPF
from k8sdds.system.kernel_features import VXLAN as VXLAN_FEATURE


def _mode(signs: Signs) -> str:
    config = signs.config_maps.get("kube-system/cilium-config", {})
    if config.get("routing-mode") == "native" or config.get("tunnel") == "disabled":
        return "native"
    tunnel = config.get("tunnel-protocol") or config.get("tunnel") or ("vxlan" if config else "")
    return tunnel if tunnel in ("vxlan", "geneve") else ""


_PLUGIN = Plugin(
    "cilium", "Cilium", annotations=("network.cilium.io/*", "io.cilium.network.*"), reasons=("CiliumIsUp",),
    daemonsets=("cilium",), images=("*cilium/cilium", "*rancher/mirrored-cilium-cilium"),
    config_maps=("kube-system/cilium-config",), modes=("vxlan", "geneve", "native"), mode=_mode,
    # It is also chained with the plugins of others.
    precedence=2, published=True,
)  # fmt: skip

NATIVE = Network(
    name="cilium-native",
    title="Cilium, native routing, BPF host routing",
    layer="L3 routes",
    policy=True,
    versions="Cilium 1.18",
    fidelity="modelled",
    differences="programs of k8sdds replace Cilium's, with the same redirects and a lookup for each of its maps;"
    " entries are derived from addresses instead of written by the agent; each device has its own maps; there are no"
    " policies, Services, events and programs on sockets; the gateway of a pod is a permanent neighbor",
    default_mtu=LINK_MTU,
    requires=(CLANG, TC_BPF),
    lab=lab.native,
    no_cni_plugins="its plugin calls the agent of the node",
    ipv4_only="the lab's BPF programs process IPv4",
    color=NetworkColor("#5c7a00", "#b8e05a", ">"),
    cluster=cluster.native(),
    own_engine=cluster.REPLACEMENT,
    hides_engine=True,
    cluster_engines=(ClusterEngine(cluster.KUBE_PROXY, "kube-proxy", cluster.native(cluster.KUBE_PROXY)),),
    cluster_title="kube-proxy replacement",
    plugin=_PLUGIN,
    loss_exemption="the programs take packets before the rule that drops them",
)

VXLAN = replace(
    NATIVE,
    name="cilium-vxlan",
    title="Cilium, VXLAN, BPF host routing",
    layer="L2 overlay",
    encapsulation="VXLAN",
    default_mtu=LINK_MTU - encapsulation.VXLAN,
    requires=(VXLAN_FEATURE, NFTABLES, IPTABLES, NOTRACK, *NATIVE.requires),
    lab=lab.vxlan,
    cluster=cluster.vxlan(),
    cluster_engines=(ClusterEngine(cluster.KUBE_PROXY, "kube-proxy", cluster.vxlan(cluster.KUBE_PROXY)),),
    color=NetworkColor("#006d77", "#5fd3dd", "H"),
    loss_exemption="",
)

NETWORKS = (NATIVE, VXLAN)
