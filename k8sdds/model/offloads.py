"""Define what the network interfaces of nodes do themselves: offloads, and bonds of several members."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from k8sdds.system.strict import Strict

FEATURES = {
    "gro": ("generic-receive-offload",),
    "gso": ("generic-segmentation-offload",),
    "tso": ("tcp-segmentation-offload",),
    "uso": ("tx-udp-segmentation",),
    "tunnel": ("tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation"),
}
"""Offload → the features that it consists of, as `ethtool -k` names them."""


def parse_features(output: str) -> dict[str, bool]:
    """Return whether each feature in the output of `ethtool -k` is on."""
    rows = (line.split(":", 1) for line in output.splitlines() if ": o" in line)
    return {name.strip(): value.split()[0] == "on" for name, value in rows}


class Offloads(Strict):
    """Offloads of the nodes' links. Those that are left out stay as they are."""

    gro: bool | None = Field(default=None, description="generic receive offload: received packets are joined")
    gso: bool | None = Field(
        default=None, description="generic segmentation offload: TCP of the node itself is split late"
    )
    tso: bool | None = Field(default=None, description="TCP segmentation offload: the link splits packets")
    uso: bool | None = Field(
        default=None,
        description="UDP segmentation offload: the link splits what `raw-gso` sends in one system call",
    )
    tunnel: bool | None = Field(
        default=None, description="the link splits packets in tunnels by UDP, such as VXLAN"
    )

    def requested(self) -> dict[str, bool]:
        """Return the offloads that are to be on or off."""
        return self.model_dump(exclude_none=True)

    def features(self) -> dict[str, bool]:
        """Return ethtool's features that are to be on or off."""
        return {feature: on for name, on in self.requested().items() for feature in FEATURES[name]}

    def describe(self) -> str:
        """Describe the offloads briefly: `gro on, tso off`."""
        return ", ".join(f"{name} {'on' if on else 'off'}" for name, on in self.requested().items())


SEGMENTATION = Offloads(gso=False, tso=False, uso=False, tunnel=False)
"""Offloads whose packets are larger than those of the wire."""
CARD = Offloads(gro=True, tso=False, tunnel=False)
"""Offloads with which a veth pair carries the packets of a link between two Ethernet cards: none is larger than the
MTU, and the receiver joins them. Checksums and scatter/gather stay on, as on most of these cards."""


@dataclass(frozen=True)
class Bond:
    """A bond of Linux over several members (link aggregation): a flow uses one member, by a hash of its packets.

    Mode balance-xor chooses members by the same function of the kernel as 802.3ad, but without LACP, whose negotiation
    takes seconds and adds nothing to a packet. The hash of addresses and ports is what both ends of a LAG are usually
    set to, because the default (MAC addresses) gives all flows between two nodes to one member.
    """

    members: int
    mode: str = "balance-xor"
    hash: str = "layer3+4"

    def describe(self) -> str:
        """Describe the bond briefly: `LAG of 2 (balance-xor, layer3+4)`."""
        return f"LAG of {self.members} ({self.mode}, {self.hash})"
