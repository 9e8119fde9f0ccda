"""The node's own network: `host` with a pod around each participant, `baremetal` without.

A node that runs pods is a node of Kubernetes: its packets pass the rules of kube-proxy and kubelet. On clusters, the
participants of `host` use hostNetwork. The other pods, such as CoreDNS, still need a network: a bridge on every node,
and routes between nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
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
    remove_from_pods,
)
from k8sdds.networks.common import iptables
from k8sdds.networks.datapath import LINK_MTU, Attachment, Datapath, Topology
from k8sdds.networks.network import Engine, Network, NetworkColor
from k8sdds.system.kernel_features import BRIDGE as BRIDGE_KERNEL_FEATURE
from k8sdds.system.kernel_features import IPTABLES, NFTABLES

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
    remove_from_pods(daemonset, "initContainers", "install-attach")
    remove_from_pods(daemonset, "volumes", "cni-plugins")
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
    host_network_multicast=True,
)


def _on_nodes(in_pods: bool) -> Callable[[Topology, int, Engine | None], Datapath]:
    """Return the planner of participants in pods with hostNetwork, or in processes of the node."""

    def plan(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
        nodes = {pod.name: topology.nodes[pod.node] for pod in topology.pods}
        attachments = {name: Attachment(node.name, "eth0", node.address) for name, node in nodes.items()}
        rules = tuple(iptables.kubernetes_batch(node) for node in topology.nodes) if in_pods else ()
        return Datapath(mtu=mtu, attachments=attachments, in_pods=in_pods, batches=rules)

    return plan


HOST = Network(
    name="host",
    title="pods with hostNetwork: the node's own network",
    layer="none",
    multicast="by the switch",
    versions="Kubernetes hostNetwork",
    fidelity="real",
    differences="kube-proxy's rules for Services are empty",
    default_mtu=LINK_MTU,
    requires=(BRIDGE_KERNEL_FEATURE, NFTABLES, IPTABLES),
    lab=_on_nodes(in_pods=True),
    no_cni_plugins="its pods use the network of their node",
    color=NetworkColor("#4d4d4d", "#c9c9cf", "o"),
    cluster=CLUSTER_INSTALL,
    aliases=("hostnetwork", "hostmode", "host-network", "host-mode"),
)

BAREMETAL = replace(
    HOST,
    name="baremetal",
    title="no container: a process on the node",
    versions="Linux",
    differences="",
    requires=(BRIDGE_KERNEL_FEATURE,),
    lab=_on_nodes(in_pods=False),
    color=NetworkColor("#111112", "#f5f5f7", "<"),
    cluster=None,
    aliases=("bare-metal", "bare", "native"),
)

NETWORKS = (HOST, BAREMETAL)
