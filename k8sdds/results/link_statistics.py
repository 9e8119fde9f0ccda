"""Read and summarize what emulated links did to packets (docs/reference/link-emulator.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from k8sdds.system.shapes import Count, Finite, Integer, Number, Shape
from k8sdds.system.strict import Title

FILE = "links.json"
"""The statistics of `k8sdds-link`, in the folder of an attempt."""
MAX_OUTAGE_ERROR_S = 0.02
"""How much earlier or longer than requested an outage of a link may be."""

UNKNOWN: dict[str, Any] = dict.fromkeys(
    ("packets", "lost", "decided", "bursts", "burst_mean_packets", "queue_drops", "outages", "outage_s", "outage_drops",
     "not_forwarded", "overflow", "oversized", "duplicated", "reordered", "delay_p50_us", "delay_p99_us",
     "delay_error_p99_us", "rate_mbit")
)  # fmt: skip
"""The keys of a summary of which nothing is known. The kernel's queues count only some of it."""

Conditions = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Node, then `up` or `down`, to the summary of a direction."""
Interval = tuple[float, float]
"""Start and end, by CLOCK_MONOTONIC in µs."""


class Series(Shape):
    """What a direction of a link did in successive intervals of `bin_ms`."""

    bin_ms: Integer = Field(gt=0)
    packets_in: list[Integer]
    bytes_out: list[Integer]
    lost: list[Integer]
    queue: list[Integer]
    outage: list[Integer]
    mean_delay_us: list[Number]

    @model_validator(mode="after")
    def _is_complete(self) -> Series:
        if len({len(value) for value in vars(self).values() if isinstance(value, list)}) > 1:
            raise ValueError("the columns have different lengths")
        return self


class Dropped(Shape):
    """Packets that a direction of a link dropped."""

    loss: Integer
    queue: Integer
    outage: Integer
    missed: Integer
    overflow: Integer
    unsent: Integer


class Times(Shape):
    """Times of the packets, in µs."""

    p50: Number
    p99: Number


class Rate(Shape):
    """The rate that was achieved while packets waited."""

    mbit: Number


class Direction(Shape):
    """What a direction of a link did."""

    packets_in: Integer
    dropped: Dropped
    loss_decisions: Integer
    loss_bursts: list[list[Finite]]
    """Length of a burst, and how many had it."""
    oversized: Integer
    duplicated: Integer
    reordered: Integer
    delay_us: Times
    error_us: Times
    rate: Rate | None
    series: Series


class BothWays(Shape):
    """The directions of a link."""

    up: Direction
    down: Direction
    started_us: Count = None
    """When its statistics began, if the links of an attempt did not begin at the same time."""


class State(Shape):
    """What a link did from a moment on."""

    node: Title
    """Its node; `*` for all links."""
    at_us: Integer
    state: Title
    """The share that it dropped in percent, `rate` with its rate, or `off` if it forwarded all packets."""


class LinkStatistics(Shape):
    """The links of an attempt, by node."""

    started_us: Integer
    """When the statistics began, by CLOCK_MONOTONIC."""
    outages: list[State]
    links: dict[str, BothWays]

    def started_us_of(self, node: str) -> int:
        """Return when the statistics of a node's link began."""
        link = self.links.get(node)
        return self.started_us if link is None or link.started_us is None else link.started_us


def read(folder: Path) -> LinkStatistics | None:
    """Return what the links of an attempt did; None if none was emulated, or the file is damaged."""
    return LinkStatistics.from_file(folder / FILE)


def summary(statistics: LinkStatistics, measured: Interval | None = None) -> Conditions:
    """Return the summary of each direction of each link, for the record; None: the measured interval is unknown."""
    return {
        name: {
            way: UNKNOWN | _of_direction(direction) | _outages(statistics, name, measured)
            for way, direction in (("up", link.up), ("down", link.down))
        }
        for name, link in statistics.links.items()
    }


def _of_direction(direction: Direction) -> dict[str, Any]:
    dropped, count = direction.dropped, sum(int(number) for _, number in direction.loss_bursts)
    return {
        "packets": direction.packets_in,
        "lost": dropped.loss,
        "decided": direction.loss_decisions,
        "bursts": count,
        "burst_mean_packets": round(dropped.loss / count, 3) if count else None,
        "queue_drops": dropped.queue,
        "outage_drops": dropped.outage,
        # The emulator was too slow for these, or had no room for them.
        "not_forwarded": dropped.missed + dropped.overflow + dropped.unsent,
        "overflow": dropped.overflow,
        "oversized": direction.oversized,
        "duplicated": direction.duplicated,
        "reordered": direction.reordered,
        "delay_p50_us": direction.delay_us.p50,
        "delay_p99_us": direction.delay_us.p99,
        "delay_error_p99_us": direction.error_us.p99,
        "rate_mbit": direction.rate.mbit if direction.rate else None,
    }


def _outages(statistics: LinkStatistics, node: str, measured: Interval | None) -> dict[str, Any]:
    """Return how many outages of a link began in the measured interval, and how long they lasted in it."""
    if measured is None:
        return {}
    begin_us, end_us = (moment - statistics.started_us for moment in measured)
    states = [each for each in statistics.outages if each.node in (node, "*")]
    times = [*(each.at_us for each in states), end_us]
    lengths = [
        min(until_us, end_us) - each.at_us
        for each, until_us in zip(states, times[1:], strict=True)
        if each.state != "off" and begin_us - MAX_OUTAGE_ERROR_S * 1e6 <= each.at_us < end_us
    ]
    return {"outages": len(lengths), "outage_s": sum(lengths) / 1e6}
