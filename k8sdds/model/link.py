"""Define the links between nodes: their shaping, MTU, offloads and members."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, create_model, model_validator

from k8sdds.model.axis import NETWORK, Axis, axes, keys_of, lists_of, require_unique
from k8sdds.system.strict import MAX_RATE_MBIT, Strict

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


class Link(Strict):
    """The links between the nodes in one cell."""

    rate_mbit: Annotated[float | None, Axis(NETWORK, lambda v: f"{v:g} Mbit/s", several=False)] = Field(
        default=None,
        gt=0,
        le=MAX_RATE_MBIT,
        description="shaped rate, in Mbit/s; default: as fast as the CPU allows (lab only)",
    )
    loss_percent: Annotated[float, Axis(NETWORK, lambda v: f"{v:g} % loss", several=False)] = Field(
        default=0, ge=0, lt=100, description="random loss of UDP packets, one way (lab only)"
    )
    delay_us: Annotated[float, Axis(NETWORK, lambda v: f"{v:g} µs delay", several=False)] = Field(
        default=0, ge=0, le=MAX_DELAY_US, description="added one-way delay, in microseconds (lab only)"
    )
    mtu: Annotated[int, Axis(NETWORK, lambda v: f"MTU {v}", since=2)] = Field(
        default=STANDARD_MTU,
        ge=MIN_MTU,
        le=MAX_MTU,
        description="MTU of the nodes' links. The pods' MTU follows it, minus what the network adds to packets,"
        " unless `mtu` of the network sets it",
    )
    lag: Annotated[int, Axis(NETWORK, lambda v: f"LAG of {v}", since=2)] = Field(
        default=1,
        ge=1,
        le=MAX_MEMBERS,
        description="number of members of each node's link; several are bonded (lab only, if the kernel has bonding)",
    )
    offloads: Annotated[Offloads, Axis(NETWORK, Offloads.describe, since=2)] = Field(
        default=Offloads(),
        description="offloads of the nodes' links, on or off; an empty mapping changes nothing. Default: nothing,"
        " but for TCP tests in the lab over links with a rate those of an Ethernet card (`gro: true`, `tso: false`,"
        " `tunnel: false`)",
    )

    @property
    def bond(self) -> Bond | None:
        """The bond of each node; None if the link has one member."""
        return Bond(members=self.lag) if self.lag > 1 else None

    @property
    def is_verified(self) -> bool:
        """Whether something is set that testbeds read back from the nodes' links."""
        return bool(self.mtu != STANDARD_MTU or self.bond or self.offloads.requested())

    @property
    def is_shaped(self) -> bool:
        """Whether the links have a rate, a loss, a delay or another impairment."""
        shaping = set(axes(Link)) - {"mtu", "lag", "offloads"}
        return any(getattr(self, name) != axes(Link)[name].default for name in shaping)

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

    def describe(self) -> str:
        """Describe what is not the default: `links 100 Mbit/s, MTU 9000, tso off`."""
        parts = [
            part.phrase(value)
            for name, part in axes(Link).items()
            if (value := getattr(self, name)) != part.default
        ]
        return "links " + (", ".join(parts) or "unshaped")


if TYPE_CHECKING:

    class _Keys(Strict):
        def __getattr__(self, name: str) -> Any: ...

else:
    _Keys = create_model("_Keys", __base__=Strict, **keys_of(Link))


class LinkChoice(_Keys):
    """The links between the nodes and their switch. Lists are combined."""

    def each(self) -> Iterator[Link]:
        """Yield the links of all combinations."""
        lists = lists_of(Link)
        shaping = self.model_dump(exclude=set(lists))
        for values in itertools.product(*(getattr(self, name) for name in lists)):
            yield Link(**shaping, **dict(zip(lists, values, strict=True)))

    @model_validator(mode="after")
    def _values_are_unique(self) -> LinkChoice:
        require_unique(self, lists_of(Link))
        return self
