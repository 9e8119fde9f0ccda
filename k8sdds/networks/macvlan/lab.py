"""Plan macvlan interfaces in mode bridge on each node's eth0, one for each pod."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

from k8sdds.model.ip_families import IpFamily, Subnet
from k8sdds.networks.common.bridge_cni import HOST_LOCAL, NodePlan, pod_datapath
from k8sdds.networks.datapath import Attachment, Batch, CniPlugins, Datapath, LabNode, Topology
from k8sdds.networks.network import SECOND_INTERFACE, Engine

SUBNETS: dict[IpFamily, Subnet] = {
    "ipv4": ip_network("10.245.0.0/16"),
    "ipv6": ip_network("fd00:10:245::/64"),
}
"""One subnet for the pods of all nodes, because the network has no routers."""
NODE_ADDRESSES = 256
"""How many of its addresses are of one node."""


def datapath(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath."""

    def plan_node(node: LabNode) -> NodePlan:
        links: list[str] = []
        pod_batches: list[Batch] = []
        attachments: dict[str, Attachment] = {}
        for pod in topology.pods_on(node):
            links.append(
                f"link add link eth0 name {SECOND_INTERFACE} netns {pod.name} mtu {mtu} type macvlan mode bridge"
            )
            subnet = SUBNETS[node.family]
            address = subnet[node.index * NODE_ADDRESSES + 2 + pod.slot]
            lines = (
                "link set lo up",
                f"addr add {address}/{subnet.prefixlen} dev {SECOND_INTERFACE}",
                f"link set {SECOND_INTERFACE} up",
            )
            pod_batches.append(Batch(pod.name, "ip", lines))
            attachments[pod.name] = Attachment(pod.name, SECOND_INTERFACE, str(address))
        return [Batch(node.name, "ip", tuple(links)), *pod_batches], attachments

    return pod_datapath(topology, mtu, plan_node, {})


def plugin(mtu_bytes: int | None) -> dict[str, Any]:
    """Return the configuration of the CNI plugin macvlan, without addresses and the node's link."""
    mtu = {} if mtu_bytes is None else {"mtu": mtu_bytes}
    return {"type": "macvlan", "mode": "bridge", "ipam": {"type": HOST_LOCAL}, **mtu}


def plugins(nodes: Sequence[LabNode], mtu: int) -> CniPlugins:
    """Return the CNI plugins of a node, whose pods have this interface alone."""
    ranges = []
    for node in nodes:
        subnet, first = SUBNETS[node.family], node.index * NODE_ADDRESSES
        own = {"rangeStart": str(subnet[first + 2]), "rangeEnd": str(subnet[first + NODE_ADDRESSES - 2])}
        ranges.append([{"subnet": str(subnet), **own}])
    own_plugin = {**plugin(mtu), "master": "eth0", "ipam": {"type": HOST_LOCAL, "ranges": ranges}}
    configuration = {"cniVersion": "0.4.0", "name": "macvlan", "plugins": [own_plugin]}
    return CniPlugins(("macvlan", HOST_LOCAL), configuration)
