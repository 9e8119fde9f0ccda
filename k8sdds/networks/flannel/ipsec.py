"""Plan Flannel's IPsec datapath: pods on cni0, and an ESP tunnel between every two nodes.

Each node runs strongSwan's charon: IKEv2 with a pre-shared key of at least 96 characters, tunnel mode from pod subnet
to pod subnet, AES-128-GCM by default. There is no device flannel.1.
"""

from __future__ import annotations

from k8sdds.networks.common import overhead, strongswan
from k8sdds.networks.datapath import LINK_MTU, Datapath, LabNode, Topology
from k8sdds.networks.flannel import lab
from k8sdds.networks.network import Engine

CIPHER = "aes128gcm16"
PAPER_MTU = 1423
"""MTU of the pods in the K8sDDS paper."""

ENGINES = (
    Engine(
        name=strongswan.KERNEL, title="kernel ESP", mode="tunnel",
        default_mtu=PAPER_MTU, max_mtu=LINK_MTU - overhead.ESP_TUNNEL, requires=strongswan.KERNEL_REQUIRES,
        loss_exemption=strongswan.KERNEL_LOSS_EXEMPTION,
    ),
    Engine(
        name=strongswan.USERSPACE, title="userspace ESP", mode="tunnel",
        default_mtu=strongswan.TUN_MTU, max_mtu=strongswan.TUN_MTU, requires=strongswan.USERSPACE_REQUIRES,
        fixed_mtu=True,
    ),
)  # fmt: skip


def _selectors(node: LabNode, peer: LabNode) -> tuple[str, str]:
    return str(node.pod_subnet), str(peer.pod_subnet)


def datapath(topology: Topology, mtu: int, engine: Engine | None) -> Datapath:
    """Plan the datapath of the IPsec backend."""
    return strongswan.encrypted(lab.bridged(topology, mtu), topology, engine, CIPHER, _selectors)
