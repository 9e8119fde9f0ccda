"""Describe a recorded topic: sizes and intervals of its messages, and the QoS that its publishers offered."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from k8sdds.importing.recorded_windows import Windows
from k8sdds.system import yaml_text
from k8sdds.system.reading import UnreadableError

MAX_EXACT = 4096
"""Most different values that are kept exactly."""
DIGITS = 3
"""Significant digits of the others."""
MAX_INTERVAL_NS = 3600 * 10**9
"""A longer time between two messages is a jump of the clock, or between two recordings."""
MAX_DISORDER_NS = 10**9
"""A message that is older than the newest one by at most this time was recorded out of order. Others are a jump."""
PAUSE_NS = 5 * 10**9
MAX_PAUSES = 0.01
"""Longer intervals are pauses, in which nothing is published, if at most this share of the intervals is longer."""
REGULAR = 1.5
"""Of a regular topic, nine tenths of the intervals, and their mean, are at most this factor from the median."""
BURST = 0.1
"""A message that follows the one before within this share of a period of the rate belongs to a burst."""
MAX_PROFILES = 64 * 1024
"""Most characters of the QoS profiles of a topic. One has about 500."""

_KINDS = {
    "reliability": {"1": "reliable", "2": "best-effort"},
    "durability": {"1": "transient-local", "2": "volatile"},
    "history": {"1": "keep-last", "2": "keep-all"},
}
"""Policies, and what the numbers of older recordings mean (rmw/types.h)."""


@dataclass
class Distribution:
    """The values of a quantity: exact while there are few different ones, then with three significant digits."""

    counts: Counter[int] = field(default_factory=Counter)
    number: int = 0
    total: int = 0
    low: int = 0
    high: int = 0
    _rounded: bool = False

    def add(self, value: int) -> None:
        """Count a value."""
        self.low = min(self.low, value) if self.number else value
        self.high = max(self.high, value)
        self.number += 1
        self.total += value
        self.counts[_rounded(value) if self._rounded else value] += 1
        if not self._rounded and len(self.counts) > MAX_EXACT:
            exact, self.counts, self._rounded = self.counts, Counter(), True
            for each, count in exact.items():
                self.counts[_rounded(each)] += count

    @property
    def mean(self) -> float:
        """The mean of all values, or 0 without any."""
        return self.total / self.number if self.number else 0.0

    def percentile(self, percent: float) -> int:
        """Return the smallest value that is not below this share of the values."""
        below = 0
        for value in sorted(self.counts):
            below += self.counts[value]
            if below * 100 >= percent * self.number:
                return min(max(value, self.low), self.high)
        return self.high

    def mean_of_at_least(self, least: int) -> float:
        """Return the mean of the values, with this one instead of each smaller one."""
        count, total = self.part(lambda value: value < least)
        return self.mean + (count * least - total) / self.number

    def part(self, belongs: Callable[[int], bool]) -> tuple[int, int]:
        """Return the number and the sum of the values that belong to a part."""
        found = [(value, count) for value, count in self.counts.items() if belongs(value)]
        return sum(count for _, count in found), sum(value * count for value, count in found)


def _rounded(value: int) -> int:
    step: int = 10 ** max(0, len(str(value)) - DIGITS)
    return (value + step // 2) // step * step


@dataclass
class Topic:
    """A topic of a recording. Its rates and size are computed once, after all messages are counted."""

    name: str
    type: str
    offers: list[dict[str, str]] = field(default_factory=list)
    """What each publisher offered when the recording of the topic began, by policy; empty if it is not recorded."""
    is_qos_unreadable: bool = False
    """Whether publishers are recorded whose QoS cannot be read."""
    sizes: Distribution = field(default_factory=Distribution)
    """In bytes."""
    intervals: Distribution = field(default_factory=Distribution)
    """Times between the receptions of two messages, in ns."""
    jumps: int = 0
    """Messages that are far older or newer than the one before."""
    windows: Windows | None = None
    """Receives the messages, too, if a part of them is to be sent again."""
    _last_ns: int | None = None

    def add(self, time_ns: int, size: int) -> None:
        """Count a message."""
        self.sizes.add(size)
        jumps = self.jumps
        if self._last_ns is not None:
            interval = time_ns - self._last_ns
            if -MAX_DISORDER_NS <= interval < 0:
                # The sum of the intervals remains the time from the oldest message to the newest.
                interval, time_ns = 0, self._last_ns
            if 0 <= interval <= MAX_INTERVAL_NS:
                self.intervals.add(interval)
            else:
                self.jumps += 1
        self._last_ns = time_ns
        if self.windows:
            self.windows.add(time_ns, size, self.jumps > jumps)

    def offer(self, profiles: str) -> None:
        """Read the QoS profiles of a recording, which are YAML: those of its first files can have fewer publishers."""
        found: object = None
        if len(profiles) <= MAX_PROFILES:
            # All else of the recording can be used.
            with contextlib.suppress(UnreadableError):
                found = yaml_text.plain(yaml_text.load(profiles, "offered_qos_profiles"))
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            self.is_qos_unreadable = True
        elif len(found) > len(self.offers):
            self.offers = [_offer(each) for each in found]

    def offered(self, policy: str) -> set[str]:
        """Return the values of a policy that publishers offered, without those that are not known."""
        return {offer[policy] for offer in self.offers if policy in offer}

    @property
    def reliability(self) -> str:
        """The reliability that every subscriber can have: that of ROS 2's default if it is not known."""
        return "best-effort" if "best-effort" in self.offered("reliability") else "reliable"

    @cached_property
    def rate(self) -> float:
        """Messages per second of all publishers, without few pauses; 0 if there are no intervals."""
        number, total_ns = self.intervals.number, self.intervals.total
        active, _ = self.intervals.part(_is_active)
        if (1 - MAX_PAUSES) * number <= active < number:
            return self.active_rate
        return number * 1e9 / total_ns if total_ns else 0.0

    @cached_property
    def active_rate(self) -> float:
        """Messages per second of all publishers, without long intervals; 0 if there are no others."""
        active, active_ns = self.intervals.part(_is_active)
        return active * 1e9 / active_ns if active_ns else 0.0

    @property
    def regular(self) -> bool:
        """Whether the messages have a period."""
        low, median, high = (self.intervals.percentile(percent) for percent in (5, 50, 95))
        return all(
            median <= REGULAR * each and each <= REGULAR * median for each in (low, high, 1e9 / self.rate)
        )

    @cached_property
    def is_constant(self) -> bool:
        """Whether a rate and a size describe the messages: they have a period, and nearly all of them are no larger."""
        return self.regular and self.payload_bytes >= self.sizes.percentile(99)

    @cached_property
    def payload_bytes(self) -> int:
        """The size of nearly all messages; if that is more than twice the mean, the mean, which loads links equally."""
        most, mean = self.sizes.percentile(99), self.sizes.mean
        return most if most <= 2 * mean else round(mean)

    @property
    def burst_percent(self) -> float:
        """The share of the messages that follow the one before at once."""
        longest_ns = BURST * 1e9 / self.rate
        number, _ = self.intervals.part(lambda interval: interval < longest_ns)
        return 100 * number / max(1, self.intervals.number)


def _is_active(interval_ns: int) -> bool:
    return interval_ns <= PAUSE_NS


def _offer(profile: dict[str, object]) -> dict[str, str]:
    """Return the policies of a profile by name: history with its depth."""
    found = {}
    for policy, numbers in _KINDS.items():
        text = str(profile.get(policy, "")).lower().replace("_", "-")
        if (value := numbers.get(text, text)) in numbers.values():
            found[policy] = value
    if found.get("history") == "keep-last":
        found["history"] = f"keep-last {profile.get('depth', '')}".strip()
    return found
