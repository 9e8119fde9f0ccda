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
    remove_from_pods,
)
from k8sdds.networks.common import encapsulation, strongswan
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.networks.flannel import lab

CNI_FILE = "10-flannel.conflist"

_WIREGUARD_FEATURE = NodeFeature(
    "wireguard", "install a kernel with the module wireguard (5.6 or later), or use another network"
)

_FOOTPRINT = Footprint(
    links=("cni0",),
    files=(
        f"/etc/cni/net.d/{CNI_FILE}", "/run/flannel", "/var/lib/cni/flannel",
        f"/var/lib/cni/networks/{lab.CNI_NAME}", f"/var/lib/cni/results/{lab.CNI_NAME}-*",
    ),
    iptables_chains=("FLANNEL-*",),
    nft_tables=("ip flannel-*", "ip6 flannel-*"),
    node_annotations=("flannel.alpha.coreos.com/",),
)  # fmt: skip


def _ranges(options: InstallOptions) -> dict[str, Any]:
    """Return the addresses of pods in flannel's net-conf.json."""
    pods = options.pods_by_family
    ranges: dict[str, Any] = (
        {"EnableIPv4": "ipv4" in pods, "EnableIPv6": "ipv6" in pods} if "ipv6" in pods else {}
    )
    names = {"ipv4": "Network", "ipv6": "IPv6Network"}
    return ranges | {names[family]: str(subnet) for family, subnet in pods.items()}


def _cluster_install(
    backend: Callable[[InstallOptions], dict[str, Any]],
    ready: ReadyCondition,
    node_features: tuple[NodeFeature, ...] = (BRIDGE_FEATURE,),
    links: tuple[str, ...] = (),
    ipsec: bool = False,
    ipv4_only: str = "",
    ipv6_mtu: int | None = None,
) -> ClusterInstall:
    """Return the cluster install of a backend, which returns the value of `Backend` in flannel's net-conf.json.

    All packets pass the tunnel devices that match `links`. `ipsec`: the agent starts strongSwan's charon. `ipv4_only`
    is why the backend is not installed with IPv6, and `ipv6_mtu` the MTU of pods with IPv6 addresses, if it is another.
    """

    def render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
        net = {**_ranges(options), "EnableNFTables": False, "Backend": backend(options)}
        mtu_bytes = options.mtu_bytes or (ipv6_mtu if "ipv6" in options.pods_by_family else None)
        cni = find(manifests, "ConfigMap", "flannel-cni")
        cni["data"][CNI_FILE] = json.dumps(lab.cni_config(mtu_bytes), indent=1)
        secret, daemonset = find(manifests, "Secret", "flannel-net"), find(manifests, "DaemonSet", "flannel")
        secret["stringData"]["net-conf.json"] = json.dumps(net, indent=1)
        agent = container(daemonset, "flanneld")
        if options.interface:
            agent["args"].append(f"--iface={options.interface}")
        if ipsec:  # charon listens on UDP ports 500 and 4500
            agent["securityContext"]["capabilities"]["add"].append("NET_BIND_SERVICE")
        if options.cni_plugins_installed:
            remove_from_pods(daemonset, "initContainers", "install-plugin")
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
        ipv4_only=ipv4_only,
    )


VXLAN = _cluster_install(
    lambda options: {"Type": "vxlan", "VNI": lab.VNI, "Port": lab.VXLAN_PORT},
    ReadyCondition(links=("flannel*.1",), routes_to_peers=True),
    node_features=(VXLAN_FEATURE, BRIDGE_FEATURE),
    # For IPv4 and for IPv6.
    links=("flannel.*", "flannel-v6.*"),
    # flanneld gives pods 1450 also with IPv6 (seen with 0.28.4), which is too large for its IPv6 device of 1430.
    ipv6_mtu=LINK_MTU - encapsulation.VXLAN - encapsulation.OUTER_IPV6,
)

HOSTGW = _cluster_install(lambda options: {"Type": "host-gw"}, ReadyCondition(routes_to_peers=True))

IPSEC = _cluster_install(
    lambda options: {"Type": "ipsec", "PSK": options.password},
    ReadyCondition(xfrm_to_peers=True),
    node_features=(ESP_FEATURE, BRIDGE_FEATURE),
    ipsec=True,
    ipv4_only="Flannel's IPsec backend has no IPv6",
)

WIREGUARD = _cluster_install(
    lambda options: {"Type": "wireguard", "ListenPort": lab.UDP_PORT},
    ReadyCondition(links=("flannel-wg",), routes_to_peers=True),
    node_features=(_WIREGUARD_FEATURE, BRIDGE_FEATURE),
    links=("flannel-wg*",),
    ipv4_only="k8sdds has never run Flannel's WireGuard backend with IPv6",
)
