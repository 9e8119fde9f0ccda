"""Read the rates over time that participants wrote during the measured interval of an attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from k8sdds.system import reading

SHORTEST_MS = 50
"""Shorter rows are joined with the next one. They follow a row that was written late, and the last one covers the rest
of the interval; a rate over a few milliseconds would be that of a burst."""

FILE = "timeline.csv"
"""Name of the file in the folder of a participant: `elapsed_ms,samples,bytes` (docs/reference/perftest.md)."""
_LINE = re.compile(r"([0-9]{1,15}),[0-9]{1,15},([0-9]{1,15})")


class Step(NamedTuple):
    """The mean rate from the end of the previous step."""

    end_s: float
    """Time since the start of the measured interval."""
    mbps: float
    """Payload in Mbit/s."""


def received(folder: Path) -> list[Step]:
    """Return the payload that a subscriber received over time, as the mean over subscribers.

    Empty if no subscriber has a readable file. Steps that a subscriber does not have are omitted.
    """
    timelines = [steps for path in sorted(folder.glob(f"sub*/{FILE}")) if (steps := list(_steps(path)))]
    if not timelines:
        return []
    return [
        Step(*(sum(values) / len(timelines) for values in zip(*steps, strict=True)))
        for steps in zip(*timelines, strict=False)
    ]


def _steps(path: Path) -> Iterator[Step]:
    previous_ms = received_bytes = 0
    for line in _lines(path)[1:]:
        if not (fields := _LINE.fullmatch(line)):
            return
        elapsed_ms, received_bytes = int(fields[1]), received_bytes + int(fields[2])
        if elapsed_ms - previous_ms >= SHORTEST_MS:
            yield Step(elapsed_ms / 1000, received_bytes * 8e-3 / (elapsed_ms - previous_ms))
            previous_ms, received_bytes = elapsed_ms, 0


def _lines(path: Path) -> list[str]:
    try:
        return reading.text(path).splitlines()
    except (FileNotFoundError, reading.UnreadableError):
        return []
