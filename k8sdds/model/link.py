"""Define the links between nodes: their shaping, MTU, offloads and members."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from k8sdds.system.strict import MAX_RATE_MBIT, Strict, as_list, mistake

STANDARD_MTU, MAX_MTU = 1500, 9000
"""MTU of standard Ethernet (IEEE 802.3), and of jumbo frames."""
MIN_MTU = 1280
"""Smallest MTU with which a link can carry IPv6 (RFC 8200)."""
MAX_DELAY_US = 60_000_000
MAX_MEMBERS = 8
"""Largest number of members of a link: as many as LACP (IEEE 802.1AX) uses at the same time."""

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


CARD = Offloads(gro=True, tso=False, tunnel=False)
"""Offloads with which a veth pair carries the packets of a link between two Ethernet cards: none is larger than the
MTU, and the receiver joins them. Checksums and scatter/gather stay on, as on most of these cards."""


class Shaping(Strict):
    """How the links between the nodes are shaped."""

    rate_mbit: float | None = Field(
        default=None,
        gt=0,
        le=MAX_RATE_MBIT,
        description="shaped rate, in Mbit/s; default: as fast as the CPU allows (lab only)",
    )
    loss_percent: float = Field(
        default=0, ge=0, lt=100, description="random loss of UDP packets, one way (lab only)"
    )
    delay_us: float = Field(
        default=0, ge=0, le=MAX_DELAY_US, description="added one-way delay, in microseconds (lab only)"
    )


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


class Link(Shaping):
    """The links between the nodes in one cell."""

    mtu: int = STANDARD_MTU
    offloads: Offloads = Offloads()
    lag: int = 1

    @property
    def bond(self) -> Bond | None:
        """The bond of each node; None: one member, without a bond."""
        return Bond(members=self.lag) if self.lag > 1 else None

    @property
    def is_shaped(self) -> bool:
        """Whether the links have a rate, a loss or a delay."""
        return any((self.rate_mbit, self.loss_percent, self.delay_us))

    def observed(self, mtu: int, features: Mapping[str, bool], bond: Bond | None = None) -> dict[str, Any]:
        """Return the observed MTU and bond of a link, and those of its features that an offload consists of."""
        known = (feature for names in FEATURES.values() for feature in names)
        bonded = {"bond": asdict(bond)} if bond else {}
        return {"mtu_bytes": mtu} | bonded | {name: features[name] for name in known if name in features}

    def differing(self, mtu: int, features: Mapping[str, bool], bond: Bond | None = None) -> str:
        """Return how an observed link differs from this one; empty if it does not."""
        wrong = [f"an MTU of {mtu}, not of {self.mtu}"] if mtu != self.mtu else []
        if bond != self.bond:
            seen, wanted = (one.describe() if one else "no bond" for one in (bond, self.bond))
            wrong.append(f"{seen}, not {wanted}")
        wrong += [
            f"{name} {'off' if on else 'on'}"
            for name, on in self.offloads.features().items()
            if features.get(name) is not on
        ]
        return ", ".join(wrong)

    def recorded(self) -> dict[str, Any]:
        """Return the keys of `link` in trials.jsonl: MTU, offloads and members only if they are not the usual ones."""
        own = {"mtu", "offloads", "lag"}
        usual = self.model_dump(mode="json", exclude=own)
        return usual | self.model_dump(mode="json", include=own, exclude_defaults=True)

    def describe(self) -> str:
        """Describe MTU, members and offloads briefly, if they are not the usual ones."""
        mtu = f"link MTU {self.mtu}" if self.mtu != STANDARD_MTU else ""
        return " ".join(
            filter(None, (mtu, self.bond.describe() if self.bond else "", self.offloads.describe()))
        )


class LinkChoice(Shaping):
    """The links between the nodes and their switch. Lists of `mtu`, `offloads` and `lag` are combined."""

    mtu: Annotated[
        list[Annotated[int, Field(ge=MIN_MTU, le=MAX_MTU)]], BeforeValidator(as_list), Field(min_length=1)
    ] = Field(
        default=[STANDARD_MTU],
        description="MTU of the nodes' links. The pods' MTU follows it, minus what the network adds to packets,"
        " unless `mtu` of the network sets it",
    )
    offloads: Annotated[list[Offloads], BeforeValidator(as_list), Field(min_length=1)] = Field(
        default=[Offloads()],
        description="offloads of the nodes' links, on or off; an empty mapping changes nothing. Default: nothing,"
        " but for TCP tests in the lab those of an Ethernet card (`gro: true`, `tso: false`, `tunnel: false`)",
    )

    lag: Annotated[
        list[Annotated[int, Field(ge=1, le=MAX_MEMBERS)]], BeforeValidator(as_list), Field(min_length=1)
    ] = Field(
        default=[1],
        description="number of members of each node's link; several are bonded (lab only, if the kernel has bonding)",
    )

    def each(self) -> Iterator[Link]:
        """Yield the links of all combinations."""
        shaping = self.model_dump(exclude={"mtu", "offloads", "lag"})
        for mtu, offloads, lag in itertools.product(self.mtu, self.offloads, self.lag):
            yield Link(**shaping, mtu=mtu, offloads=offloads, lag=lag)

    @model_validator(mode="after")
    def _values_are_unique(self) -> LinkChoice:
        for name in ("mtu", "offloads", "lag"):
            values = getattr(self, name)
            for index, value in enumerate(values):
                if value in values[:index]:
                    raise mistake(f"{value} is listed twice", name, index)
        return self
