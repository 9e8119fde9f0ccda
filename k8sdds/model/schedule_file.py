"""Read and write recorded schedules: files with the time and the size of each sample, which repeat after a period."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from k8sdds.model.rate_profile import MAX_RATE
from k8sdds.model.settings import MAX_SAMPLE_BYTES, MIN_SAMPLE_BYTES
from k8sdds.system import reading
from k8sdds.system.errors import InputError

MAX_SAMPLES = 100_000
"""Most samples of a schedule."""
MAX_BYTES = 4 << 20
"""Largest file. k8sdds-perftest has the same limits."""
MAX_PERIOD_US = 86_400_000_000
"""Longest period: as long as the longest trial."""
MIN_RATE = 0.001
"""Least samples per second, as with `rate`."""

_PERIOD = re.compile(r"[ \t\r]*period[ \t\r]+(\d{1,12})[ \t\r]*", re.ASCII)
_SAMPLE = re.compile(r"[ \t\r]*(\d{1,12})[ \t\r]+(\d{1,12})[ \t\r]*", re.ASCII)


@dataclass(frozen=True)
class Schedule:
    """What a publisher sends in one period."""

    period_us: int
    due_us: array[int] = field(repr=False)
    """When each sample is due, in order."""
    sizes: array[int] = field(repr=False)
    """The bytes of each sample."""

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(self.sizes)

    @property
    def largest_bytes(self) -> int:
        """The size of the largest sample."""
        return max(self.sizes)

    @property
    def rate(self) -> float:
        """The mean number of samples per second."""
        return self.samples * 1e6 / self.period_us

    @property
    def mean_bytes(self) -> float:
        """The mean size of a sample."""
        return sum(self.sizes) / self.samples

    def due_within(self, duration_s: float) -> int:
        """Return how many samples are due before a duration has passed."""
        periods, rest_us = divmod(round(duration_s * 1e6), self.period_us)
        return periods * self.samples + bisect_left(self.due_us, rest_us)

    def rate_of(self, duration_s: float) -> float:
        """Return the mean number of samples per second of what is due before a duration has passed."""
        return self.due_within(duration_s) / duration_s

    def word(self) -> str:
        """Return it as one word, as the text of a graph has it: `PERIOD:TIME/BYTES,TIME/BYTES`."""
        samples = ",".join(f"{due_us}/{size}" for due_us, size in zip(self.due_us, self.sizes, strict=True))
        return f"{self.period_us}:{samples}"


def parse(text: str) -> Schedule:
    """Return what the text of a file states. Raises ValueError.

    The first line is `period MICROSECONDS`. Each further line is a sample, `MICROSECONDS BYTES`: when it is due after
    the start of the period, in order and from 0, and its size. A comment lasts from `#` to the end of the line.
    """
    period_us = 0
    due, sizes = array("q"), array("q")
    for number, line in enumerate(text.split("\n"), 1):
        content = line.partition("#")[0]
        if not content.strip(" \t\r"):
            continue
        if not period_us:
            found = _PERIOD.fullmatch(content)
            if not found or not 1 <= (period_us := int(found[1])) <= MAX_PERIOD_US:
                raise reading.unexpected(
                    number, line, f"period MICROSECONDS, with 1 to {MAX_PERIOD_US:,} microseconds"
                )
            continue
        if not (found := _SAMPLE.fullmatch(content)):
            raise reading.unexpected(number, line, "MICROSECONDS BYTES")
        due_us, size = int(found[1]), int(found[2])
        if why := _contradiction(due_us, size, period_us, due[-1] if due else None):
            raise ValueError(f"line {number}: {why}")
        due.append(due_us)
        sizes.append(size)
        if len(due) > MAX_SAMPLES:
            raise ValueError(f"it has more than {MAX_SAMPLES:,} samples")
    if not due:
        raise ValueError(
            "it has no samples: write `period MICROSECONDS`, and MICROSECONDS BYTES for each sample"
        )
    schedule = Schedule(period_us, due, sizes)
    if not MIN_RATE <= schedule.rate <= MAX_RATE:
        raise ValueError(
            f"it has {schedule.rate:g} samples per second: {MIN_RATE:g} to {MAX_RATE:,.0f} are measured"
        )
    return schedule


@lru_cache(maxsize=256)
def of_word(word: str) -> Schedule:
    """Return the schedule of a `Schedule.word`. Raises ValueError."""
    return parse("period " + word.replace(":", "\n").replace(",", "\n").replace("/", " "))


def _contradiction(due_us: int, size: int, period_us: int, before_us: int | None) -> str:
    if before_us is None and due_us:
        return "the first sample is due at 0"
    if due_us < (before_us or 0):
        return f"{due_us} is before the previous time, {before_us}"
    if due_us >= period_us:
        return f"{due_us} is not before the end of the period, {period_us}"
    if not MIN_SAMPLE_BYTES <= size <= MAX_SAMPLE_BYTES:
        return f"a sample has {MIN_SAMPLE_BYTES} to {MAX_SAMPLE_BYTES:,} bytes, not {size}"
    return ""


def text(period_us: int, samples: Iterable[tuple[int, int]], comments: Sequence[str]) -> str:
    """Return the text of a file with these samples, each with its time in µs and its size in bytes."""
    lines = [*(f"# {comment}" for comment in comments), f"period {period_us}"]
    return "\n".join([*lines, *(f"{due_us} {size}" for due_us, size in samples), ""])


def read(file: str) -> tuple[str, Schedule]:
    """Return the SHA-256 and the content of a file, which is parsed once while it does not change."""
    remedy = "name a file, relative to the file that names it"
    with reading.explaining_file(
        "schedule", file, remedy, "correct the file (its format: k8sdds docs perftest)"
    ):
        status = os.stat(file)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"schedule: {reading.escaped(file)}: it is not a regular file", "name a file")
        return _read(file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=256)
def _read(file: str, _modified_ns: int, _size: int) -> tuple[str, Schedule]:
    content = reading.data(file, MAX_BYTES)
    return hashlib.sha256(content).hexdigest(), parse(content.decode("utf-8"))


def placed(folder: Path, file: str) -> str:
    """Return the absolute path of a file that another file in this folder names; empty if it names none."""
    return str((folder / file).absolute()) if file else ""


def verify(file: str, sha256: str) -> None:
    """Raise InputError if a file is missing, or has another content than this SHA-256."""
    remedy = "restore the file, or start a new campaign"
    try:
        found, _ = read(file)
    except InputError as error:
        raise InputError(error.message, remedy) from error
    if found != sha256:
        raise InputError(
            f"schedule: {reading.escaped(file)} has another content than when the experiment was read"
            f" (SHA-256 {found[:12]}, not {sha256[:12]})",
            remedy,
        )
