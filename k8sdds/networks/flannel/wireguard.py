"""Flannel with its WireGuard backend: pods on cni0, a WireGuard device `flannel-wg` on every node.

Facts from flannel's documentation and sources (v0.28): UDP port 51820, one peer per node with that node's
pod subnet as allowed addresses, MTU 80 below the link's (1420), a route for the cluster's pods by the device.
The userspace engine is wireguard-go, for kernels without WireGuard.
"""

from __future__ import annotations

from dataclasses import replace

from k8sdds import versions
from k8sdds.networks.cluster_install import ReadyCondition
from k8sdds.networks.common.strongswan import FOLDER, KERNEL, USERSPACE
from k8sdds.networks.flannel import cluster as flannel_cluster
from k8sdds.networks.flannel import lab as flannel
from k8sdds.networks.network import (
    LINK_MTU,
    Batch,
    Daemon,
    Datapath,
    Engine,
    File,
    Network,
    Node,
    Topology,
    WireProof,
)

UDP_PORT = 51820
OVERHEAD = 80
"""What flannel leaves for WireGuard's headers, enough for IPv6 between nodes too."""
MAX_OVERHEAD = 60
"""Outer IPv4 (20), UDP (8), WireGuard's header (16) and check value (16)."""


def _device(node: Node) -> str:
    # wireguard-go's control sockets of all nodes are in one folder, named by the device.
    return f"flannel-wg{node.index}"


def _configuration(topology: Topology, node: Node) -> File:
    peers = "".join(
        f"\n[Peer]\nPublicKey = $public_{peer.name}\nEndpoint = {peer.address}:{UDP_PORT}\n"
        f"AllowedIPs = {peer.pod_subnet}\n"
        for peer in topology.peers(node)
    )
    own = f"[Interface]\nPrivateKey = $private_{node.name}\nListenPort = {UDP_PORT}\n"
    return File(f"{FOLDER}/{node.name}/wireguard.conf", own + peers)


def _daemon(node: Node) -> Daemon:
    return Daemon(
        namespace=node.name,
        argv=("wireguard-go", "--foreground", _device(node)),
        environment=(("LOG_LEVEL", "error"),),
        log=f"{FOLDER}/{node.name}/wireguard.log",
        ready=("wg", "show", _device(node)),
    )


def _lab(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    assert engine is not None
    finish = []
    for node in topology.nodes:
        device = _device(node)
        made = (f"link add {device} type wireguard",) if engine.option == KERNEL else ()
        finish += [
            Batch(node.name, "ip", (*made, f"addr add {node.pod_subnet.network_address}/32 dev {device}")),
            Batch(node.name, "wg", (f"setconf {device} {FOLDER}/{node.name}/wireguard.conf",)),
            Batch(
                node.name,
                "ip",
                (f"link set {device} mtu {mtu} up", f"route add {flannel.CLUSTER} dev {device} scope link"),
            ),
        ]
    return replace(
        flannel.datapath(topology, mtu, lambda topology, node, mtu: []),
        files=tuple(_configuration(topology, node) for node in topology.nodes),
        daemons=tuple(_daemon(node) for node in topology.nodes) if engine.option == USERSPACE else (),
        finish=tuple(finish),
        wire=WireProof(
            # Message type 4 carries data; 1 to 3 are handshakes.
            encrypted=f"udp dport {UDP_PORT} @th,64,8 4",
            beside=(f"udp dport {UDP_PORT} @th,64,8 1-3",),
            tally={node.name: ("wg", "show", _device(node), "transfer") for node in topology.nodes},
            received=r"\t(\d+)\t\d+",
        ),
    )


ENGINES = (
    Engine(
        option=KERNEL, title="kernel WireGuard", mode="tunnel",
        default_mtu=LINK_MTU - OVERHEAD, max_mtu=LINK_MTU - MAX_OVERHEAD, needs=("wg", "wireguard"),
    ),
    Engine(
        option=USERSPACE, title="userspace WireGuard", mode="tunnel",
        default_mtu=LINK_MTU - OVERHEAD, max_mtu=LINK_MTU - MAX_OVERHEAD, needs=("wg", "wireguard-go", "tun"),
    ),
)  # fmt: skip

WIREGUARD = Network(
    name="flannel-wireguard",
    title="Flannel, WireGuard backend",
    layer="L3 routes",
    encapsulation="WireGuard",
    multicast="",
    encryption="ChaCha20-Poly1305, WireGuard",
    policy=False,
    architectures=versions.ARCHITECTURES,
    versions="flannel 0.16 to 0.28",
    fidelity="equivalent",
    differences="the device's name has the node's number; the userspace engine encrypts in wireguard-go; "
    + flannel.KUBE_PROXY,
    default_mtu=LINK_MTU - OVERHEAD,
    max_mtu=LINK_MTU - MAX_OVERHEAD,
    needs=("bridge", "nftables", "br_netfilter", "nft_ingress"),
    lab=_lab,
    cluster=flannel_cluster.half(
        lambda asked: {"Type": "wireguard", "ListenPort": UDP_PORT},
        ReadyCondition(links=("flannel-wg",), routes_to_peers=True),
        links=("flannel-wg*",),
    ),
    unprotected="flannel-hostgw",
    engines=ENGINES,
)
