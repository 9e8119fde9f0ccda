"""Read what emulated links did to packets over time (docs/reference/link-emulator.md)."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError, model_validator

from k8sdds.system import reading
from k8sdds.system.shapes import Integer, Number, Shape

FILE = "links.json"
"""The statistics of `k8sdds-link`, in the folder of an attempt."""


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


class Direction(Shape):
    """A direction of a link."""

    series: Series


class LinkSeries(Shape):
    """The directions of a link."""

    up: Direction
    down: Direction


class LinkStatistics(Shape):
    """The links of an attempt, by node."""

    links: dict[str, LinkSeries]


def read(folder: Path) -> LinkStatistics | None:
    """Return what the links of an attempt did; None if none was emulated, or the file is damaged."""
    try:
        return LinkStatistics.model_validate(reading.json_file(folder / FILE))
    except (FileNotFoundError, reading.UnreadableError, ValidationError):
        return None
