"""Attach participants to their node's own network, with or without a pod.

A node that runs pods is a node of Kubernetes: its packets pass the rules of kube-proxy and kubelet.
"""

from __future__ import annotations

from k8sdds.networks.common import iptables
from k8sdds.networks.datapath import Attachment, Datapath, Topology
from k8sdds.networks.network import Engine


def baremetal(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan participants that run as processes of the node."""
    return _on_nodes(topology, mtu, in_pods=False)


def host(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan participants in pods with hostNetwork."""
    return _on_nodes(topology, mtu, in_pods=True)


def _on_nodes(topology: Topology, mtu: int, in_pods: bool) -> Datapath:
    nodes = {pod.name: topology.nodes[pod.node] for pod in topology.pods}
    attachments = {name: Attachment(node.name, "eth0", node.address) for name, node in nodes.items()}
    rules = tuple(iptables.kubernetes_batch(node) for node in topology.nodes) if in_pods else ()
    return Datapath(mtu=mtu, attachments=attachments, in_pods=in_pods, batches=rules)
