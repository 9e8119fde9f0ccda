"""Plan the datapath of WeaveNet with encryption (WEAVE_PASSWORD): its VXLAN packets between nodes, in ESP.

Facts from Weave's documentation and sources (2.6 to 2.9): the kernel's ESP encrypts the VXLAN packets of the fast
datapath in transport mode with AES-256-GCM; the weave routers negotiate the keys. In the lab, IKEv2 negotiates them.

The userspace engine has no transport mode. There the VXLAN devices use separate addresses, with an ESP tunnel between
every two of them. Multicast takes the same path as on `weavenet`: a copy to every node.
"""

from __future__ import annotations

from dataclasses import replace

from k8sdds.networks.common import overhead, strongswan
from k8sdds.networks.datapath import LINK_MTU, Batch, Datapath, LabNode, Topology
from k8sdds.networks.network import Engine
from k8sdds.networks.weave import lab

CIPHER = "aes256gcm16"
PAPER_MTU = 1414
"""MTU of the pods in the K8sDDS paper."""
USERSPACE_MTU = 1330
"""20 bytes below the maximum, which is the MTU of the TUN device minus the VXLAN headers."""
MAX_MTU = LINK_MTU - overhead.VXLAN - overhead.ESP_TRANSPORT

ENGINES = (
    Engine(
        name=strongswan.KERNEL, title="kernel ESP", mode="transport",
        default_mtu=PAPER_MTU, max_mtu=MAX_MTU, requires=strongswan.KERNEL_REQUIRES,
        loss_exemption=strongswan.KERNEL_LOSS_EXEMPTION,
    ),
    Engine(
        name=strongswan.USERSPACE, title="userspace ESP", mode="tunnel",
        default_mtu=USERSPACE_MTU, max_mtu=strongswan.TUN_MTU - overhead.VXLAN,
        requires=strongswan.USERSPACE_REQUIRES, fixed_mtu=True,
    ),
)  # fmt: skip


def datapath(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the encrypted datapath."""
    if engine is not None and engine.mode == "tunnel":
        endpoints = tuple(
            Batch(node.name, "ip", (f"addr add {_endpoint(node)}/32 dev lo",)) for node in topology.nodes
        )
        plain = lab.datapath(topology, mtu, _endpoint)
        plain = replace(plain, batches=(*endpoints, *plain.batches))
        return strongswan.encrypted(plain, topology, engine, CIPHER, _tunnel_selectors)
    plain = lab.datapath(topology, mtu)
    return strongswan.encrypted(plain, topology, engine, CIPHER, _transport_selectors)


def _endpoint(node: LabNode) -> str:
    """Return the address of a node's VXLAN device in tunnel mode."""
    return f"172.31.0.{10 + node.index}"


def _tunnel_selectors(node: LabNode, peer: LabNode) -> tuple[str, str]:
    return f"{_endpoint(node)}/32", f"{_endpoint(peer)}/32"


def _transport_selectors(node: LabNode, peer: LabNode) -> tuple[str, str]:
    # All UDP between the nodes, because VXLAN's source ports vary. charon exempts IKE by separate policies.
    return f"{node.address}/32[udp]", f"{peer.address}/32[udp]"
