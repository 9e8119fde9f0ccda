"""Define what the supervisor's command `count-kinds` prints: the packets that left a pod, by kind and over time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from k8sdds.system.shapes import Integer, Shape

COMMAND = "count-kinds"
FILE = "kinds.json"
"""Name of the file with the counts in the raw folder of a participant."""

Kind = Literal[
    "participants",
    "endpoints",
    "liveliness",
    "other-discovery",
    "data",
    "encrypted",
    "scouting",
    "zenoh",
    "fragments",
    "other",
]
"""What a packet is for (docs/reference/supervisor.md)."""

Row = Annotated[tuple[Integer, Kind, Integer, Integer], Field(strict=False)]
"""Number of the interval, kind, packets in it, and their bytes with IP headers."""


class KindCounts(Shape):
    """The packets that left a pod by an interface, by kind and interval; intervals without packets have no rows."""

    start_monotonic_ns: Integer
    """Start of interval 0, a multiple of `interval_ns`, so that the intervals of pods on one machine coincide."""
    interval_ns: Integer
    dropped_packets: Integer
    """Packets that left and were not counted, because there were too many at once."""
    rows: list[Row]
