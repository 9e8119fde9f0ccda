"""Plan Flannel's datapaths: pods on cni0, and what each backend adds between the nodes.

VXLAN: VNI 1 on UDP port 8472, without learning. For every other node, whose VTEP is flannel.1 (for IPv6
flannel-v6.1), there is one permanent neighbor, one forwarding entry and one on-link route. Masquerade rules are in
FLANNEL-POSTRTG, forward rules in FLANNEL-FWD.

IPsec: each node runs strongSwan's charon: IKEv2 with a pre-shared key of at least 96 characters, tunnel mode from pod
subnet to pod subnet, AES-128-GCM by default. There is no device flannel.1.

WireGuard: a device `flannel-wg` on every node, UDP port 51820, one peer per node whose allowed addresses are that
node's pod subnet, and one route for all pods through the device. The userspace engine is wireguard-go, for kernels
without WireGuard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from k8sdds.networks.common import encapsulation, iptables, strongswan
from k8sdds.networks.common.bridge_cni import (
    BRIDGE,
    HOST_LOCAL,
    NODE_SYSCTLS,
    PORTMAP,
    Bridge,
    NodeLinks,
    NodePlan,
    bridge_pods,
    first_address,
    pod_datapath,
    routes_to_peers,
)
from k8sdds.networks.common.iptables import comment
from k8sdds.networks.common.strongswan import FOLDER, KERNEL, USERSPACE
from k8sdds.networks.datapath import (
    LINK_MTU,
    POD_CIDRS,
    Batch,
    CniPlugins,
    Daemon,
    Datapath,
    EncryptionProof,
    File,
    LabNode,
    Topology,
)
from k8sdds.networks.network import Engine
from k8sdds.system.kernel_features import TUN, WG, WIREGUARD, WIREGUARD_GO

POD_CIDR = POD_CIDRS["ipv4"]
SUBNET_FILE = "/run/flannel/subnet.env"
CNI_NAME = "flannel"
VNI = 1
VXLAN_PORT = 8472
"""UDP port: the Linux kernel's default for VXLAN, which flannel uses."""


def _vtep_mac(node: LabNode) -> str:
    return f"02:f{6 if node.ipv6 else 1}:00:00:00:{node.index:02x}"


def _rules(node: LabNode) -> Batch:
    masquerade, forward = comment("flanneld masq"), comment("flanneld forward")
    pods, multicast = POD_CIDRS[node.family], iptables.MULTICAST[node.family]
    return iptables.kubernetes_batch(
        node,
        after={
            "nat": {
                "POSTROUTING": (f"{masquerade} -j FLANNEL-POSTRTG",),
                "FLANNEL-POSTRTG": (
                    f"-m mark --mark 0x4000/0x4000 {masquerade} -j RETURN",
                    f"-s {node.pod_subnet} -d {pods} {masquerade} -j RETURN",
                    f"-s {pods} -d {node.pod_subnet} {masquerade} -j RETURN",
                    f"! -s {pods} -d {node.pod_subnet} {masquerade} -j RETURN",
                    f"-s {pods} ! -d {multicast} {masquerade} -j MASQUERADE --random-fully",
                    f"! -s {pods} -d {pods} {masquerade} -j MASQUERADE --random-fully",
                ),
            },
            "filter": {
                "FORWARD": (f"{forward} -j FLANNEL-FWD",),
                "FLANNEL-FWD": (f"-s {pods} {forward} -j ACCEPT", f"-d {pods} {forward} -j ACCEPT"),
            },
        },
    )


def bridged(topology: Topology, mtu: int, node_links: NodeLinks = lambda *_: []) -> Datapath:
    """Plan pods on cni0, connected to the other nodes by `node_links`."""

    def plan_node(node: LabNode, plan: NodePlan) -> None:
        bridge = Bridge("cni0", mtu, first_address(node))
        to_pods = f"route add {POD_CIDRS[node.family]} via {bridge.address.ip}"
        bridge_pods(topology, node, bridge, plan, routes=(to_pods,))
        plan.after += [*node_links(topology, node, mtu), _rules(node)]

    return pod_datapath(topology, mtu, plan_node, NODE_SYSCTLS)


def vxlan(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath of the VXLAN backend."""

    def links(topology: Topology, node: LabNode, mtu: int) -> list[Batch]:
        device = f"flannel-v6.{VNI}" if node.ipv6 else f"flannel.{VNI}"
        return encapsulation.vxlan_device(topology, node, device, mtu, VNI, VXLAN_PORT, _vtep_mac)

    return bridged(topology, mtu, links)


def hostgw(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath of the host-gw backend."""

    def links(topology: Topology, node: LabNode, mtu: int) -> list[Batch]:
        return [Batch(node.name, "ip", routes_to_peers(topology, node))]

    return bridged(topology, mtu, links)


def cni_config(mtu_bytes: int | None) -> dict[str, Any]:
    """Return the CNI configuration. `mtu_bytes` is the MTU of pods; None means that of the backend."""
    delegate: dict[str, Any] = {"hairpinMode": True, "isDefaultGateway": True}
    if mtu_bytes is not None:
        delegate["mtu"] = mtu_bytes
    plugins = [
        {"type": "flannel", "delegate": delegate},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return {"cniVersion": "0.3.1", "name": CNI_NAME, "plugins": plugins}


def plugins(nodes: Sequence[LabNode], mtu: int) -> CniPlugins:
    """Return the plugins of a node. The plugin `flannel` calls `bridge` with the range of the file."""
    variables = {"FLANNEL_MTU": str(mtu), "FLANNEL_IPMASQ": "true"}
    for node in nodes:
        family = "IPV6_" if node.ipv6 else ""
        variables[f"FLANNEL_{family}NETWORK"] = POD_CIDRS[node.family]
        variables[f"FLANNEL_{family}SUBNET"] = str(first_address(node))
    text = "".join(f"{name}={value}\n" for name, value in variables.items())
    programs = ("flannel", BRIDGE, HOST_LOCAL, PORTMAP)
    return CniPlugins(programs, cni_config(None), {SUBNET_FILE: text})


# -- encryption --------------------------------------------------------------------------------------------

CIPHER = "aes128gcm16"
PAPER_MTU = 1423
"""MTU of the pods in the K8sDDS paper."""

IPSEC_ENGINES = strongswan.engines(
    "tunnel", (PAPER_MTU, LINK_MTU - encapsulation.ESP_TUNNEL), (strongswan.TUN_MTU, strongswan.TUN_MTU)
)


def ipsec(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath of the IPsec backend."""
    return strongswan.encrypted(
        bridged(topology, mtu), topology, engine, CIPHER,
        lambda node, peer: (str(node.pod_subnet), str(peer.pod_subnet)),
    )  # fmt: skip


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
        device = _wireguard_device(node)
        link = (f"link add {device} type wireguard",) if engine.name == KERNEL else ()
        tunnels += [
            Batch(node.name, "ip", (*link, f"addr add {node.pod_subnet.network_address}/32 dev {device}")),
            Batch(node.name, "wg", (f"setconf {device} {FOLDER}/{node.name}/wireguard.conf",)),
            Batch(
                node.name,
                "ip",
                (f"link set {device} mtu {mtu} up", f"route add {POD_CIDR} dev {device} scope link"),
            ),
        ]
    return replace(
        bridged(topology, mtu),
        files=tuple(_configuration(topology, node) for node in topology.nodes),
        daemons=tuple(_daemon(node, tunnels) for node in topology.nodes) if engine.name == USERSPACE else (),
        tunnels=tuple(tunnels),
        encryption_proof=EncryptionProof(
            # The first byte of a WireGuard message is its type: 4 is data, 1 to 3 are handshake messages.
            encrypted=f"udp dport {UDP_PORT} @th,64,8 4",
            allowed=(f"udp dport {UDP_PORT} @th,64,8 1-3",),
            counters={
                node.name: ("wg", "show", _wireguard_device(node), "transfer") for node in topology.nodes
            },
            received_bytes=r"\t(\d+)\t\d+",
        ),
    )


def _wireguard_device(node: LabNode) -> str:
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
        argv=("wireguard-go", "--foreground", _wireguard_device(node)),
        environment=(("LOG_LEVEL", "error"),),
        log=f"{FOLDER}/{node.name}/wireguard.log",
        ready=("wg", "show", _wireguard_device(node)),
        rejoins=tuple(batch for batch in tunnels if batch.namespace == node.name),
    )
