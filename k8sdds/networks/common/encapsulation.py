"""Encapsulations between nodes: the bytes that each adds to a packet, and VXLAN devices with static entries.

The bytes are how much smaller a pod's MTU must be than the link's.
"""

from __future__ import annotations

from collections.abc import Callable

from k8sdds.networks.datapath import Batch, LabNode, Topology

VXLAN = 50
"""Outer IPv4 (20), UDP (8), VXLAN (8) and inner Ethernet (14) headers: RFC 7348, section 5."""

IPIP = 20
"""Outer IPv4 header: RFC 2003, section 3."""

ESP_TRANSPORT = 34
"""SPI and sequence number (8), IV (8), pad length and next header (2) and check value (16) of AES-GCM, without
padding: RFC 4303, section 2, and RFC 4106, sections 3 and 6."""

ESP_TUNNEL = ESP_TRANSPORT + 20
"""ESP in tunnel mode adds an outer IPv4 header (20): RFC 4303, section 3.1.2."""

WIREGUARD = 60
"""Outer IPv4 (20) and UDP (8), WireGuard's data header (16) and Poly1305 tag (16): Donenfeld, "WireGuard: Next
Generation Kernel Network Tunnel", NDSS 2017, section 5.4.6."""

WIREGUARD_IPV6 = WIREGUARD + 20
"""The same with an outer IPv6 header (40). wg-quick and flannel reserve this much for IPv4, too."""

OUTER_IPV6 = 20
"""How much longer an outer IPv6 header (40) is than one of IPv4."""


def vxlan_device(
    topology: Topology,
    node: LabNode,
    name: str,
    mtu: int,
    vni: int,
    port: int,
    mac: Callable[[LabNode], str],
    route_options: str = "",
) -> list[Batch]:
    """Return the batches that connect a node to all others, as the agents of plugins do.

    Each end has the first address of its node's pod subnet. `mac` returns the MAC address of a node's device, and
    `route_options` are further options of the routes, such as their protocol.
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
