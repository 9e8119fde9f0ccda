"""Flannel with its IPsec backend: pods on cni0, and an ESP tunnel between every two nodes.

Facts from flannel's documentation and sources (v0.28): strongSwan's charon on every node, IKEv2 with a
pre-shared key of at least 96 characters, tunnel mode from pod subnet to pod subnet, AES-128-GCM by default,
no device flannel.1. The study set the pods' MTU to 1423.
"""

from __future__ import annotations

from k8sdds import versions
from k8sdds.networks.cluster_install import ReadyCondition
from k8sdds.networks.common import strongswan
from k8sdds.networks.flannel import cluster as flannel_cluster
from k8sdds.networks.flannel import lab as flannel
from k8sdds.networks.network import LINK_MTU, Datapath, Engine, Network, Node, Topology

CIPHER = "aes128gcm16"
ESP_BYTES = 54
"""Outer IPv4 (20), ESP (8), IV (8), trailer (2) and check value (16) of AES-GCM in tunnel mode, unpadded."""


def _selectors(node: Node, peer: Node) -> tuple[str, str]:
    return str(node.pod_subnet), str(peer.pod_subnet)


def _lab(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    plain = flannel.datapath(topology, mtu, lambda topology, node, mtu: [])
    return strongswan.encrypted(plain, topology, engine, CIPHER, _selectors)


ENGINES = (
    Engine(
        option=strongswan.KERNEL, title="kernel ESP", mode="tunnel",
        default_mtu=1423, max_mtu=LINK_MTU - ESP_BYTES, needs=strongswan.KERNEL_NEEDS,
    ),
    Engine(
        option=strongswan.USERSPACE, title="userspace ESP", mode="tunnel",
        default_mtu=strongswan.TUN_MTU, max_mtu=strongswan.TUN_MTU, needs=strongswan.USERSPACE_NEEDS,
    ),
)  # fmt: skip

IPSEC = Network(
    name="flannel-ipsec",
    title="Flannel, IPsec backend",
    layer="L3 routes",
    encapsulation="ESP",
    multicast="",
    encryption="AES-128-GCM, IKEv2 with a pre-shared key",
    policy=False,
    architectures=versions.ARCHITECTURES,
    versions="flannel 0.11 to 0.28",
    fidelity="equivalent",
    differences="charon installs the policies that flanneld writes itself; the userspace engine wraps ESP in"
    " UDP and encrypts in charon's threads, several times dearer than the kernel's; " + flannel.KUBE_PROXY,
    default_mtu=1423,
    max_mtu=LINK_MTU - ESP_BYTES,
    needs=("bridge", "nftables", "br_netfilter", "nft_ingress"),
    lab=_lab,
    cluster=flannel_cluster.half(
        lambda asked: {"Type": "ipsec", "PSK": asked.password},
        ReadyCondition(xfrm_to_peers=True),
        # charon listens on UDP ports 500 and 4500.
        capabilities=("NET_BIND_SERVICE",),
        xfrm=True,
        programs=("charon",),
        unseen=strongswan.UNSEEN,
    ),
    unprotected="flannel-hostgw",
    engines=ENGINES,
)
