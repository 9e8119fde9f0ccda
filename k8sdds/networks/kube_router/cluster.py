"""Install Kube-router on a cluster; kube-proxy keeps the Services."""

from __future__ import annotations

import json
import re

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
from k8sdds.networks.kube_router.lab import BGP_PROTOCOL, BRIDGE, CNI_NAME

BGP_PORT = 179
TUNNELS = "tun-" + "[0-9a-f]" * 11
"""Pattern of the names of its tunnels, which a VPN of the user does not match."""
NODE_INTERFACE_RULE = "allow outbound node port traffic on node interface with which node ip is associated"
"""Comment of the rule that accepts all traffic that leaves through the node's interface."""


def _render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
    agent = container(find(manifests, "DaemonSet", "kube-router"), "kube-router")
    agent["args"].append(f"--service-cluster-ip-range={','.join(map(str, options.service_cidrs))}")
    if "ipv6" in options.pods_by_family:
        agent["args"] += [
            "--enable-ipv6=true",
            f"--enable-ipv4={str('ipv4' in options.pods_by_family).lower()}",
        ]
    if options.pod_cidr.version == 6:
        # BGP identifies routers by 32 bits, and a node's first address has more.
        agent["args"].append("--router-id=generate")
    if options.mtu_bytes is not None:
        agent["args"].append("--auto-mtu=false")
    cni = bridge_cni_config(CNI_NAME, BRIDGE, options.mtu_bytes)
    find(manifests, "ConfigMap", "kube-router-cni")["data"]["10-kuberouter.conflist"] = json.dumps(
        cni, indent=1
    )
    return manifests


CLUSTER_INSTALL = ClusterInstall(
    manifest_folder="kube-router",
    render=_render,
    footprint=Footprint(
        links=(BRIDGE, "kube-dummy-if", TUNNELS),
        files=(
            "/etc/cni/net.d/10-kuberouter.conf*", "/var/lib/kube-router", f"/var/lib/cni/networks/{CNI_NAME}",
            f"/var/lib/cni/results/{CNI_NAME}-*",
        ),
        iptables_chains=("KUBE-ROUTER-*", "KUBE-POD-FW-*", "KUBE-NWPLCY-*"),
        iptables_rules=(
            r"-[io] kube-bridge\b", r"--match-set (inet6:)?kube-router-", re.escape(NODE_INTERFACE_RULE),
        ),
        ip_sets=("kube-router-*", "KUBE-SRC-*", "KUBE-DST-*", "inet6:kube-router-*", "inet6:KUBE-*"),
        route_protocols=(BGP_PROTOCOL,),
        # For pods behind tunnels, for Services with direct server return, and for external addresses.
        route_tables=(77, 78, 79),
        listen_ports=(BGP_PORT,),
    ),
    # A graceful restart keeps routes without a session, so that both are required.
    ready=ReadyCondition(links=(BRIDGE,), routes_to_peers=True, sessions_to_peers=BGP_PORT),
    daemonset="kube-router",
    # It creates tunnels between nodes of different subnets.
    path=PathEvidence(bridge=BRIDGE, optional_tunnels=(TUNNELS,)),
    node_features=(BRIDGE_FEATURE,),
    bundle_images=("*/kube-router:*",),
)  # fmt: skip
