"""The node's own network: `host` with a pod around each participant, `baremetal` without."""

from __future__ import annotations

from dataclasses import replace

from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.host import cluster, lab
from k8sdds.networks.network import Network, NetworkColor
from k8sdds.system.kernel_features import BRIDGE, IPTABLES, NFTABLES

HOST = Network(
    name="host",
    title="pods with hostNetwork: the node's own network",
    layer="none",
    multicast="by the switch",
    versions="Kubernetes hostNetwork",
    fidelity="real",
    differences="kube-proxy's rules for Services are empty",
    default_mtu=LINK_MTU,
    max_mtu=LINK_MTU,
    requires=(BRIDGE, NFTABLES, IPTABLES),
    lab=lab.host,
    no_cni_plugins="its pods use the network of their node",
    color=NetworkColor("#4d4d4d", "#c9c9cf", "o"),
    cluster=cluster.CLUSTER_INSTALL,
    aliases=("hostnetwork", "hostmode", "host-network", "host-mode"),
)

BAREMETAL = replace(
    HOST,
    name="baremetal",
    title="no container: a process on the node",
    versions="Linux",
    differences="",
    requires=(BRIDGE,),
    lab=lab.baremetal,
    color=NetworkColor("#111112", "#f5f5f7", "<"),
    cluster=None,
    aliases=("bare-metal", "bare", "native"),
)

NETWORKS = (HOST, BAREMETAL)
