"""Plan a VXLAN device with static neighbors, forwarding entries and routes, as the agents of plugins add them."""

from __future__ import annotations

from collections.abc import Callable

from k8sdds.networks.datapath import Batch, LabNode, Topology


def device(
    topology: Topology,
    node: LabNode,
    name: str,
    mtu: int,
    vni: int,
    port: int,
    mac: Callable[[LabNode], str],
    route_options: str = "",
) -> list[Batch]:
    """Return the batches that connect a node to all others. Each end has the first address of its node's pod subnet.

    Args:
        topology: The lab network.
        node: The node.
        name: Name of the device.
        mtu: Its MTU.
        vni: VXLAN network identifier.
        port: UDP port.
        mac: MAC address of a node's device.
        route_options: Further options of the routes, such as their protocol.
    """
    lines = [
        f"link add {name} mtu {mtu} address {mac(node)} type vxlan id {vni} dev eth0 local {node.address}"
        f" dstport {port} nolearning",
        f"addr add {node.pod_subnet.network_address}/{node.host_prefix} dev {name}",
        f"link set {name} up",
    ]
    forwarding = []
    for peer in topology.peers(node):
        address = peer.pod_subnet.network_address
        lines += [
            f"neigh add {address} lladdr {mac(peer)} dev {name} nud permanent",
            f"route add {peer.pod_subnet} via {address} dev {name} onlink {route_options}".rstrip(),
        ]
        forwarding.append(f"fdb add {mac(peer)} dev {name} dst {peer.address} self permanent")
    return [Batch(node.name, "ip", tuple(lines)), Batch(node.name, "bridge", tuple(forwarding))]
