"""Define the links between nodes: what they do to packets, and their MTU, offloads and members."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from k8sdds.model import link_files
from k8sdds.model.axis import NETWORK, Axis, axes, compact
from k8sdds.model.impairments import (
    MAX_DELAY_US,
    PARTS,
    Delay,
    Direction,
    Loss,
    Queue,
    Rate,
    phrase,
    with_files,
)
from k8sdds.model.offloads import FEATURES, Bond, Offloads
from k8sdds.model.outages import MAX_OUTAGES, Outage, Phase, describe_outages, require_apart, require_falling
from k8sdds.system.strict import MAX_RATE_MBIT, MAX_TITLE, Strict, as_list, mistake

STANDARD_MTU, MAX_MTU = 1500, 9000
"""MTU of standard Ethernet (IEEE 802.3), and of jumbo frames."""
MIN_MTU = 1280
"""Smallest MTU with which a link can carry IPv6 (RFC 8200)."""
MAX_MEMBERS = 8
"""Largest number of members of a link: as many as LACP (IEEE 802.1AX) uses at the same time."""

KERNEL, USERSPACE = "kernel", "userspace"
"""Engines that impair links: netem and other queues of the kernel, or the forwarder of k8sdds."""
SHORT = {"rate_mbit": "rate", "loss_percent": "loss", "delay_us": "delay"}
"""Keys of a link that state a part in a number, and that part."""
WHOLE_WAY = ("loss_percent", "delay_us")
"""Short keys for the whole way from one node to another. `rate_mbit` applies to each link of it."""


def _impairment(name: str) -> Axis:
    return Axis(NETWORK, lambda value: phrase(name, value), since=5, several=False)


def _of_direction(name: str) -> Axis:
    return Axis(NETWORK, lambda value: f"{name} {value.describe()}", since=5, several=False)


class Link(Strict):
    """The links between the nodes in one cell."""

    name: Annotated[str, Axis(NETWORK, str, since=5, several=False)] = Field(
        default="", max_length=MAX_TITLE, description="name in reports; default: that of the link in `like`"
    )
    rate_mbit: Annotated[float | None, Axis(NETWORK, lambda v: f"{v:g} Mbit/s", several=False)] = Field(
        default=None,
        gt=0,
        le=MAX_RATE_MBIT,
        description="shaped rate, in Mbit/s, short for `rate: {mbit: …}`; default: as fast as the CPU allows",
    )
    loss_percent: Annotated[float, Axis(NETWORK, lambda v: f"{v:g} % loss", several=False)] = Field(
        default=0,
        ge=0,
        lt=100,
        description="random loss of UDP packets on the way from one node to another",
    )
    delay_us: Annotated[float, Axis(NETWORK, lambda v: f"{v:g} µs delay", several=False)] = Field(
        default=0,
        ge=0,
        le=MAX_DELAY_US,
        description="added delay on the way from one node to another, in microseconds",
    )
    delay: Annotated[Delay | None, _impairment("delay")] = Field(
        default=None, description="one-way delay, both ways"
    )
    loss: Annotated[Loss | None, _impairment("loss")] = Field(
        default=None, description="loss of packets, both ways"
    )
    rate: Annotated[Rate | None, _impairment("rate")] = Field(default=None, description="rate, both ways")
    queue: Annotated[Queue | None, _impairment("queue")] = Field(
        default=None, description="queue in front of the rate, both ways"
    )
    duplicate_percent: Annotated[float | None, _impairment("duplicate_percent")] = Field(
        default=None, ge=0, lt=100, description="share of the packets that arrive twice, both ways"
    )
    up: Annotated[Direction, _of_direction("up")] = Field(
        default=Direction(),
        description="from the node into the network: each key that is set here replaces the one for both directions",
    )
    down: Annotated[Direction, _of_direction("down")] = Field(
        default=Direction(), description="the same from the network to the node"
    )
    nodes: Annotated[
        Literal["all", "publishers", "subscribers"],
        Axis(NETWORK, lambda v: f"only of {v}" if v != "all" else "of all nodes", since=5, several=False),
    ] = Field(
        default="all",
        description="whose links are impaired: those of all nodes, or only of nodes with publishers or subscribers,"
        " such as a robot on Wi-Fi whose base station is not",
    )
    outages: Annotated[
        tuple[Outage, ...],
        BeforeValidator(as_list),
        Axis(NETWORK, describe_outages, since=5, several=False),
    ] = Field(default=(), max_length=MAX_OUTAGES, description="times in which nothing passes")
    engine: Annotated[
        Literal["auto", "kernel", "userspace"],
        Axis(NETWORK, lambda v: f"{v} engine", since=5, several=False),
    ] = Field(
        default="auto",
        description="what impairs the links: netem of the `kernel`, or the forwarder of k8sdds (`userspace`); `auto`:"
        " the kernel if it can do all that is set and has netem",
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
        return bool(self.outages or any(direction != Direction() for direction in self.directions.values()))

    @property
    def exceeds_short_keys(self) -> bool:
        """Whether more than the constant rate, loss and delay of `SHORT` is set, so that an engine is needed."""
        others = (*PARTS, "up", "down", "nodes", "outages")
        return any(getattr(self, name) != axes(Link)[name].default for name in others)

    @property
    def directions(self) -> dict[str, Direction]:
        """What happens to packets from a node into the network (`up`) and back (`down`).

        A packet passes `up` of its sender's link and `down` of its receiver's. The short keys for delay and loss are
        for the whole way between two nodes, so that each applies once.
        """
        both = Direction(
            delay=self.delay,
            loss=self.loss,
            rate=self.rate or (Rate(mbit=self.rate_mbit) if self.rate_mbit else None),
            queue=self.queue,
            duplicate_percent=self.duplicate_percent,
        )
        once_up = Direction(delay=Delay(mean_us=self.delay_us) if self.delay_us else None)
        once_down = Direction(
            loss=Loss(percent=self.loss_percent, udp_only=True) if self.loss_percent else None
        )
        return {"up": self.up.over(once_up).over(both), "down": self.down.over(once_down).over(both)}

    @property
    def loses_packets(self) -> bool:
        """Whether packets are lost, apart from those that a full queue drops."""
        losses = (direction.loss for direction in self.directions.values() if direction.loss)
        return bool(self.outages) or any(loss.mean_percent != 0 for loss in losses)

    @property
    def longest_delay_us(self) -> float:
        """The delay between two nodes, one way, that few packets exceed. Reads the files of the link."""
        delays = [direction.delay for direction in self.directions.values() if direction.delay]
        return sum(link_files.longest_us(delay) for delay in delays)

    @property
    def longest_outage_s(self) -> float:
        """How long nothing passes at most; 0 without outages."""
        return max((outage.for_s for outage in self.outages), default=0)

    def impairs(self, roles: Collection[str]) -> bool:
        """Return whether the link of a node whose participants have these roles is impaired, if any is."""
        return self.nodes == "all" or self.nodes in [f"{role}s" for role in roles]

    def outage_phases(self, length_s: float) -> list[Phase]:
        """Return the phases of outages in a measured interval of this length, in order and without overlaps."""
        found = [phase for outage in self.outages for phase in outage.phases(length_s)]
        return sorted(found, key=lambda phase: phase.at_us)

    def without_places(self) -> Link:
        """Return the link without the places of its files, whose content is known by their SHA-256."""
        return with_files(self, lambda _: {"file": ""})

    @property
    def kernel_obstacle(self) -> str:
        """Why the kernel's netem and its queues cannot do all that is set; empty: they can."""
        for name, direction in self.directions.items():
            if direction.netem_obstacle:
                return f"{name}.{direction.netem_obstacle}"
        return "netem has no outages" if self.outages else ""

    @model_validator(mode="after")
    def _is_possible(self) -> Link:
        self._require_one_form()
        rates = {name: direction.rate for name, direction in self.directions.items()}
        require_falling(self.outages, rates)
        for name, direction in self.directions.items():
            if direction.queue and direction.rate is None:
                keys = (name, "queue") if getattr(self, name).queue else ("queue",)
                raise mistake("a queue fills only in front of a rate: set rate too", *keys)
        require_apart(self.outages)
        if self.nodes != "all" and not self.is_shaped:
            raise mistake("has no effect: nothing impairs the links", "nodes")
        if self.engine == KERNEL and self.kernel_obstacle:
            raise mistake(f"{self.kernel_obstacle}: use {USERSPACE} or auto", "engine")
        return self

    def _require_one_form(self) -> None:
        for short, part in SHORT.items():
            if not getattr(self, short):
                continue
            of_ways = (f"up.{part}", f"down.{part}") if short in WHOLE_WAY else ()
            for key in (part, *of_ways):
                if attrgetter(key)(self) is not None:
                    raise mistake(f"and {key} state the same: leave out one of them", short)
            if short in WHOLE_WAY and self.nodes != "all":
                raise mistake(
                    f"is of the way between any two nodes: set {part} of these links instead", short
                )

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
        """Describe what is not the default: `links 100 Mbit/s, MTU 9000, tso off`; what has a name by its name."""
        apart = ("name", "engine", "mtu", "lag", "offloads") if self.name else axes(Link)
        return "links " + (", ".join(self.phrases(apart)) or "unshaped")

    def details(self) -> str:
        """Describe what happens to packets in each direction, and the outages."""
        ways = {way: direction.describe() or "nothing" for way, direction in self.directions.items()}
        texts = [f"{way} {text}" for way, text in ways.items()]
        if ways["up"] == ways["down"]:
            texts = [f"both ways {ways['up']}"]
        return "; ".join([*texts, *([describe_outages(self.outages)] if self.outages else [])])

    @property
    def fingerprint(self) -> str | None:
        """The engine, and the SHA-256 of all impairments with the content of their files, whatever they are named.

        None if nothing forwards or impairs packets.
        """
        if not self.is_shaped and self.engine == "auto":
            return None
        link = self.without_places()
        parts: dict[str, Any] = {
            way: direction.model_dump(mode="json", exclude_defaults=True)
            for way, direction in link.directions.items()
        }
        outages = [outage.model_dump(mode="json", exclude_defaults=True) for outage in link.outages]
        content = compact(parts | {"nodes": link.nodes, "outages": outages})
        engine = KERNEL if self.engine == "auto" else self.engine
        return f"{engine} {hashlib.sha256(content.encode()).hexdigest()}"

    def phrases(self, names: Iterable[str]) -> list[str]:
        """Describe each of these parts that is not the default."""
        return [
            axes(Link)[name].describe(value)
            for name in names
            if (value := getattr(self, name)) != axes(Link)[name].default
        ]
