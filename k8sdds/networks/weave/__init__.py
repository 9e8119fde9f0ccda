"""WeaveNet, with and without encryption: one emulated Ethernet for all pods.

Facts from Weave's documentation and sources (2.6 to 2.9): pods are on the bridge `weave`, which a veth pair
(vethwe-bridge, vethwe-datapath) connects to an Open vSwitch datapath; VXLAN on UDP port 6784 connects all nodes. Pod
addresses are from 10.32.0.0/12. The default MTU is 1376; WEAVE_MTU overrides it. Multicast and broadcast reach every
peer as unicast copies.
"""

from __future__ import annotations

from dataclasses import replace

from k8sdds.networks.cluster_install import containers
from k8sdds.networks.common import encapsulation
from k8sdds.networks.common.kernel_differences import DEFAULT_ROUTE
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.network import ClusterEngine, Difference, Network, NetworkColor
from k8sdds.networks.plugin import Plugin, Signs
from k8sdds.networks.weave import cluster, lab
from k8sdds.system.kernel_features import BR_NETFILTER, BRIDGE, IPTABLES, NFT_INGRESS, NFTABLES, VXLAN


def _mode(signs: Signs) -> str:
    daemonset = (signs.daemonsets or {}).get("weave-net", {})
    variables = [variable["name"] for each in containers(daemonset) for variable in each.get("env", ())]
    return "encrypt" if "WEAVE_PASSWORD" in variables else ""


_PLUGIN = Plugin(
    "weavenet", "WeaveNet", reasons=("WeaveIsUp",), daemonsets=("weave-net",), images=("*weave-kube",),
    modes=("encrypt",), mode=_mode,
)  # fmt: skip

_KERNEL_DIFFERENCES = (
    DEFAULT_ROUTE,
    Difference(
        "`datapath` is a bridge that learns, with a VXLAN device that copies to every peer (head-end replication)",
        "`datapath` is one of Open vSwitch, with flow rules and a VXLAN port without an MTU of its own",
        "not measured: the kernel here has no Open vSwitch",
        lab=(
            r"^link (datapath|vethwe-datapath|vxlan-6784): ", r"^fdb vxlan-6784: ", r"^offload datapath: ",
            # Open vSwitch has no netfilter, so only the bridge of the pods passes it.
            r"^link weave: bridge\.nf_call_iptables 1$", r"^sysctl net/bridge/bridge-nf-call-iptables: 0$",
        ),
        daemon=(
            r"^link (datapath|vethwe-datapath|vxlan-6784): ", r"^offload datapath: ",
            r"^link weave: bridge\.nf_call_iptables 0$", r"^sysctl net/bridge/bridge-nf-call-iptables: 1$",
        ),
    ),
    Difference(
        "`weave` and the pods have the first addresses of a range for each node",
        "IPAM allocates their addresses from parts of one range",
        "nothing: all are in one subnet",
        lab=(
            r"^(pod )?address (weave|eth0): 10\.32\.", r"^route (main|local): .* dev weave ",
            r"^pod route main: unicast default ",
        ),
        daemon=(r"^(pod )?address (weave|eth0): 10\.32\.",),
    ),
    Difference(
        "addresses of pods are not excluded from masquerading by an ipset",
        "the ipset `weaver-no-masq-local`",
        "nothing: the table nat sees only the first packet of a connection",
        daemon=(r"^iptables nat WEAVE: -m set --match-set weaver-no-masq-local dst ", r"^ipset "),
    ),
    Difference(
        "veth pairs have a queue length",
        "none",
        "nothing: links without a queue do not use the length",
        lab=(r"^(pod )?link (<veth>|eth0|vethwe-bridge): txqlen 1000$",),
    ),
)  # fmt: skip
"""Its daemons run in a virtual machine, without kube-proxy."""

WEAVENET = Network(
    name="weavenet",
    title="WeaveNet, fast datapath",
    layer="L2 overlay",
    encapsulation="VXLAN",
    multicast="head-end replication: a copy to every node",
    policy=True,
    versions="Weave Net 2.6 to 2.9",
    fidelity="modelled",
    differences="Open vSwitch's datapath is replaced by the kernel's bridge and VXLAN device; ranges of"
    " addresses replace the ipsets of the network policy chains; kube-proxy's rules for Services are empty",
    default_mtu=lab.PAPER_MTU,
    max_mtu=LINK_MTU - encapsulation.VXLAN,
    requires=(BRIDGE, VXLAN, NFTABLES, IPTABLES, BR_NETFILTER),
    lab=lab.datapath,
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
    plugin=_PLUGIN,
    suggested=True,
    kernel_differences=_KERNEL_DIFFERENCES,
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
    default_mtu=lab.PAPER_MTU_ENCRYPTED,
    requires=(*WEAVENET.requires, NFT_INGRESS),
    lab=lab.encrypted,
    color=NetworkColor("#882255", "#e27aa9", "X"),
    cluster=cluster.cluster_install(lab.PAPER_MTU_ENCRYPTED, encrypted=True),
    unencrypted="weavenet",
    kernel_differences=(),
    cluster_engines=(),
    cluster_title=None,
    replacement=None,
    engines=lab.ENGINES,
    aliases=("weave-encrypt", "weavenet-encrypted", "weavenet-ipsec"),
)

NETWORKS = (WEAVENET, WEAVENET_ENCRYPT)
