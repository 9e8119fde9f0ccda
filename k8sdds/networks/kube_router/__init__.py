"""Kube-router: pods on the bridge kube-bridge, and routes between nodes that kube-router learns by BGP.

Facts from kube-router's sources and its daemon (v2.11): nodes of one subnet get plain routes with routing protocol 17
and no tunnel. --auto-mtu gives pods the MTU of the node's link. docs/reference/networks.md states what is known of
the MTU of 1480 that the study reports.
"""

from __future__ import annotations

from k8sdds.networks.common.kernel_differences import BRIDGED_WITH_KUBE_PROXY
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.kube_router import cluster, lab
from k8sdds.networks.network import Difference, Network, NetworkColor
from k8sdds.networks.plugin import Plugin
from k8sdds.system.kernel_features import BR_NETFILTER, BRIDGE, IPSET, IPTABLES, NFTABLES

_PLUGIN = Plugin(
    "kube-router", "Kube-router", annotations=("kube-router.io/*",), daemonsets=("kube-router*",),
    images=("*kube-router",),
    # It can also serve only BGP, Services or policies, while another plugin connects the pods.
    precedence=-1,
)  # fmt: skip

KUBE_ROUTER = Network(
    name="kube-router",
    title="Kube-router, nodes of one subnet",
    layer="L3 routes",
    policy=True,
    versions="kube-router 0.3 to 2.11",
    fidelity="equivalent",
    differences="routes are static instead of learned by BGP; a range of addresses instead of ipsets decides what is"
    " masqueraded; kube-proxy's rules for Services are empty",
    default_mtu=LINK_MTU,
    lab_policies=(IPSET,),
    requires=(BRIDGE, NFTABLES, IPTABLES, BR_NETFILTER),
    lab=lab.datapath,
    cni_plugins=lab.plugins,
    color=NetworkColor("#008f68", "#3ecf9f", "v"),
    cluster=cluster.CLUSTER_INSTALL,
    plugin=_PLUGIN,
    suggested=True,
    kernel_differences=(
        *BRIDGED_WITH_KUBE_PROXY,
        Difference(
            "a range of addresses decides what is masqueraded",
            "the ipsets `kube-router-pod-subnets` and `kube-router-node-ips`",
            "nothing: the table nat sees only the first packet of a connection",
            lab=(r"^iptables nat POSTROUTING: -s 10\.244\.0\.0/16 .* --dst-range ",),
            daemon=(
                r"^iptables nat POSTROUTING: -m set --match-set kube-router-pod-subnets src ",
                r"^ipset ",
            ),
        ),
    ),
    aliases=("kuberouter",),
)

NETWORKS = (KUBE_ROUTER,)
