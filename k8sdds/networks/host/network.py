"""`baremetal` and `host`: the node's own network, without and with a pod around the participant."""

from __future__ import annotations

import json

from k8sdds import versions
from k8sdds.networks.cluster_install import (
    ClusterInstall,
    Footprint,
    InstallOptions,
    Manifest,
    PathEvidence,
    ReadyCondition,
    container,
    find,
)
from k8sdds.networks.network import LINK_MTU, Attachment, Datapath, Engine, Network, Topology


def _on_nodes(topology: Topology, mtu: int, in_pods: bool) -> Datapath:
    attachments = {
        pod.name: Attachment(
            namespace=topology.nodes[pod.node].name,
            interface="eth0",
            address=topology.nodes[pod.node].address,
        )
        for pod in topology.pods
    }
    return Datapath(mtu=mtu, attachments=attachments, in_pods=in_pods)


def _baremetal(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    return _on_nodes(topology, mtu, in_pods=False)


def _host(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    return _on_nodes(topology, mtu, in_pods=True)


BRIDGE = "k8sdds0"
CNI_NAME = "k8sdds-host"
ROUTE_PROTOCOL = 75
"""Routing protocol number with which the agent k8sdds-routes marks its routes."""


def _on_cluster(asked: InstallOptions, manifests: list[Manifest]) -> list[Manifest]:
    """The cluster's other pods on a bridge of every node; the agent fills in the node's range."""
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local"},
    }
    if asked.mtu_bytes is not None:
        bridge["mtu"] = asked.mtu_bytes
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    cni = {"cniVersion": "0.4.0", "name": CNI_NAME, "plugins": plugins}
    find(manifests, "ConfigMap", "host-cni")["data"]["cni.json"] = json.dumps(cni, indent=1)
    agent = container(find(manifests, "DaemonSet", "host"), "routes")
    agent["args"] = [f"--pods={asked.pod_cidr}"]
    return manifests


BAREMETAL = Network(
    name="baremetal",
    title="no container: a process on the node",
    layer="none",
    encapsulation="",
    multicast="by the switch",
    encryption="",
    policy=False,
    architectures=versions.ARCHITECTURES,
    versions="Linux",
    fidelity="real",
    differences="",
    default_mtu=LINK_MTU,
    max_mtu=LINK_MTU,
    needs=("bridge",),
    lab=_baremetal,
)

HOST = Network(
    name="host",
    title="pods with hostNetwork: the node's own network",
    layer="none",
    encapsulation="",
    multicast="by the switch",
    encryption="",
    policy=False,
    architectures=versions.ARCHITECTURES,
    versions="Kubernetes hostNetwork",
    fidelity="real",
    differences="",
    default_mtu=LINK_MTU,
    max_mtu=LINK_MTU,
    needs=("bridge",),
    lab=_host,
    cluster=ClusterInstall(
        folder="host",
        render=_on_cluster,
        signs=Footprint(
            links=(BRIDGE,),
            files=(
                "/etc/cni/net.d/10-k8sdds-host.conflist",
                f"/var/lib/cni/networks/{CNI_NAME}",
                f"/var/lib/cni/results/{CNI_NAME}-*",
            ),
            nft_tables=(f"ip {CNI_NAME}",),
            route_protocols=(ROUTE_PROTOCOL,),
        ),
        present=ReadyCondition(routes_to_peers=True),
        daemonset="host",
        # Nodes may talk by a VPN: that is then their own network.
        carrier=PathEvidence(may=("*",)),
    ),
)
