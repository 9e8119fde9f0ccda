"""Read when the slowest samples of a subscriber were under way."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from k8sdds.system import reading
from k8sdds.system.shapes import LIMIT

FILE = "slow.csv"
"""Name of the file in the folder of a subscriber (docs/reference/perftest.md)."""


class SlowSample(NamedTuple):
    """A sample above the 99th percentile of the delays of its subscriber."""

    publisher: int
    at_us: int
    """When it arrived, by CLOCK_MONOTONIC."""
    delay_us: int
    """From when it was due."""


def of_subscriber(folder: Path) -> list[SlowSample]:
    """Return the slow samples of a subscriber; an empty list if they are not known, or the file is damaged."""
    try:
        lines = reading.text(folder / FILE).splitlines()[1:]
        samples = [SlowSample(*map(int, line.split(","))) for line in lines]
    except (FileNotFoundError, reading.UnreadableError, TypeError, ValueError):
        return []
    return samples if all(0 <= value < LIMIT for sample in samples for value in sample) else []
