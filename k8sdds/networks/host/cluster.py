"""Install a minimal pod network for clusters that measure `host`: a bridge on every node, and routes between nodes.

Measured participants use hostNetwork. The cluster's other pods, such as CoreDNS, still need a network.
"""

from __future__ import annotations

import json

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
)

BRIDGE = "k8sdds0"
CNI_NAME = "k8sdds-host"
ROUTE_PROTOCOL = 75
"""Routing protocol number of the routes that the agent k8sdds-routes adds."""


def _render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
    # The agent adds the node's pod subnet to the configuration.
    cni = bridge_cni_config(CNI_NAME, BRIDGE, options.mtu_bytes, cni_version="0.4.0")
    find(manifests, "ConfigMap", "host-cni")["data"]["cni.json"] = json.dumps(cni, indent=1)
    agent = container(find(manifests, "DaemonSet", "host"), "routes")
    agent["args"] = [f"--pods={options.pod_cidr}"]
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
        nft_tables=(f"ip {CNI_NAME}",),
        route_protocols=(ROUTE_PROTOCOL,),
    ),
    ready=ReadyCondition(routes_to_peers=True),
    daemonset="host",
    # Nodes may reach each other through a VPN: this is then their own network.
    path=PathEvidence(optional_tunnels=("*",)),
    node_features=(BRIDGE_FEATURE,),
)
