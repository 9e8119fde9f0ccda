"""macvlan: each pod has a second interface with its own MAC address on the node's link, as with Multus.

Facts from the documentation and sources of the macvlan CNI plugin (1.9) and the kernel's driver: in mode `bridge`,
frames between pods of a node do not leave it, and frames to other nodes leave through the node's interface without
encapsulation, routing or packet filters of the node. A pod receives only groups that it has joined: the driver compares
the hash of the group's MAC address. It delivers multicast and broadcast in a kernel worker, after a queue of 1000
frames. A pod and its own node cannot reach each other.
"""

from __future__ import annotations

from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.macvlan import cluster, lab
from k8sdds.networks.network import SECOND_INTERFACE, Network, NetworkColor
from k8sdds.system.kernel_features import BRIDGE
from k8sdds.system.kernel_features import MACVLAN as MACVLAN_FEATURE

MACVLAN = Network(
    name="macvlan",
    title="macvlan, mode bridge, as second interface",
    layer="L2 link",
    multicast="by the switch",
    versions="macvlan CNI plugin 1.9",
    fidelity="equivalent",
    differences="pods do not have the first interface, on the cluster's pod network; addresses are fixed instead of"
    " assigned by an IPAM plugin",
    default_mtu=LINK_MTU,
    max_mtu=LINK_MTU,
    requires=(BRIDGE, MACVLAN_FEATURE),
    lab=lab.datapath,
    cni_plugins=lab.plugins,
    color=NetworkColor("#d4267d", "#ff85bd", "*"),
    cluster=cluster.CLUSTER_INSTALL,
    pod_interface=SECOND_INTERFACE,
)

NETWORKS = (MACVLAN,)
