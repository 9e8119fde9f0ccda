"""Flannel, with its VXLAN, host-gw, IPsec and WireGuard backends.

Facts from flannel's documentation and sources (v0.28). Pods are on the bridge cni0; the backend carries packets
between nodes. host-gw adds a route through every other node's address, so all nodes must be in one subnet.
"""

from __future__ import annotations

from k8sdds.networks.common import overhead
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.flannel import cluster, ipsec, lab, plugins, wireguard
from k8sdds.networks.network import Network, NetworkColor
from k8sdds.system.kernel_features import BR_NETFILTER, BRIDGE, IPTABLES, NFT_INGRESS, NFTABLES
from k8sdds.system.kernel_features import VXLAN as VXLAN_FEATURE
from k8sdds.versions import ARCHITECTURES

_KUBE_PROXY = "kube-proxy's rules for Services are empty; no flanneld and no kubelet run"
_AGENT_PODS = ("kube-flannel/kube-flannel-ds-*", "kube-system/kube-flannel-ds-*")

VXLAN = Network(
    name="flannel-vxlan",
    title="Flannel, VXLAN backend",
    layer="L2 overlay",
    encapsulation="VXLAN",
    multicast="",
    encryption="",
    policy=False,
    architectures=ARCHITECTURES,
    versions="flannel 0.11 to 0.28",
    fidelity="equivalent",
    differences=_KUBE_PROXY,
    default_mtu=LINK_MTU - overhead.VXLAN,
    max_mtu=LINK_MTU - overhead.VXLAN,
    requires=(BRIDGE, VXLAN_FEATURE, NFTABLES, IPTABLES, BR_NETFILTER),
    lab=lab.vxlan,
    ipv6_overhead=overhead.OUTER_IPV6,
    color=NetworkColor("#0072b2", "#4ba6e8", "s"),
    cluster=cluster.VXLAN,
    agent_pods=_AGENT_PODS,
    cni_plugins=plugins.plugins,
    aliases=("vxlan",),
)

HOSTGW = Network(
    name="flannel-hostgw",
    title="Flannel, host-gw backend",
    layer="L3 routes",
    encapsulation="",
    multicast="",
    encryption="",
    policy=False,
    architectures=ARCHITECTURES,
    versions="flannel 0.11 to 0.28",
    fidelity="equivalent",
    differences=_KUBE_PROXY,
    default_mtu=LINK_MTU,
    max_mtu=LINK_MTU,
    requires=(BRIDGE, NFTABLES, IPTABLES, BR_NETFILTER),
    lab=lab.hostgw,
    color=NetworkColor("#aa4499", "#e08ad2", "^"),
    cluster=cluster.HOSTGW,
    agent_pods=_AGENT_PODS,
    cni_plugins=plugins.plugins,
    aliases=("flannel-host-gw", "hostgw", "host-gw"),
)

IPSEC = Network(
    name="flannel-ipsec",
    title="Flannel, IPsec backend",
    layer="L3 routes",
    encapsulation="ESP",
    multicast="",
    encryption="AES-128-GCM, IKEv2 with a pre-shared key",
    policy=False,
    architectures=ARCHITECTURES,
    versions="flannel 0.11 to 0.28",
    fidelity="equivalent",
    differences="charon installs the policies that flanneld installs itself; the userspace engine wraps ESP in UDP"
    " and encrypts in charon's threads, which costs several times as much CPU as the kernel's ESP; "
    + _KUBE_PROXY,
    default_mtu=ipsec.PAPER_MTU,
    max_mtu=LINK_MTU - overhead.ESP_TUNNEL,
    requires=(BRIDGE, NFTABLES, IPTABLES, BR_NETFILTER, NFT_INGRESS),
    lab=ipsec.datapath,
    ipv4_only="Flannel's IPsec backend has no IPv6",
    color=NetworkColor("#332288", "#a698ff", "P"),
    cluster=cluster.IPSEC,
    unencrypted="flannel-hostgw",
    engines=ipsec.ENGINES,
    agent_pods=_AGENT_PODS,
    cni_plugins=plugins.plugins,
)

WIREGUARD = Network(
    name="flannel-wireguard",
    title="Flannel, WireGuard backend",
    layer="L3 routes",
    encapsulation="WireGuard",
    multicast="",
    encryption="ChaCha20-Poly1305, WireGuard",
    policy=False,
    architectures=ARCHITECTURES,
    versions="flannel 0.16 to 0.28",
    fidelity="equivalent",
    differences="the name of the WireGuard device contains the node's number; the userspace engine encrypts in"
    " wireguard-go; " + _KUBE_PROXY,
    default_mtu=wireguard.DEFAULT_MTU,
    max_mtu=wireguard.MAX_MTU,
    requires=(BRIDGE, NFTABLES, IPTABLES, BR_NETFILTER, NFT_INGRESS),
    lab=wireguard.datapath,
    ipv4_only="k8sdds configures WireGuard's peers with IPv4 addresses",
    color=NetworkColor("#1f7a7a", "#66cfcf", "8"),
    cluster=cluster.WIREGUARD,
    unencrypted="flannel-hostgw",
    engines=wireguard.ENGINES,
    agent_pods=_AGENT_PODS,
    cni_plugins=plugins.plugins,
)
