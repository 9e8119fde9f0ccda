"""Plan Flannel's VXLAN and host-gw datapaths, and the bridge that all backends share.

VXLAN: VNI 1 on UDP port 8472, without learning. For every other node, whose VTEP is flannel.1 (for IPv6
flannel-v6.1), there is one permanent neighbor, one forwarding entry and one on-link route. Masquerade rules are in
FLANNEL-POSTRTG, forward rules in FLANNEL-FWD.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from k8sdds.networks.common import encapsulation, iptables
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
from k8sdds.networks.datapath import POD_CIDRS, Batch, CniPlugins, Datapath, LabNode, Topology
from k8sdds.networks.network import Engine

POD_CIDR = POD_CIDRS["ipv4"]
SUBNET_FILE = "/run/flannel/subnet.env"
CNI_NAME = "flannel"
VNI = 1
VXLAN_PORT = 8472
"""UDP port: the Linux kernel's default for VXLAN, which flannel uses."""


def _device(node: LabNode) -> str:
    return f"flannel-v6.{VNI}" if node.ipv6 else f"flannel.{VNI}"


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
        return encapsulation.vxlan_device(topology, node, _device(node), mtu, VNI, VXLAN_PORT, _vtep_mac)

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
