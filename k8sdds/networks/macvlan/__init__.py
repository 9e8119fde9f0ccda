"""macvlan: each pod has a second interface with its own MAC address on the node's link, as with Multus.

Facts from the documentation and sources of the macvlan CNI plugin (1.9) and the kernel's driver: in mode `bridge`,
frames between pods of a node do not leave it, and frames to other nodes leave through the node's interface without
encapsulation, routing or packet filters of the node. A pod receives only groups that it has joined: the driver compares
the hash of the group's MAC address. It delivers multicast and broadcast in a kernel worker, after a queue of 1000
frames. A pod and its own node cannot reach each other.

On a cluster, the first interface of a pod is that of the network `host`: a bridge and routes, which Kubernetes and its
Services use. The CNI plugin k8sdds-attach follows the bridge plugin and calls the plugin macvlan, as Multus would. Each
node assigns addresses from its own part of one subnet, which is as large as the range of all pods and follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Network, ip_network
from typing import Any

from k8sdds.model.ip_families import IpFamily, Subnet
from k8sdds.networks import host
from k8sdds.networks.cluster_install import (
    MACVLAN_FEATURE,
    ClusterInstall,
    InstallOptions,
    Manifest,
    PathEvidence,
)
from k8sdds.networks.common.bridge_cni import HOST_LOCAL, NodePlan, pod_datapath
from k8sdds.networks.datapath import LINK_MTU, CniPlugins, Datapath, LabNode, Topology
from k8sdds.networks.network import SECOND_INTERFACE, Engine, Network, NetworkColor
from k8sdds.system.kernel_features import BRIDGE
from k8sdds.system.kernel_features import MACVLAN as MACVLAN_KERNEL_FEATURE

_SUBNETS: dict[IpFamily, Subnet] = {
    "ipv4": ip_network("10.245.0.0/16"),
    "ipv6": ip_network("fd00:10:245::/64"),
}
"""One subnet for the pods of all nodes, because the network has no routers."""
_NODE_ADDRESSES = 256
"""How many of its addresses are of one node."""


def _datapath(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    def plan_node(node: LabNode, plan: NodePlan) -> None:
        subnet = _SUBNETS[node.family]
        for pod in topology.pods_on(node):
            plan.ip.append(
                f"link add link eth0 name {SECOND_INTERFACE} netns {pod.name} mtu {mtu} type macvlan mode bridge"
            )
            address = subnet[node.index * _NODE_ADDRESSES + 2 + pod.slot]
            lines = (
                f"addr add {address}/{subnet.prefixlen} dev {SECOND_INTERFACE}",
                f"link set {SECOND_INTERFACE} up",
            )
            plan.attach(pod, address, lines, SECOND_INTERFACE)

    return pod_datapath(topology, mtu, plan_node, {})


def plugin(mtu_bytes: int | None, link: str | None = None) -> dict[str, Any]:
    """Return the configuration of the CNI plugin macvlan on a node's link, without addresses.

    On a cluster, the agent adds addresses of the node's part of the subnet, and the link with the node's address if
    `link` is None.
    """
    optional = {"mtu": mtu_bytes, "master": link}
    given = {key: value for key, value in optional.items() if value is not None}
    return {"type": "macvlan", "mode": "bridge", "ipam": {"type": HOST_LOCAL}, **given}


def _plugins(nodes: Sequence[LabNode], mtu: int) -> CniPlugins:
    """Return the CNI plugins of a node, whose pods have this interface alone."""
    ranges = []
    for node in nodes:
        subnet, first = _SUBNETS[node.family], node.index * _NODE_ADDRESSES
        own = {"rangeStart": str(subnet[first + 2]), "rangeEnd": str(subnet[first + _NODE_ADDRESSES - 2])}
        ranges.append([{"subnet": str(subnet), **own}])
    own_plugin = {**plugin(mtu, "eth0"), "ipam": {"type": HOST_LOCAL, "ranges": ranges}}
    configuration = {"cniVersion": "0.4.0", "name": "macvlan", "plugins": [own_plugin]}
    return CniPlugins(("macvlan", HOST_LOCAL), configuration)


def subnet(pods: Subnet, services: Subnet) -> IPv4Network:
    """Return the subnet of the second interfaces: the next one after that of all pods that overlaps with no Service."""
    assert isinstance(pods, IPv4Network)
    found, highest = pods, 2**32
    while found == pods or found.overlaps(services):
        start = (int(found.network_address) + found.num_addresses) % highest
        found = IPv4Network((start, found.prefixlen))
    return found


def second_subnet(options: InstallOptions) -> IPv4Network:
    """Return the subnet of the second interfaces on a cluster with these options."""
    return subnet(options.pod_cidr, options.service_cidrs[0])


def _render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
    delegate = plugin(options.mtu_bytes, options.interface)
    cni = host.cni_config(None)
    cni["plugins"].insert(1, {"type": "k8sdds-attach", "interface": SECOND_INTERFACE, "delegate": delegate})
    host.configure(manifests, options, cni, (f"--second={second_subnet(options)}",))
    return manifests


_FOOTPRINT = host.CLUSTER_INSTALL.footprint

CLUSTER_INSTALL: ClusterInstall = replace(
    host.CLUSTER_INSTALL,
    render=_render,
    # The interfaces exist only in pods.
    footprint=replace(
        _FOOTPRINT,
        files=(
            *_FOOTPRINT.files, "/opt/cni/bin/k8sdds-attach", "/opt/cni/bin/.k8sdds-attach",
            f"/var/lib/cni/networks/{host.CNI_NAME}-{SECOND_INTERFACE}",
        ),
    ),
    # As the second network of a cluster, the first interfaces may be on the bridge of another network.
    path=PathEvidence(on_node_link=True, unused=(host.BRIDGE, "cni0", "kube-bridge", "weave")),
    node_features=(*host.CLUSTER_INSTALL.node_features, MACVLAN_FEATURE),
    ipv4_only="k8sdds assigns only IPv4 addresses to the pods' second interfaces",
    host_network_multicast=False,
)  # fmt: skip

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
    requires=(BRIDGE, MACVLAN_KERNEL_FEATURE),
    lab=_datapath,
    cni_plugins=_plugins,
    color=NetworkColor("#d4267d", "#ff85bd", "*"),
    cluster=CLUSTER_INSTALL,
    pod_interface=SECOND_INTERFACE,
)

NETWORKS = (MACVLAN,)
