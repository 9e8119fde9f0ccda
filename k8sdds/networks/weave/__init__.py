"""WeaveNet, with and without encryption: one emulated Ethernet for all pods.

Facts from Weave's documentation and sources (2.6 to 2.9): pods are on the bridge `weave`, which a veth pair
(vethwe-bridge, vethwe-datapath) connects to an Open vSwitch datapath; VXLAN on UDP port 6784 connects all nodes. Pod
addresses are from 10.32.0.0/12. The default MTU is 1376; WEAVE_MTU overrides it. Multicast and broadcast reach every
peer as unicast copies.
"""

from __future__ import annotations

from dataclasses import replace

from k8sdds.networks.common import overhead
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.network import ClusterEngine, Network, NetworkColor
from k8sdds.networks.weave import cluster, encryption, lab
from k8sdds.system.kernel_features import BR_NETFILTER, BRIDGE, IPTABLES, NFT_INGRESS, NFTABLES, VXLAN
from k8sdds.versions import ARCHITECTURES

WEAVENET = Network(
    name="weavenet",
    title="WeaveNet, fast datapath",
    layer="L2 overlay",
    encapsulation="VXLAN",
    multicast="head-end replication: a copy to every node",
    encryption="",
    policy=True,
    architectures=ARCHITECTURES,
    versions="Weave Net 2.6 to 2.9",
    fidelity="modelled",
    differences="Open vSwitch's datapath is replaced by the kernel's bridge and VXLAN device; ranges of"
    " addresses replace the ipsets of the network policy chains; kube-proxy's rules for Services are empty",
    default_mtu=lab.PAPER_MTU,
    max_mtu=LINK_MTU - overhead.VXLAN,
    requires=(BRIDGE, VXLAN, NFTABLES, IPTABLES, BR_NETFILTER),
    lab=lab.fast_datapath,
    no_cni_plugins="its plugin calls the router of the node",
    ipv4_only="WeaveNet has no IPv6",
    color=NetworkColor("#d55e00", "#ff9248", "D"),
    cluster=cluster.cluster_install(lab.PAPER_MTU),
    own_engine=cluster.FASTDP,
    cluster_engines=(
        ClusterEngine("sleeve", "userspace sleeve", cluster.cluster_install(lab.PAPER_MTU, engine="sleeve")),
    ),
    replacement="Linux bridge",
    cluster_title="Open vSwitch",
    agent_pods=("kube-system/weave-net-*",),
    aliases=("weave-net", "weave"),
)

WEAVENET_ENCRYPT = replace(
    WEAVENET,
    name="weavenet-encrypt",
    title="WeaveNet, fast datapath, encrypted",
    encapsulation="VXLAN in ESP",
    encryption="AES-256-GCM, IKEv2 with a pre-shared key",
    differences=WEAVENET.differences
    + "; IKEv2 negotiates the keys instead of the weave routers; the userspace"
    " engine wraps ESP in UDP, in tunnel mode, and encrypts in charon's threads, which costs several times as much"
    " CPU as the kernel's ESP",
    default_mtu=encryption.PAPER_MTU,
    max_mtu=encryption.MAX_MTU,
    requires=(*WEAVENET.requires, NFT_INGRESS),
    lab=encryption.datapath,
    color=NetworkColor("#882255", "#e27aa9", "X"),
    cluster=cluster.cluster_install(encryption.PAPER_MTU, encrypted=True),
    unencrypted="weavenet",
    cluster_engines=(),
    cluster_title=None,
    replacement=None,
    engines=encryption.ENGINES,
    aliases=("weave-encrypt", "weavenet-encrypted", "weavenet-ipsec"),
)
