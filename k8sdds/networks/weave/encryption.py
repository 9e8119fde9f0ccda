"""WeaveNet with encryption (WEAVE_PASSWORD): its VXLAN packets between nodes inside ESP.

Facts from Weave's documentation and sources (2.6 to 2.9): the fast datapath's VXLAN packets are encrypted by
the kernel's ESP in transport mode, AES-256-GCM, with keys that the weave routers agree on. The study set the
pods' MTU to 1414. Here IKEv2 agrees on the keys.

The userspace engine has no transport mode: there the VXLAN devices talk from addresses of their own, and a
tunnel runs between every two of these. Multicast takes the same way as on `weavenet`: a copy to every node.
"""

from __future__ import annotations

from dataclasses import replace

from k8sdds.networks.common import strongswan
from k8sdds.networks.network import LINK_MTU, Batch, Datapath, Engine, Node, Topology
from k8sdds.networks.weave import cluster as weave_cluster
from k8sdds.networks.weave import lab as weave

CIPHER = "aes256gcm16"
ESP_BYTES = 34
"""ESP (8), IV (8), trailer (2) and check value (16) of AES-GCM in transport mode, unpadded."""


def _endpoint(node: Node) -> str:
    """Address of a node's VXLAN device where it is not the node's own."""
    return f"172.31.0.{10 + node.index}"


def _tunnelled(node: Node, peer: Node) -> tuple[str, str]:
    return f"{_endpoint(node)}/32", f"{_endpoint(peer)}/32"


def _transported(node: Node, peer: Node) -> tuple[str, str]:
    # VXLAN's source ports vary, so all UDP between the nodes; IKE has policies of its own.
    return f"{node.address}/32[udp]", f"{peer.address}/32[udp]"


def _lab(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    if engine is not None and engine.mode == "tunnel":
        ends = tuple(
            Batch(node.name, "ip", (f"addr add {_endpoint(node)}/32 dev lo",)) for node in topology.nodes
        )
        plain = weave.datapath(topology, mtu, _endpoint)
        plain = replace(plain, batches=(*ends, *plain.batches))
        return strongswan.encrypted(plain, topology, engine, CIPHER, _tunnelled)
    plain = weave.datapath(topology, mtu, None)
    return strongswan.encrypted(plain, topology, engine, CIPHER, _transported)


ENGINES = (
    Engine(
        option=strongswan.KERNEL, title="kernel ESP", mode="transport",
        default_mtu=1414, max_mtu=LINK_MTU - weave.VXLAN_HEADERS - ESP_BYTES, needs=strongswan.KERNEL_NEEDS,
    ),
    Engine(
        option=strongswan.USERSPACE, title="userspace ESP", mode="tunnel",
        default_mtu=1330, max_mtu=strongswan.TUN_MTU - weave.VXLAN_HEADERS,
        needs=strongswan.USERSPACE_NEEDS,
    ),
)  # fmt: skip

WEAVENET_ENCRYPT = replace(
    weave.WEAVENET,
    name="weavenet-encrypt",
    title="WeaveNet, fast datapath, encrypted",
    encapsulation="VXLAN in ESP",
    encryption="AES-256-GCM, IKEv2 with a pre-shared key",
    differences=weave.WEAVENET.differences + "; IKEv2 agrees on the keys instead of the weave routers; the"
    " userspace engine wraps ESP in UDP, in tunnel mode, and encrypts in charon's threads, several times"
    " dearer than the kernel's",
    default_mtu=1414,
    max_mtu=LINK_MTU - weave.VXLAN_HEADERS - ESP_BYTES,
    needs=(*weave.WEAVENET.needs, "nft_ingress"),
    lab=_lab,
    cluster=weave_cluster.half(1414, encrypted=True),
    engine=None,
    unprotected="weavenet",
    engines=ENGINES,
)
