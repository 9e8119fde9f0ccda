"""Plan Flannel's encrypting datapaths: pods on cni0, and a tunnel between every two nodes.

IPsec: each node runs strongSwan's charon: IKEv2 with a pre-shared key of at least 96 characters, tunnel mode from pod
subnet to pod subnet, AES-128-GCM by default. There is no device flannel.1.

WireGuard: a device `flannel-wg` on every node, UDP port 51820, one peer per node whose allowed addresses are that
node's pod subnet, and one route for all pods through the device. The userspace engine is wireguard-go, for kernels
without WireGuard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from k8sdds.networks.common import encapsulation, strongswan
from k8sdds.networks.common.strongswan import FOLDER, KERNEL, USERSPACE
from k8sdds.networks.datapath import (
    LINK_MTU,
    Batch,
    Daemon,
    Datapath,
    EncryptionProof,
    File,
    LabNode,
    Topology,
)
from k8sdds.networks.flannel import lab
from k8sdds.networks.network import Engine
from k8sdds.system.kernel_features import TUN, WG, WIREGUARD, WIREGUARD_GO

CIPHER = "aes128gcm16"
PAPER_MTU = 1423
"""MTU of the pods in the K8sDDS paper."""

IPSEC_ENGINES = strongswan.engines(
    "tunnel", (PAPER_MTU, LINK_MTU - encapsulation.ESP_TUNNEL), (strongswan.TUN_MTU, strongswan.TUN_MTU)
)


def _selectors(node: LabNode, peer: LabNode) -> tuple[str, str]:
    return str(node.pod_subnet), str(peer.pod_subnet)


def ipsec(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath of the IPsec backend."""
    return strongswan.encrypted(lab.bridged(topology, mtu), topology, engine, CIPHER, _selectors)


UDP_PORT = 51820
WIREGUARD_MTU = LINK_MTU - encapsulation.WIREGUARD_IPV6
"""What flannel sets: enough for IPv6 between nodes, too."""

WIREGUARD_ENGINES = tuple(
    Engine(
        name,
        f"{name} WireGuard",
        "tunnel",
        WIREGUARD_MTU,
        LINK_MTU - encapsulation.WIREGUARD,
        (WG, *required),
    )
    for name, required in ((KERNEL, (WIREGUARD,)), (USERSPACE, (WIREGUARD_GO, TUN)))
)


def wireguard(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath of the WireGuard backend."""
    assert engine is not None
    tunnels = []
    for node in topology.nodes:
        device = _device(node)
        link = (f"link add {device} type wireguard",) if engine.name == KERNEL else ()
        tunnels += [
            Batch(node.name, "ip", (*link, f"addr add {node.pod_subnet.network_address}/32 dev {device}")),
            Batch(node.name, "wg", (f"setconf {device} {FOLDER}/{node.name}/wireguard.conf",)),
            Batch(
                node.name,
                "ip",
                (f"link set {device} mtu {mtu} up", f"route add {lab.POD_CIDR} dev {device} scope link"),
            ),
        ]
    return replace(
        lab.bridged(topology, mtu),
        files=tuple(_configuration(topology, node) for node in topology.nodes),
        daemons=tuple(_daemon(node, tunnels) for node in topology.nodes) if engine.name == USERSPACE else (),
        tunnels=tuple(tunnels),
        encryption_proof=EncryptionProof(
            # The first byte of a WireGuard message is its type: 4 is data, 1 to 3 are handshake messages.
            encrypted=f"udp dport {UDP_PORT} @th,64,8 4",
            allowed=(f"udp dport {UDP_PORT} @th,64,8 1-3",),
            counters={node.name: ("wg", "show", _device(node), "transfer") for node in topology.nodes},
            received_bytes=r"\t(\d+)\t\d+",
        ),
    )


def _device(node: LabNode) -> str:
    # wireguard-go names its control socket after the device, and all nodes share the folder of these sockets.
    return f"flannel-wg{node.index}"


def _configuration(topology: Topology, node: LabNode) -> File:
    peers = "".join(
        f"\n[Peer]\nPublicKey = $public_{peer.name}\nEndpoint = {peer.address}:{UDP_PORT}\n"
        f"AllowedIPs = {peer.pod_subnet}\n"
        for peer in topology.peers(node)
    )
    interface = f"[Interface]\nPrivateKey = $private_{node.name}\nListenPort = {UDP_PORT}\n"
    return File(f"{FOLDER}/{node.name}/wireguard.conf", interface + peers)


def _daemon(node: LabNode, tunnels: Sequence[Batch]) -> Daemon:
    return Daemon(
        namespace=node.name,
        argv=("wireguard-go", "--foreground", _device(node)),
        environment=(("LOG_LEVEL", "error"),),
        log=f"{FOLDER}/{node.name}/wireguard.log",
        ready=("wg", "show", _device(node)),
        rejoins=tuple(batch for batch in tunnels if batch.namespace == node.name),
    )
