"""Summarize how the CPU limits of pods stopped participants, by the meters of their supervisors."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from k8sdds.model.trial import PUBLISHER, Participant
from k8sdds.results import aggregate, slow_samples
from k8sdds.testbeds.evidence import measured_intervals
from k8sdds.workloads.outputs import TrialOutputs

READINGS = {
    "periods": "limit_periods",
    "throttled_periods": "throttled_periods",
    "throttled_s": "throttled_s",
    "pressure_some_s": "cpu_pressure_some_s",
    "pressure_full_s": "cpu_pressure_full_s",
}
"""Keys of a participant in the record, and those of its meters."""


def throttling(outputs: TrialOutputs) -> dict[str, dict[str, Any]] | None:
    """Return the readings of each participant, None for those that are not known; None if no pod had a limit.

    A limit that the trial did not set, such as that of a LimitRange, has periods, too.
    """
    found = {
        participant.name: {key: meters.get(name) for key, name in READINGS.items()}
        for participant in outputs.trial.cell.participants
        if (meters := outputs.meters_of(participant))
    }
    limited = outputs.trial.cell.cpu_quota or any(own["periods"] for own in found.values())
    return (found or None) if limited else None


def throttled_percent(found: dict[str, dict[str, Any]] | None) -> float | None:
    """Return the share of throttled periods of the participant with the largest one."""
    shares = [
        aggregate.ratio(own["throttled_periods"], own["periods"], 100) for own in (found or {}).values()
    ]
    return max((share for share in shares if share is not None), default=None)


class _Stops:
    """When the limits of some participants stopped any of them within an interval, in µs."""

    def __init__(self, stops: Iterable[tuple[int, int]], begin: float, end: float) -> None:
        self.length = end - begin
        self.begins: list[float] = []
        self.ends: list[float] = []
        for start, stop in sorted(stops):
            first, last = max(start, begin), min(stop, end)
            if self.ends and first <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], last)
            elif first < last:
                self.begins.append(first)
                self.ends.append(last)
        self.total = sum(self.ends) - sum(self.begins)
        # Between the stops, from the begin of the interval on.
        before = [begin, *self.ends]
        self.gaps = sorted(first - last for first, last in zip(self.begins, before, strict=False))
        self.gap_sums = [0.0, *itertools.accumulate(self.gaps)]

    def holds_up(self, due: float, at: float) -> bool:
        """Return whether a sample that was due and arrived at these times was under way in a stop."""
        after = bisect_right(self.ends, due)
        return after < len(self.begins) and self.begins[after] < at

    def by_chance(self, delay: float) -> float:
        """Return the share of samples with this delay, due at random times of the interval, that would be."""
        longer = bisect_right(self.gaps, delay)
        return (self.total + self.gap_sums[longer] + delay * (len(self.gaps) - longer)) / self.length


def stopped_percent(outputs: TrialOutputs) -> float | None:
    """Return in which share of its interval a subscriber or a publisher was stopped, on average; None if unknown."""
    cell = outputs.trial.cell
    every = [_stops(outputs, subscriber, *cell.publishing) for subscriber in cell.subscribing]
    return aggregate.mean(100 * stops.total / stops.length for stops in every if stops is not None)


def slow_stopped_percents(outputs: TrialOutputs) -> tuple[float | None, float | None]:
    """Return the share of all slow samples during which their publisher or subscriber was stopped, and that by chance.

    By chance, as many of samples that take as long would be, if they were due at random times: the longer a sample
    takes, whatever the reason, the more likely it meets a stop. None if unknown.
    """
    held, chances = [], []
    for subscriber in outputs.trial.cell.subscribing:
        known: dict[int, _Stops | None] = {}
        for sample in slow_samples.of_subscriber(outputs.folder / subscriber.name):
            if sample.publisher not in known:
                publisher = Participant(PUBLISHER, sample.publisher)
                known[sample.publisher] = _stops(outputs, subscriber, publisher)
            if (stops := known[sample.publisher]) is None:
                continue
            held.append(stops.holds_up(sample.at_us - sample.delay_us, sample.at_us))
            chances.append(stops.by_chance(sample.delay_us))
    return aggregate.ratio(sum(held), len(held), 100), aggregate.ratio(sum(chances), len(chances), 100)


def _stops(outputs: TrialOutputs, subscriber: Participant, *publishers: Participant) -> _Stops | None:
    """Return when any of these was stopped in the interval of the subscriber; None if one of them is not known."""
    known = outputs.measurement.stops or {}
    names = [one.name for one in (subscriber, *publishers)]
    outcome = outputs.measurement.outcomes.get(subscriber.name)
    intervals = measured_intervals([outcome] if outcome else [])
    if any(name not in known for name in names) or not intervals:
        return None
    begin_ns, end_ns = intervals[0]
    return _Stops((stop for name in names for stop in known[name]), begin_ns / 1000, end_ns / 1000)
