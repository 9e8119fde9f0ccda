"""Flannel, with its VXLAN, host-gw, IPsec and WireGuard backends.

Facts from flannel's documentation and sources (v0.28). Pods are on the bridge cni0; the backend carries packets
between nodes. host-gw adds a route through every other node's address, so all nodes must be in one subnet.
"""

from __future__ import annotations

import json
from dataclasses import replace

from k8sdds.networks.common import encapsulation
from k8sdds.networks.common.kernel_differences import BRIDGED_WITH_KUBE_PROXY
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.flannel import cluster, lab
from k8sdds.networks.network import Difference, Network, NetworkColor
from k8sdds.networks.plugin import K3S, Plugin, Signs
from k8sdds.system.kernel_features import BR_NETFILTER, BRIDGE, IPTABLES, NFT_INGRESS, NFTABLES
from k8sdds.system.kernel_features import VXLAN as VXLAN_FEATURE

_KUBE_PROXY = "kube-proxy's rules for Services are empty; no flanneld and no kubelet run"
_CONFIG = ("kube-flannel/kube-flannel-cfg", "kube-system/kube-flannel-cfg")


def backend(signs: Signs) -> str:
    """Return Flannel's backend by the annotation that flanneld writes on its node, or an empty string."""
    return signs.annotations.get("flannel.alpha.coreos.com/backend-type", "").replace("-", "")


def _mode(signs: Signs) -> str:
    if found := backend(signs):
        return found
    config = next((signs.config_maps[name] for name in _CONFIG if name in signs.config_maps), {})
    try:
        return str(json.loads(config.get("net-conf.json", "{}"))["Backend"]["Type"]).replace("-", "")
    except (ValueError, KeyError, TypeError):
        return ""


_PLUGIN = Plugin(
    "flannel", "Flannel", annotations=("flannel.alpha.coreos.com/*",), reasons=("FlannelIsUp",),
    daemonsets=("kube-flannel-ds*",), namespaces=("kube-flannel", "kube-system"), embedded=(K3S,),
    images=("*flannel", "*flanneld"), config_maps=_CONFIG,
    modes=("vxlan", "hostgw", "ipsec", "wireguard", "udp", "ipip", "extension"), mode=_mode,
    # Its annotations remain on nodes of K3s, whose process would be its agent.
    precedence=-2,
)  # fmt: skip

HOSTGW = Network(
    name="flannel-hostgw",
    title="Flannel, host-gw backend",
    layer="L3 routes",
    versions="flannel 0.11 to 0.28",
    fidelity="equivalent",
    differences=_KUBE_PROXY,
    default_mtu=LINK_MTU,
    requires=(BRIDGE, NFTABLES, IPTABLES, BR_NETFILTER),
    lab=lab.hostgw,
    color=NetworkColor("#aa4499", "#e08ad2", "^"),
    cluster=cluster.HOSTGW,
    plugin=_PLUGIN,
    cni_plugins=lab.plugins,
    aliases=("flannel-host-gw", "hostgw", "host-gw"),
    suggested=True,
    kernel_differences=BRIDGED_WITH_KUBE_PROXY,
)

VXLAN = replace(
    HOSTGW,
    name="flannel-vxlan",
    title="Flannel, VXLAN backend",
    layer="L2 overlay",
    encapsulation="VXLAN",
    default_mtu=LINK_MTU - encapsulation.VXLAN,
    requires=(VXLAN_FEATURE, *HOSTGW.requires),
    lab=lab.vxlan,
    ipv6_overhead=encapsulation.OUTER_IPV6,
    color=NetworkColor("#0072b2", "#4ba6e8", "s"),
    cluster=cluster.VXLAN,
    aliases=("vxlan",),
    kernel_differences=(
        *BRIDGED_WITH_KUBE_PROXY,
        Difference(
            "`flannel.1` has a queue length",
            "none",
            "nothing: a link without a queue does not use the length",
            lab=(r"^link flannel\.1: txqlen 1000$",),
        ),
    ),
)

_ENCRYPTED = replace(
    HOSTGW,
    requires=(*HOSTGW.requires, NFT_INGRESS),
    unencrypted="flannel-hostgw",
    aliases=(),
    kernel_differences=(),
)

IPSEC = replace(
    _ENCRYPTED,
    name="flannel-ipsec",
    title="Flannel, IPsec backend",
    encapsulation="ESP",
    encryption="AES-128-GCM, IKEv2 with a pre-shared key",
    differences="charon installs the policies that flanneld installs itself; the userspace engine wraps ESP in UDP"
    " and encrypts in charon's threads, which costs several times as much CPU as the kernel's ESP; "
    + _KUBE_PROXY,
    default_mtu=lab.PAPER_MTU,
    lab=lab.ipsec,
    ipv4_only="Flannel's IPsec backend has no IPv6",
    color=NetworkColor("#332288", "#a698ff", "P"),
    cluster=cluster.IPSEC,
    engines=lab.IPSEC_ENGINES,
)

WIREGUARD = replace(
    _ENCRYPTED,
    name="flannel-wireguard",
    title="Flannel, WireGuard backend",
    encapsulation="WireGuard",
    encryption="ChaCha20-Poly1305, WireGuard",
    versions="flannel 0.16 to 0.28",
    differences="the name of the WireGuard device contains the node's number; the userspace engine encrypts in"
    " wireguard-go; " + _KUBE_PROXY,
    default_mtu=lab.WIREGUARD_MTU,
    lab=lab.wireguard,
    ipv4_only="k8sdds configures WireGuard's peers with IPv4 addresses",
    color=NetworkColor("#1f7a7a", "#66cfcf", "8"),
    cluster=cluster.WIREGUARD,
    engines=lab.WIREGUARD_ENGINES,
)

NETWORKS = (VXLAN, HOSTGW, IPSEC, WIREGUARD)
