"""Install a minimal pod network for clusters that measure `host`: a bridge on every node, and routes between nodes.

Measured participants use hostNetwork. The cluster's other pods, such as CoreDNS, still need a network.
"""

from __future__ import annotations

import json
from typing import Any

from k8sdds.networks.cluster_install import (
    BRIDGE_FEATURE,
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    PathEvidence,
    ReadyCondition,
    bridge_cni_config,
    container,
    find,
    remove_init_container,
    remove_volume,
)

BRIDGE = "k8sdds0"
CNI_NAME = "k8sdds-host"
ROUTE_PROTOCOL = 75
"""Routing protocol number of the routes that the agent k8sdds-routes adds."""


def cni_config(mtu_bytes: int | None) -> dict[str, Any]:
    """Return the CNI configuration, to which the agent adds the node's pod subnet."""
    return bridge_cni_config(CNI_NAME, BRIDGE, mtu_bytes, cni_version="0.4.0")


def configure(
    manifests: list[Manifest], options: InstallOptions, cni: dict[str, Any], arguments: tuple[str, ...] = ()
) -> Manifest:
    """Set the CNI configuration and the agent's arguments, and return the agent's DaemonSet."""
    find(manifests, "ConfigMap", "host-cni")["data"]["cni.json"] = json.dumps(cni, indent=1)
    daemonset = find(manifests, "DaemonSet", "host")
    container(daemonset, "routes")["args"] = [f"--pods={','.join(map(str, options.pod_cidrs))}", *arguments]
    return daemonset


def _render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
    daemonset = configure(manifests, options, cni_config(options.mtu_bytes))
    remove_init_container(daemonset, "install-attach")
    remove_volume(daemonset, "cni-plugins")
    return manifests


CLUSTER_INSTALL = ClusterInstall(
    manifest_folder="host",
    render=_render,
    footprint=Footprint(
        links=(BRIDGE,),
        files=(
            "/etc/cni/net.d/10-k8sdds-host.conflist",
            f"/var/lib/cni/networks/{CNI_NAME}",
            f"/var/lib/cni/results/{CNI_NAME}-*",
        ),
        nft_tables=(f"ip {CNI_NAME}", f"ip6 {CNI_NAME}"),
        route_protocols=(ROUTE_PROTOCOL,),
    ),
    ready=ReadyCondition(routes_to_peers=True),
    daemonset="host",
    # Nodes may reach each other through a VPN: this is then their own network.
    path=PathEvidence(optional_tunnels=("*",)),
    node_features=(BRIDGE_FEATURE,),
)
