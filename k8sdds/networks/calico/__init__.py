"""Calico with iptables: routed pods, with BGP, VXLAN or IP in IP between the nodes.

Facts from Calico's documentation and the sources of Felix (v3.30). Every pod has a veth pair without a bridge, an
address with 32 bits and the gateway 169.254.1.1. Each packet passes rules in raw (reverse path), mangle and filter,
where the chains of the pod come before those of kube-proxy. Calico can also use nftables or BPF instead of iptables.
"""

from __future__ import annotations

from dataclasses import replace

from k8sdds.networks.calico import cluster, lab
from k8sdds.networks.common import encapsulation
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.network import Network, NetworkColor
from k8sdds.networks.plugin import Plugin, Signs
from k8sdds.system.kernel_features import IPIP as IPIP_FEATURE
from k8sdds.system.kernel_features import IPTABLES, NFTABLES, NOTRACK, RPFILTER
from k8sdds.system.kernel_features import VXLAN as VXLAN_FEATURE


def _mode(signs: Signs) -> str:
    keys = {key.rpartition("/")[2] for key in signs.annotations}
    modes = {"IPv4VXLANTunnelAddr": "vxlan", "IPv4IPIPTunnelAddr": "ipip", "IPv4Address": "bgp"}
    return next((mode for key, mode in modes.items() if key in keys), "")


_REQUIRES = (NFTABLES, IPTABLES, RPFILTER)

_PLUGIN = Plugin(
    "calico", "Calico", annotations=("projectcalico.org/IPv*",), reasons=("CalicoIsUp",),
    daemonsets=("calico-node",), namespaces=("calico-system", "kube-system"),
    images=("*calico/node", "*mirrored-calico-node"), modes=("vxlan", "ipip", "bgp"), mode=_mode,
    precedence=1, published=True,
)  # fmt: skip

BGP = Network(
    name="calico-bgp",
    title="Calico, BGP without encapsulation",
    layer="L3 routes",
    policy=True,
    versions="Calico 3.26 to 3.30",
    fidelity="equivalent",
    differences="routes are static instead of learned by BGP; ranges of addresses replace the ipsets of the rules; the"
    " chains that select a pod's chain are lists instead of trees; nodes have a route to 169.254.1.1 instead of a"
    " default route; tracked packets are not counted (nf_conntrack_acct); kube-proxy's rules for Services are empty",
    default_mtu=LINK_MTU,
    requires=_REQUIRES,
    lab=lab.bgp,
    no_cni_plugins="its plugin reserves addresses through the API server",
    color=NetworkColor("#c77700", "#ffb84d", "p"),
    plugin=_PLUGIN,
    cluster=cluster.BGP,
)

VXLAN = replace(
    BGP,
    name="calico-vxlan",
    title="Calico, VXLAN",
    encapsulation="VXLAN",
    layer="L2 overlay",
    differences=BGP.differences.replace("learned by BGP", "added by Felix"),
    default_mtu=LINK_MTU - encapsulation.VXLAN,
    requires=(VXLAN_FEATURE, NOTRACK, *_REQUIRES),
    lab=lab.vxlan,
    cluster=cluster.VXLAN,
    ipv6_overhead=encapsulation.OUTER_IPV6,
    color=NetworkColor("#8c5a00", "#e0a85a", "h"),
)

IPIP = replace(
    BGP,
    name="calico-ipip",
    title="Calico, IP in IP",
    encapsulation="IP in IP",
    default_mtu=LINK_MTU - encapsulation.IPIP,
    requires=(IPIP_FEATURE, *_REQUIRES),
    lab=lab.ipip,
    cluster=cluster.IPIP,
    ipv4_only="Calico has IP in IP for IPv4 alone",
    color=NetworkColor("#a34700", "#ff9f66", "d"),
    loss_exemption="the rule drops only UDP packets, but these are IP in IP",
)

NETWORKS = (BGP, VXLAN, IPIP)
