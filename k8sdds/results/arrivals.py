"""Read what arrived at subscribers in each millisecond of a trial, and when something failed in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pydantic import model_validator

from k8sdds.system import reading
from k8sdds.system.files import write_atomically
from k8sdds.system.shapes import LIMIT, Integer, Shape

FILE = "arrivals.csv"
"""Name of the file in the folder of a subscriber (docs/reference/perftest.md)."""
INTERRUPTION = "outage.json"
"""Name of the file in the folder of an attempt, and on clusters also in that of each subscriber, by its clock."""
MAX_LINES = 1_000_000
"""Most lines of a file, which has one for each millisecond and publisher in which samples arrived."""
AFTER_S = 5
"""How long after the end of the schedule samples are logged at most."""
_MAX_BYTES = 80 * MAX_LINES
KILLED = "killed"
"""Folder of an attempt with the files of participants that were killed in an outage, and then started again."""
_COLUMNS = 7


class Arrival(NamedTuple):
    """What arrived from a publisher in a millisecond."""

    at_us: int
    """When the first sample arrived, by CLOCK_MONOTONIC."""
    samples: int
    fresh: int
    """Samples that were due later than all before."""
    late: int
    """Samples that arrived after their deadline."""
    delay_us: int
    """Of the last sample, from when it was due."""
    max_delay_us: int
    """The longest of all samples."""


class Interruption(Shape):
    """When something failed on a node and came back, by CLOCK_MONOTONIC."""

    node: str
    failed_us: Integer
    repaired_us: Integer

    @property
    def length_s(self) -> float:
        """How long it lasted."""
        return (self.repaired_us - self.failed_us) / 1e6

    @model_validator(mode="after")
    def _is_in_order(self) -> Interruption:
        if self.failed_us >= self.repaired_us:
            raise ValueError("it came back before it failed")
        return self


def longest_s(publishers: int) -> float:
    """Return the longest measured interval of which a subscriber can log what arrived from so many publishers."""
    return MAX_LINES / publishers / 1000 - AFTER_S


def of_subscriber(folder: Path) -> dict[int, list[Arrival]]:
    """Return what arrived at a subscriber, by publisher. Raises UnreadableError."""
    found: dict[int, list[Arrival]] = defaultdict(list)
    path = folder / FILE
    try:
        for number, line in enumerate(reading.text(path, _MAX_BYTES).splitlines()[1:], start=2):
            values = [int(field) for field in line.split(",")]
            if len(values) != _COLUMNS or max(map(abs, values)) >= LIMIT:
                raise ValueError(f"line {number} has other columns")
            found[values[0]].append(Arrival(*values[1:]))
    except FileNotFoundError as error:
        raise reading.UnreadableError(f"{folder.name} has no {FILE}") from error
    except ValueError as error:
        raise reading.UnreadableError(f"{folder.name}/{FILE} is damaged: {error}") from error
    return dict(found)


def of_attempt(folder: Path, subscribers: Iterable[str]) -> dict[str, dict[int, list[Arrival]]]:
    """Return what arrived at each of these subscribers, by publisher, also before it was killed.

    Raises like `of_subscriber`.
    """
    return {name: _joined(_of_killed(folder, name), of_subscriber(folder / name)) for name in subscribers}


def before_killed(folder: Path, participant: str) -> int:
    """Return how many samples a participant of an attempt had received when it was killed; 0 if it was not."""
    return sum(arrival.samples for own in _of_killed(folder, participant).values() for arrival in own)


def _of_killed(folder: Path, participant: str) -> dict[int, list[Arrival]]:
    killed = folder / KILLED / participant
    return of_subscriber(killed) if killed.exists() else {}


def _joined(before: dict[int, list[Arrival]], after: dict[int, list[Arrival]]) -> dict[int, list[Arrival]]:
    return {one: before.get(one, []) + after.get(one, []) for one in {*before, *after}}


def set_aside(directory: Path) -> None:
    """Move the files of a participant that was killed, and leave an empty folder to the process in its place."""
    killed = directory.parent / KILLED
    killed.mkdir(exist_ok=True)
    directory.rename(killed / directory.name)
    directory.mkdir()


def write_interruption(folder: Path, interruption: Interruption) -> None:
    """Write when something failed to the folder of an attempt."""
    write_atomically(folder / INTERRUPTION, interruption.model_dump_json())


def interruption(folder: Path) -> Interruption | None:
    """Return when something failed in an attempt; None if nothing did, or the file is damaged."""
    return Interruption.from_file(folder / INTERRUPTION)
