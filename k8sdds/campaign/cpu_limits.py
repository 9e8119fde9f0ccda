"""Summarize how the CPU limits of pods stopped participants, by the meters of their supervisors."""

from __future__ import annotations

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


def stopped_percent(outputs: TrialOutputs) -> float | None:
    """Return in which share of its interval a subscriber or a publisher was stopped, on average; None if unknown."""
    cell = outputs.trial.cell
    shares = []
    for subscriber in cell.subscribing:
        if (stops := _stops(outputs, subscriber, *cell.publishing)) is None:
            continue
        for begin_ns, end_ns in measured_intervals([outputs.measurement.outcomes[subscriber.name]]):
            stopped_us = _length_us(stops, begin_ns / 1000, end_ns / 1000)
            shares.append(aggregate.ratio(stopped_us, (end_ns - begin_ns) / 1000, 100))
    return aggregate.mean(shares)


def slow_stopped_percent(outputs: TrialOutputs) -> float | None:
    """Return the share of all slow samples during which their publisher or subscriber was stopped; None if unknown."""
    stopped = []
    for subscriber in outputs.trial.cell.subscribing:
        for sample in slow_samples.of_subscriber(outputs.folder / subscriber.name):
            stops = _stops(outputs, subscriber, Participant(PUBLISHER, sample.publisher))
            due_us = sample.at_us - sample.delay_us
            stopped += (
                [any(begin < sample.at_us and due_us < end for begin, end in stops)]
                if stops is not None
                else []
            )
    return aggregate.ratio(sum(stopped), len(stopped), 100)


def _stops(outputs: TrialOutputs, *participants: Participant) -> list[tuple[int, int]] | None:
    """Return when any of these was stopped, in order; None if it is not known of one of them."""
    known = outputs.measurement.stops or {}
    if any(one.name not in known for one in participants):
        return None
    return sorted(stop for one in participants for stop in known[one.name])


def _length_us(stops: list[tuple[int, int]], begin: float, end: float) -> float:
    """Return how much of an interval is covered by stops, which are in order and can overlap."""
    total, since = 0.0, begin
    for start, stop in stops:
        total += max(0.0, min(stop, end) - max(start, since))
        since = max(since, stop)
    return total
