"""Find the part of a recorded topic that is most like all of it, to send it again as a schedule."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

from k8sdds.model import schedule_file
from k8sdds.model.graph import MIN_SAMPLE_BYTES
from k8sdds.model.rate_profile import MAX_RATE
from k8sdds.model.schedule_file import MAX_SAMPLES
from k8sdds.model.settings import MAX_SAMPLE_BYTES
from k8sdds.system.numbers import number

MAX_DIFFERENCE = 1.25
"""Largest ratio between the rates of a part and of the whole topic, in samples and in bytes per second."""


@dataclass
class _Window:
    """Messages that follow each other."""

    start_ns: int
    times_ns: array[int] = field(default_factory=lambda: array("q"))
    """When each was received, since the first one."""
    sizes: array[int] = field(default_factory=lambda: array("q"))
    period_ns: int = 0

    @property
    def rate(self) -> float:
        return len(self.sizes) * 1e9 / self.period_ns

    @property
    def bytes_per_s(self) -> float:
        return sum(self.sizes) * 1e9 / self.period_ns


class Windows:
    """Parts of a topic of the same length, of which one is kept: its rates are closest to those of the whole topic.

    Holds at most two parts of `MAX_SAMPLES` messages, however long the recording is.
    """

    def __init__(self, length_ns: int, rate: float, mean_bytes: float) -> None:
        self._length_ns = length_ns
        self._rate, self._bytes_per_s = rate, rate * min(max(mean_bytes, MIN_SAMPLE_BYTES), MAX_SAMPLE_BYTES)
        self._first_ns: int | None = None
        self._open: _Window | None = None
        self._best: _Window | None = None
        self._whole = 0
        """Number of parts that have the length."""

    def add(self, time_ns: int, size: int, jumped: bool) -> None:
        """Add a message, which is not older than the one before it unless the clock jumped."""
        self._first_ns = time_ns if self._first_ns is None else self._first_ns
        if self._open:
            lasting_ns = time_ns - self._open.start_ns
            if jumped:
                self._end_early(self._open)
            elif lasting_ns >= self._length_ns:
                # A pause belongs to the part before it: otherwise, the rates of all parts together would be too high.
                paused = lasting_ns - self._length_ns > 1e9 / self._rate
                self._end(self._open, lasting_ns if paused else self._length_ns)
            elif len(self._open.sizes) == MAX_SAMPLES:
                self._end(self._open, lasting_ns)
        if self._open is None:
            self._open = _Window(time_ns)
        self._open.times_ns.append(time_ns - self._open.start_ns)
        self._open.sizes.append(min(max(size, MIN_SAMPLE_BYTES), MAX_SAMPLE_BYTES))

    def text(self, origin: str) -> str:
        """Return the file of the schedule, whose first comment is the origin; empty if no part is like the topic."""
        if self._open:
            self._end_early(self._open)
        best = self._best
        if best is None or self._first_ns is None or self._distance(best) > math.log(MAX_DIFFERENCE):
            return ""
        times_us = [time_ns // 1000 for time_ns in best.times_ns]
        period_us = max(math.ceil(best.period_ns / 1000), times_us[-1] + 1)
        start = number((best.start_ns - self._first_ns) / 1e9)
        among = f": of {self._whole:,} such parts, the one most like the whole topic"
        among = among if self._whole > 1 else ""
        comments = [
            origin,
            f"{number(period_us / 1e6)} s from {start} s after its first message{among}",
            f"{number(best.rate)} samples and {number(best.bytes_per_s)} bytes per second;"
            f" the whole topic has {number(self._rate)} and {number(self._bytes_per_s)}",
            "microseconds and bytes of each sample; they repeat after the period",
        ]
        return schedule_file.text(period_us, zip(times_us, best.sizes, strict=True), comments)

    def _end(self, window: _Window, period_ns: int) -> None:
        """Keep a whole part if it is more like the topic than that of before, which can be an incomplete one."""
        self._open, window.period_ns = None, max(period_ns, 1000)
        if window.rate > MAX_RATE:
            return
        if not self._whole or self._best is None or self._distance(window) < self._distance(self._best):
            self._best = window
        self._whole += 1

    def _end_early(self, window: _Window) -> None:
        """End a part before it has its length. It is kept if it is the longest of such parts, and no other one is."""
        self._open, count = None, len(window.sizes)
        # The last message also lasts for a mean interval, so that the rate is that of the messages.
        window.period_ns = window.times_ns[-1] * count // max(count - 1, 1)
        longest_ns = self._best.period_ns if self._best else 999
        if not self._whole and window.period_ns > longest_ns and window.rate <= MAX_RATE:
            self._best = window

    def _distance(self, window: _Window) -> float:
        return max(
            abs(math.log(window.rate / self._rate)), abs(math.log(window.bytes_per_s / self._bytes_per_s))
        )
