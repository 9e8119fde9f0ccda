"""Install Flannel on a cluster: one manifest for all backends, and what each backend creates on a node.

Facts from flannel's documentation and sources (v0.28): the agent annotates its Node and writes
/run/flannel/subnet.env; the CNI plugin `flannel` reads this file and calls `bridge`. A backend's default MTU is the
link's MTU minus the backend's overhead; `mtu` in the CNI configuration overrides it for the pods.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from k8sdds.networks.cluster_install import (
    BRIDGE_FEATURE,
    ESP_FEATURE,
    VXLAN_FEATURE,
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    NodeFeature,
    PathEvidence,
    ReadyCondition,
    container,
    find,
    remove_init_container,
)
from k8sdds.networks.common import strongswan
from k8sdds.networks.flannel import lab, wireguard

CNI_NAME = "flannel"
CNI_FILE = "10-flannel.conflist"
ANNOTATIONS = "flannel.alpha.coreos.com/"

_WIREGUARD_FEATURE = NodeFeature(
    "wireguard", "install a kernel with the module wireguard (5.6 or later), or use another network"
)

_FOOTPRINT = Footprint(
    links=("cni0",),
    files=(
        f"/etc/cni/net.d/{CNI_FILE}", "/run/flannel", "/var/lib/cni/flannel",
        f"/var/lib/cni/networks/{CNI_NAME}", f"/var/lib/cni/results/{CNI_NAME}-*",
    ),
    iptables_chains=("FLANNEL-*",),
    nft_tables=("ip flannel-*", "ip6 flannel-*"),
    node_annotations=(ANNOTATIONS,),
)  # fmt: skip


def _cni_config(options: InstallOptions) -> str:
    delegate: dict[str, Any] = {"hairpinMode": True, "isDefaultGateway": True}
    if options.mtu_bytes is not None:
        delegate["mtu"] = options.mtu_bytes
    plugins = [
        {"type": "flannel", "delegate": delegate},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "0.3.1", "name": CNI_NAME, "plugins": plugins}, indent=1)


def _cluster_install(
    backend: Callable[[InstallOptions], dict[str, Any]],
    ready: ReadyCondition,
    node_features: tuple[NodeFeature, ...] = (BRIDGE_FEATURE,),
    links: tuple[str, ...] = (),
    ipsec: bool = False,
) -> ClusterInstall:
    """Return the cluster install of a backend.

    Args:
        backend: Returns the value of `Backend` in flannel's net-conf.json.
        ready: When the backend is ready on a node.
        node_features: Kernel features that every node needs.
        links: Patterns of the tunnel devices that the backend creates; they carry all packets.
        ipsec: Whether the agent starts strongSwan's charon.
    """

    def render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
        net = {"Network": str(options.pod_cidr), "EnableNFTables": False, "Backend": backend(options)}
        find(manifests, "ConfigMap", "flannel-cni")["data"][CNI_FILE] = _cni_config(options)
        find(manifests, "Secret", "flannel-net")["stringData"]["net-conf.json"] = json.dumps(net, indent=1)
        daemonset = find(manifests, "DaemonSet", "flannel")
        agent = container(daemonset, "flanneld")
        if options.interface:
            agent["args"].append(f"--iface={options.interface}")
        if ipsec:
            # charon listens on UDP ports 500 and 4500.
            agent["securityContext"]["capabilities"]["add"].append("NET_BIND_SERVICE")
        if options.cni_plugins_installed:
            remove_init_container(daemonset, "install-plugin")
        return manifests

    return ClusterInstall(
        manifest_folder="flannel",
        render=render,
        footprint=replace(_FOOTPRINT, links=(*_FOOTPRINT.links, *links), xfrm=ipsec),
        ready=ready,
        daemonset="flannel",
        path=PathEvidence(bridge="cni0", tunnels=links, unverified=strongswan.UNVERIFIED if ipsec else ""),
        node_features=node_features,
        bundle_images=("*/flannel*",),
        programs=("charon",) if ipsec else (),
        min_password_characters=strongswan.MIN_PSK_CHARACTERS if ipsec else None,
    )


VXLAN = _cluster_install(
    lambda options: {"Type": "vxlan", "VNI": lab.VNI, "Port": lab.VXLAN_PORT},
    ReadyCondition(links=("flannel.1",), routes_to_peers=True),
    node_features=(VXLAN_FEATURE, BRIDGE_FEATURE),
    links=("flannel.*",),
)

HOSTGW = _cluster_install(lambda options: {"Type": "host-gw"}, ReadyCondition(routes_to_peers=True))

IPSEC = _cluster_install(
    lambda options: {"Type": "ipsec", "PSK": options.password},
    ReadyCondition(xfrm_to_peers=True),
    node_features=(ESP_FEATURE, BRIDGE_FEATURE),
    ipsec=True,
)

WIREGUARD = _cluster_install(
    lambda options: {"Type": "wireguard", "ListenPort": wireguard.UDP_PORT},
    ReadyCondition(links=("flannel-wg",), routes_to_peers=True),
    node_features=(_WIREGUARD_FEATURE, BRIDGE_FEATURE),
    links=("flannel-wg*",),
)
