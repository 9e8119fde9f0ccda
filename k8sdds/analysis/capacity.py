"""Search the capacity of a network: the highest rate at which goals on loss and delay are met. Pure.

A search with a fixed rate finds the largest number of subscribers instead, and a search of fleets the largest number of
members that all match in time. The rest applies to all of them.

Each trial at a rate is a probe. A search decides from all probes so far which rates come next. It follows MLRsearch
(Multiple Loss Ratio Search, draft-ietf-bmwg-mlrsearch), which generalizes RFC 2544: short probes find the region, full
probes decide, all goals share all probes, and each goal ends with two rates. At the lower one, most full probes met the
goal. At the upper one, most did not. In contrast to MLRsearch, a failure at a low rate is outvoted by successes at
higher ones (`_split`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from k8sdds.model.options import MEMBERS, RATE, SUBSCRIBERS, FleetCapacityOptions, SearchOptions

UNITS = {RATE: "samples/s", SUBSCRIBERS: "subscribers", MEMBERS: "members per process"}
"""The units of what can be searched."""

LATE_PERCENT = 1.0
"""Share of the delays that may exceed `p99_ms`."""

SHORT = 0.25
"""Length of a short probe as a share of a full one."""
MIN_SHORT_S = 0.5
"""Least length of a short probe: below, a trial mostly starts and ends."""
MIN_SHORT_SAMPLES = 200
"""Samples of a short probe, unless a full one has fewer: one late sample must not exceed `LATE_PERCENT`."""
MAX_GROWTH, MAX_GROWTH_OF_PARTICIPANTS = 4.0, 2.0
"""Largest ratio of two successive values while one of the bounds is unknown. Too many participants discover each other
slowly or not at all, and each such probe takes long."""
DIGITS = 4
"""Significant digits of a rate. The narrowest interval is ten times as wide as the last digit."""
MAX_PROBES = 150
"""A search that has needed so many probes ends undecided: its network changes while it is measured."""


@dataclass(frozen=True)
class Goal:
    """What is required at a rate, or of a fleet."""

    loss_percent: float | None = None
    """Share of the samples due that the worst subscriber may miss; None of a fleet."""
    p99_ms: float | None = None
    """Limit of the 99th percentile of the delay; None means no limit."""
    matched_s: float | None = None
    """Time in which all members of a fleet must match; None if the goal is not about fleets."""

    def describe(self) -> str:
        """Describe the goal, such as `loss ≤ 0.5 %, p99 ≤ 10 ms` or `all matched in 2 s`."""
        if self.loss_percent is None:
            return f"all matched in {self.matched_s:g} s"
        delay = "" if self.p99_ms is None else f", p99 ≤ {self.p99_ms:g} ms"
        return f"loss ≤ {self.loss_percent:g} %{delay}"


@dataclass(frozen=True)
class Probe:
    """A valid trial at a value of what is searched."""

    value: float
    """The rate (0 for as fast as possible), or the number of subscribers or members."""
    duration_s: float
    undelivered_percent: float | None = None
    overdue_percent: float | None = None
    samples_per_s: float | None = None
    matched_s: float | None = None
    """When all members of a fleet had matched, also after a change; None if some did not, or broke and never matched
    again."""

    @classmethod
    def of(cls, record: Mapping[str, Any], searched: str) -> Probe:
        """Return the probe of a record or of a row of the tidy table; `searched` is the column of its value."""
        return cls(
            record[searched] or 0.0,
            record["duration_s"] or 0.0,
            record["undelivered_percent"],
            record["overdue_percent"],
            record["samples_per_s"],
            _matched_s(record),
        )

    def excess(self, goal: Goal) -> float:
        """Return the largest ratio of what was measured to what the goal accepts; a ratio above 1 misses the goal.

        Compared are shares of the samples, or the time of a fleet. The ratio is infinite if a share is unknown, or if
        a fleet has no time because not all of its members matched.
        """
        if goal.loss_percent is None:
            return _over(self.matched_s, goal.matched_s or 0)
        loss = _over(self.undelivered_percent, goal.loss_percent)
        return loss if goal.p99_ms is None else max(loss, _over(self.overdue_percent, LATE_PERCENT))


@dataclass(frozen=True)
class Bounds:
    """The interval that contains the capacity."""

    low: float | None = None
    """Highest rate that met the goal; None if none did."""
    high: float | None = None
    """Lowest rate that missed the goal; None if none did."""

    @property
    def middle(self) -> float | None:
        """The geometric middle; None if a bound is unknown."""
        return math.sqrt(self.low * self.high) if self.low and self.high else None


@dataclass(frozen=True)
class _Stage:
    """One pass of the search: probes of a length, and how many decide about a rate."""

    duration_s: float
    trials: int

    @property
    def majority(self) -> int:
        return self.trials // 2 + 1


@dataclass(frozen=True)
class Search:
    """The search of one cell."""

    goals: tuple[Goal, ...]
    """Latencies are measured below the capacity of the first."""
    duration_s: float
    """Length of a full probe."""
    trials: int
    """Full probes that decide about a value, by majority."""
    width: float
    """Width at which an interval is narrow enough, as a share of its lower end."""
    lowest: float
    highest: float
    latency_at_percent: tuple[float, ...] = ()
    """Shares of the capacity at which the latency is measured."""
    fixed_rate: float | None = None
    """Rate of all probes, if the number of subscribers is searched; else None."""
    searched: str = RATE
    """The column with the values of the probes."""

    @classmethod
    def of(cls, options: SearchOptions, duration_s: float, trials: int, rate: float) -> Search:
        """Return the search of a test; `rate` is that of all probes, if subscribers are searched."""
        width, searched = options.width_percent / 100, options.searched
        search = partial(cls, duration_s=duration_s, trials=trials, width=width, searched=searched)
        if isinstance(options, FleetCapacityOptions):
            goals = tuple(Goal(matched_s=limit_s) for limit_s in sorted(options.matched_s))
            return search(goals=goals, lowest=1, highest=options.max_members)
        most = options.max_subscribers
        return search(
            goals=tuple(Goal(loss, options.p99_ms) for loss in sorted(options.loss_percent)),
            lowest=1 if most else options.min_rate,
            highest=most or options.max_rate,
            latency_at_percent=tuple(options.latency_at_percent),
            fixed_rate=rate if most else None,
        )

    def next(self, probes: Sequence[Probe]) -> list[tuple[float, float]]:
        """Return the values to probe next, each with the length of the probe in seconds; empty if the search ends."""
        if len(probes) >= MAX_PROBES:
            return []
        hints: dict[Goal, Bounds] = {}
        for stage in self._stages:
            for goal in self.goals:
                bounds = self._bounds(stage, goal, probes)
                value = self._value(stage, goal, bounds, probes, hints.get(goal, Bounds()))
                if value is not None:
                    return [(value, self._length(stage, goal, value, probes))]
                hints[goal] = bounds
        return self._latencies(probes)

    def bounds(self, goal: Goal, probes: Sequence[Probe]) -> Bounds:
        """Return the bounds of the capacity for a goal, from all probes."""
        return self._bounds(self._full, goal, probes)

    def contradicting(self, goal: Goal, probes: Sequence[Probe]) -> int:
        """Return how many probes missed the goal below the capacity, or met it above."""
        return _split(_votes(self._full, goal, probes))[1]

    def is_decided(self, goal: Goal, probes: Sequence[Probe]) -> bool:
        """Return whether the interval is as narrow as requested, or the capacity is outside the probed values."""
        return self._is_narrow(self.bounds(goal, probes))

    def latency_values(self, probes: Sequence[Probe]) -> dict[float, float]:
        """Return the value at each share of the capacity of the first goal; none below `lowest`.

        Numbers of subscribers are rounded down.
        """
        low = self.bounds(self.goals[0], probes).low
        if low is None:
            return {}
        shares = {share: low * share / 100 for share in self.latency_at_percent}
        values = {
            share: float(math.floor(value + 1e-9)) if self._is_whole else rounded(value)
            for share, value in shares.items()
        }
        return {share: value for share, value in values.items() if value >= self.lowest}

    @property
    def _full(self) -> _Stage:
        return _Stage(self.duration_s, self.trials)

    @property
    def _stages(self) -> tuple[_Stage, ...]:
        short_s = min(self.duration_s, max(SHORT * self.duration_s, MIN_SHORT_S))
        # A fleet needs the time in which it has to match.
        return _Stage(self.duration_s if self.searched == MEMBERS else short_s, 1), self._full

    @property
    def _is_whole(self) -> bool:
        return self.searched != RATE

    def _is_narrow(self, bounds: Bounds) -> bool:
        low, high = bounds.low, bounds.high
        if low is not None and high is not None:
            return high <= low * (1 + self.width) * (1 + 10.0**-DIGITS) or (
                self._is_whole and high - low <= 1
            )
        return (low or 0) >= self.highest or (high is not None and high <= self.lowest)

    def _bounds(self, stage: _Stage, goal: Goal, probes: Sequence[Probe]) -> Bounds:
        votes = _votes(stage, goal, probes)
        highest, _ = _split(votes)
        met = (r for r, (yes, no) in votes.items() if r <= highest and yes >= stage.majority and yes > no)
        missed = (r for r, (yes, no) in votes.items() if r > highest and no >= stage.majority and no > yes)
        return Bounds(max(met, default=None), min(missed, default=None))

    def _value(
        self, stage: _Stage, goal: Goal, bounds: Bounds, probes: Sequence[Probe], hints: Bounds
    ) -> float | None:
        """Return the value that narrows an interval; None if it is narrow enough."""
        if self._is_narrow(bounds):
            return None
        floor, ceiling = bounds.low or 0.0, bounds.high or math.inf
        votes = _votes(stage, goal, probes)
        started = [value for value in votes if floor < value < ceiling]
        if started:
            return min(started)
        near = 1 + self.width / 4
        for hint in (hints.low, hints.high):
            if hint is not None and floor * near <= hint <= ceiling / near:
                return hint
        value = min(max(self._aim(bounds, votes, probes), self.lowest), self.highest)
        # Rounding must not return to a bound: there is a number between them, because they are no neighbors.
        value = min(max(float(round(value)), floor + 1), ceiling - 1) if self._is_whole else rounded(value)
        return value if floor < value < ceiling else None

    def _aim(self, bounds: Bounds, votes: Mapping[float, tuple[int, int]], probes: Sequence[Probe]) -> float:
        low, high = bounds.low, bounds.high
        if low is not None and high is not None:
            # The lower part is a whole number of widths, so that halving it ends at the width.
            widths = math.ceil(math.log(high / low) / math.log(1 + self.width) - 1e-3)
            return low * (1 + self.width) ** max(widths // 2, 1) if widths > 2 else math.sqrt(low * high)
        if low is not None:
            known = sorted((value for value in votes if value <= low), reverse=True)
            return low * self._growth(known)
        if high is not None:
            known = sorted(value for value in votes if value >= high)
            return high / self._growth(known)
        return _saturated(probes) or math.sqrt(self.lowest * self.highest)

    def _growth(self, nearest: Sequence[float]) -> float:
        """Return the ratio to the next value, which grows with each value on the same side."""
        if len(nearest) < 2:
            return (1 + self.width) ** 2
        first, second = nearest[:2]
        ratio = max(first, second) / min(first, second)
        return min(
            max(ratio**2, (1 + self.width)), MAX_GROWTH_OF_PARTICIPANTS if self._is_whole else MAX_GROWTH
        )

    def _length(self, stage: _Stage, goal: Goal, value: float, probes: Sequence[Probe]) -> float:
        """Return the length of the next probe at a value; a short one if short ones are likely to decide."""
        own = [probe for probe in probes if probe.value == value]
        clear = own and all(_is_missed(stage, goal, probe) for probe in own)
        wanted_s = self._stages[0].duration_s if clear else stage.duration_s
        enough_s = math.ceil(MIN_SHORT_SAMPLES / (self.fixed_rate or value) * 10) / 10
        return min(self.duration_s, max(wanted_s, enough_s))

    def _latencies(self, probes: Sequence[Probe]) -> list[tuple[float, float]]:
        """Return one more full probe at each share of the capacity that has too few."""
        wanted = dict.fromkeys(self.latency_values(probes).values())
        return [
            (value, self.duration_s)
            for value in wanted
            if sum(p.value == value and _is_full(self._full, p) for p in probes) < self.trials
        ]


def rounded(rate: float) -> float:
    """Return a rate with as many digits as a search distinguishes."""
    return float(f"{rate:.{DIGITS}g}")


def _votes(stage: _Stage, goal: Goal, probes: Iterable[Probe]) -> dict[float, tuple[int, int]]:
    """Return by value how many probes met a goal and how many missed it.

    A short probe counts if it alone exceeds what a longer one may lose or delay. That it lost nothing does not count.
    """
    votes: dict[float, tuple[int, int]] = {}
    for probe in probes:
        if not probe.value > 0 or not math.isfinite(probe.value):
            continue
        met, missed = votes.get(probe.value, (0, 0))
        if _is_missed(stage, goal, probe):
            votes[probe.value] = (met, missed + 1)
        elif _is_full(stage, probe):
            votes[probe.value] = (met + 1, missed)
    return votes


def _split(votes: Mapping[float, tuple[int, int]]) -> tuple[float, int]:
    """Return the highest value below the capacity that contradicts the fewest probes, and their number.

    A probe contradicts it if it missed the goal at a lower value, or met the goal at a higher one. Other work on the
    machine also makes probes miss goals, at any value: with the lowest missed one as the upper bound, as in MLRsearch,
    one disturbed value would be the result.
    """
    contradicting = sum(yes for yes, _ in votes.values())
    best = (0.0, contradicting)
    for value, (yes, no) in sorted(votes.items()):
        contradicting += no - yes
        if contradicting < best[1]:
            best = value, contradicting
    return best


def _is_missed(stage: _Stage, goal: Goal, probe: Probe) -> bool:
    return probe.excess(goal) * min(probe.duration_s / stage.duration_s, 1) > 1


def _is_full(stage: _Stage, probe: Probe) -> bool:
    return probe.duration_s >= stage.duration_s * (1 - 1e-9)


def _matched_s(record: Mapping[str, Any]) -> float | None:
    """Return when all pairs of a fleet had matched, also those of members that started late or again.

    None if a pair did not match, or no longer matched at the end.
    """
    times = [time for name in ("fleet_matched_s", "fleet_rematched_s") if (time := record[name]) is not None]
    never_returned = record["broken_percent"] and record["fleet_returned_s"] is None
    return None if record["unmatched_percent"] or never_returned else max(times, default=None)


def _over(measured: float | None, accepted: float) -> float:
    if measured is None or math.isnan(measured):
        return math.inf
    if not accepted:
        return math.inf if measured > 0 else 0.0
    return measured / accepted


def _saturated(probes: Iterable[Probe]) -> float | None:
    """Return the highest rate at which subscribers received samples of publishers without a rate, or None."""
    rates = [probe.samples_per_s for probe in probes if not probe.value and probe.samples_per_s]
    return max(rates, default=None)
