"""`baremetal` and `host`: the node's own network, without and with a pod around the participant."""

from __future__ import annotations

from k8sdds.model.network import LINK_MTU, Attachment, Datapath, Engine, Network, Topology

ARCHITECTURES = ("amd64", "arm64", "arm")


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


BAREMETAL = Network(
    name="baremetal",
    title="no container: a process on the node",
    layer="none",
    encapsulation="",
    multicast="by the switch",
    encryption="",
    policy=False,
    architectures=ARCHITECTURES,
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
    architectures=ARCHITECTURES,
    versions="Kubernetes hostNetwork",
    fidelity="real",
    differences="",
    default_mtu=LINK_MTU,
    max_mtu=LINK_MTU,
    needs=("bridge",),
    lab=_host,
)
