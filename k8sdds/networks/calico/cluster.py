"""Install Calico on a cluster, with iptables and without encapsulation, with VXLAN or with IP in IP.

Facts from Calico's documentation (v3.30): the agent (Felix, and for BGP confd and BIRD) stores its state in custom
resources, assigns blocks of 64 addresses to nodes, and creates the pool of addresses that its environment describes.
With VXLAN, Felix adds the routes and no BGP daemon runs. "Test coverage" in docs/reference/networks.md states what ran.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from k8sdds.networks.cluster_install import (
    IP_SET_FEATURES,
    IPIP_FEATURE,
    VXLAN_FEATURE,
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    NodeFeature,
    PathEvidence,
    ReadyCondition,
    container,
    custom_resources,
    find,
    set_variables,
)

CNI_NAME = "k8s-pod-network"
BGP_PORT = 179

_CLUSTER_WIDE = (
    "BGPConfiguration", "BGPFilter", "BGPPeer", "BlockAffinity", "CalicoNodeStatus", "ClusterInformation",
    "FelixConfiguration", "GlobalNetworkPolicy", "GlobalNetworkSet", "HostEndpoint", "IPAMBlock", "IPAMConfig",
    "IPAMHandle", "IPPool", "IPReservation", "StagedGlobalNetworkPolicy", "Tier",
)  # fmt: skip
_OF_KUBERNETES = ("AdminNetworkPolicy", "BaselineAdminNetworkPolicy")
"""Kinds of the network policy API that Felix lists at its start. It is not ready before this succeeds."""
_NAMESPACED = ("NetworkPolicy", "NetworkSet", "StagedKubernetesNetworkPolicy", "StagedNetworkPolicy")

_FOOTPRINT = Footprint(
    links=("cali" + "[0-9a-f]" * 11, "vxlan.calico"),
    shared_tunnels=("tunl0",),
    files=(
        "/etc/cni/net.d/10-calico.conflist", "/etc/cni/net.d/calico-kubeconfig", "/var/lib/calico", "/run/calico",
        "/opt/cni/bin/calico", "/opt/cni/bin/calico-ipam", f"/var/lib/cni/results/{CNI_NAME}-*",
    ),
    saved_sysctls=(("/var/lib/calico/nf_conntrack_acct", "net.netfilter.nf_conntrack_acct"),),
    iptables_chains=("cali-*",),
    iptables_rules=(r'--comment "?cali:',),
    ip_sets=("cali40*", "cali4t*"),
    listen_ports=(BGP_PORT,),
    node_annotations=("projectcalico.org/",),
)  # fmt: skip


def _cni_config(mtu_bytes: int | None) -> dict[str, Any]:
    # The installer replaces __CNI_MTU__ and the other words, also those that JSON would need as numbers.
    plugin: dict[str, Any] = {
        "type": "calico",
        "log_level": "warning",
        "datastore_type": "kubernetes",
        "nodename": "__KUBERNETES_NODE_NAME__",
        "mtu": mtu_bytes or 0,
        "ipam": {"type": "calico-ipam"},
        "policy": {"type": "k8s"},
        "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"},
    }
    plugins = [plugin, {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}}]
    return {"cniVersion": "0.3.1", "name": CNI_NAME, "plugins": plugins}


def _cluster_install(
    settings: Mapping[str, str],
    ready: ReadyCondition,
    tunnels: tuple[str, ...] = (),
    node_features: tuple[NodeFeature, ...] = (),
) -> ClusterInstall:
    """Return the cluster install of one mode; `settings` are environment variables of the agent."""

    def render(options: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
        agent = container(find(manifests, "DaemonSet", "calico"), "calico-node")
        mtu = str(options.mtu_bytes or 0)
        # The agent takes a regular expression, which would also match longer names.
        exact = f"interface=^{re.escape(options.interface)}$" if options.interface else ""
        variables = {
            "CALICO_IPV4POOL_CIDR": str(options.pod_cidr),
            "FELIX_VXLANMTU": mtu,
            "FELIX_IPINIPMTU": mtu,
            "IP_AUTODETECTION_METHOD": exact or "kubernetes-internal-ip",
        }
        set_variables(agent, {**variables, **settings})
        cni = find(manifests, "ConfigMap", "calico-cni")["data"]
        cni["cni.json"] = json.dumps(_cni_config(options.mtu_bytes), indent=1)
        return [
            *manifests,
            *custom_resources("crd.projectcalico.org", "v1", _CLUSTER_WIDE, _NAMESPACED),
            *custom_resources("policy.networking.k8s.io", "v1alpha1", _OF_KUBERNETES),
        ]

    return ClusterInstall(
        manifest_folder="calico",
        render=render,
        footprint=_FOOTPRINT,
        ready=ready,
        daemonset="calico",
        path=PathEvidence(bridge="cali*", tunnels=tunnels, varies=True),
        node_features=(*node_features, *IP_SET_FEATURES),
        ipv4_only="k8sdds configures Calico's pool for IPv4 alone",
    )


# The agent's startup probe shows that Felix is ready.
_BGP_READY = ReadyCondition(sessions_to_peers=BGP_PORT)

BGP = _cluster_install({}, _BGP_READY)

VXLAN = _cluster_install(
    {
        "CALICO_NETWORKING_BACKEND": "vxlan",
        "CLUSTER_TYPE": "k8s",
        "CALICO_IPV4POOL_VXLAN": "Always",
    },
    ReadyCondition(links=("vxlan.calico",)),
    tunnels=("vxlan.calico",),
    node_features=(VXLAN_FEATURE,),
)

IPIP = _cluster_install(
    {"CALICO_IPV4POOL_IPIP": "Always"},
    replace(_BGP_READY, links=("tunl0",)),
    tunnels=("tunl0",),
    node_features=(IPIP_FEATURE,),
)
