"""The paced workload: publishers send samples at an offered rate, subscribers time the delay of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from k8sdds.model import rate_profile
from k8sdds.model.measurement import ClockError
from k8sdds.model.reason import NO_SAMPLES, Reason
from k8sdds.model.trial import PUBLISHER, SUBSCRIBER, Cell
from k8sdds.perftest.command import Load
from k8sdds.perftest.output import Summary
from k8sdds.perftest.rows import THROUGHPUT
from k8sdds.results import aggregate, histograms
from k8sdds.results.histograms import NOTHING_ARRIVED
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.workloads import latencies
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.protocol import RATE_MISSED, Workload

if TYPE_CHECKING:
    from k8sdds.results.hdr import Histogram

SHARED_CLOCK, SYNCHRONIZED_CLOCKS, HALF_ROUND_TRIP = "shared clock", "synchronized clocks", "round trip / 2"
"""How delays were measured: by the clock that all participants share, by the realtime clocks of several machines, or
by the publisher's clock alone."""

TAGS = {
    SHARED_CLOCK: ("one_way",),
    # A subscriber on the publisher's machine shares its clock.
    SYNCHRONIZED_CLOCKS: ("one_way", "one_way_realtime"),
    HALF_ROUND_TRIP: ("half_round_trip",),
}
"""Method to the tags of the delays that count."""

CLOCK_ERROR_SHARE = 0.03
"""Delays between machines are measured one-way if the bound of the error of their clocks is at most this share of the
median delay. The error is the same in all repetitions, so they do not average it out, and no confidence interval
contains it. An overlay adds some 10 %, so the error must be well below that; the report states it."""


class Paced(Workload):
    """Delay of each sample from the time at which it was due by the offered rate: a stall counts in full."""

    name = "paced"
    metrics: tuple[str, ...] = (
        "delay_p90_us", "delay_mean_us", "delay_p50_us", "delay_p99_us", "delay_p999_us", "delay_p9999_us",
        "delay_max_us", "delay_jitter_us", "deadline_missed_percent", "age_mean_us", "age_p99_us", "age_max_us",
        "blind_ms", "gaps", "out_of_order", "achieved_rate_percent",
    )  # fmt: skip
    measured_by = SUBSCRIBER
    histograms: tuple[str, ...] = ("one_way", "one_way_realtime", "half_round_trip")
    """The first is there only with a shared clock."""
    mode = THROUGHPUT

    def unsupported(self, cell: Cell) -> str | None:
        if not cell.rate:
            return "a paced test needs when samples are due: set `rate` (samples per second), or `schedule` (a file)"
        return rate_profile.contradiction(cell.rate_profile, cell.rate)

    def load(self, cell: Cell) -> Load:
        deadline_ms = cell.test_options.get("deadline_ms")
        deadline_s = deadline_ms / 1000 if deadline_ms else None
        return Load(
            rate=cell.rate,
            rate_profile=cell.rate_profile,
            schedule=cell.schedule,
            batch_bytes=cell.batch_bytes,
            on_schedule=True,
            deadline_s=deadline_s,
        )

    def timed_per_s(self, cell: Cell) -> float | None:
        return rate_profile.mean_rate(cell.rate_profile, cell.rate) * cell.publishers

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        record.delay_method, _ = _method(outputs)
        error = outputs.measurement.clock_error
        record.clock_error_us = error.bound_us if error is not None else None
        delays = delays_of(outputs, record.delay_method)
        if any(summary["received"] == 0 for summary in outputs.subscribers):
            latencies.set_percentiles(record, "delay", 0, dict.fromkeys(histograms.QUANTITIES))
        elif delays is not None:
            values = histograms.quantities_us(delays)
            latencies.set_percentiles(
                record,
                "delay",
                delays.total,
                values,
                _missing_percent(outputs, record.delay_method),
                histograms.episodes(outputs.folder, TAGS[record.delay_method], values),
            )
        latencies.set_pings(record, outputs)
        set_arrivals(record, outputs)

    def from_logs(
        self, received: Sequence[dict[str, float]], timed: Sequence[dict[str, float]]
    ) -> dict[str, Any]:
        if len(received) != 1:
            return {}
        record = Metrics(delay_method=SHARED_CLOCK)
        delays = {q: received[0].get(f"delay_{q}_us") for q in histograms.QUANTITIES}
        count, lost_percent = round(received[0]["samples"]), received[0]["lost_percent"]
        latencies.set_percentiles(record, "delay", count, delays, lost_percent)
        return record.model_dump(include=record.model_fields_set)

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        method, _ = _method(outputs)
        if not any(tag in outputs.latencies for tag in TAGS[method]):
            return Reason(NO_SAMPLES, "no delay was measured")
        return None

    def warnings(self, outputs: TrialOutputs) -> list[str]:
        _, why = _method(outputs)
        warnings = [f"clocks: delays are half of round trips, because {why}"] if why else []
        warnings += latencies.warnings(outputs)
        for participant, summary in outputs.summaries_of(PUBLISHER).items():
            schedule = summary["schedule"]
            if not schedule:
                continue
            missing = max(schedule["not_sent"], schedule["late"])
            if missing > RATE_MISSED * schedule["samples"]:
                warnings.append(
                    f"rate: {participant} wrote {schedule['late']} of {schedule['samples']} samples more than one"
                    f" period late and did not send {schedule['not_sent']}"
                )
        return warnings

    def shown(self, delay_method: str | None) -> tuple[str, ...]:
        return TAGS.get(delay_method or "", ())

    def describe(self, record: Metrics) -> str:
        known = {"p90": record.delay_p90_us, "p99": record.delay_p99_us}
        parts = [f"{name} {number(value / 1000)} ms" for name, value in known.items() if value is not None]
        parts = parts or [NOTHING_ARRIVED if record.delay_count == 0 else "unknown"]
        if missed := record.deadline_missed_percent:
            parts.append(f"{missed:.2f} % missed the deadline")
        return f"delay {', '.join(parts)}"


def _missing_percent(outputs: TrialOutputs, method: str) -> float:
    """Return the share of samples without a delay: those that were lost, or whose pings were not answered.

    A link that the experiment makes lossy loses samples whatever their delay.
    """
    if method == HALF_ROUND_TRIP or outputs.trial.cell.link.loses_packets:
        return latencies.unanswered_percent(outputs)
    lost = sum(summary["lost"] or 0 for summary in outputs.subscribers)
    received = sum(summary["received"] or 0 for summary in outputs.subscribers)
    return 100 * lost / max(lost + received, 1)


def set_arrivals(record: Metrics, outputs: TrialOutputs) -> None:
    """Set what was sent on schedule, jitter, missed deadlines and ages, and the delays of each subscriber."""
    record.delay_method, _ = _method(outputs)
    schedules = [summary["schedule"] or {} for summary in outputs.publishers]
    record.scheduled = aggregate.total(schedule.get("samples") for schedule in schedules)
    record.late = aggregate.total(schedule.get("late") for schedule in schedules)
    record.achieved_rate_percent = aggregate.ratio(record.sent, record.scheduled, 100)
    subscribers = {
        participant.name: summary
        for participant, summary in outputs.summaries_of(SUBSCRIBER).items()
        if summary["arrivals"]
    }
    record.delay_by_subscriber = {
        name: _of_subscriber(summary, record) for name, summary in subscribers.items()
    }
    own = record.delay_by_subscriber.values()
    # Differences between delays do not depend on the difference between two clocks.
    record.delay_jitter_us = aggregate.mean(delays["jitter_us"] for delays in own)
    record.deadline_missed = aggregate.total(delays.get("missed") for delays in own)
    expected = (record.scheduled or 0) * len(subscribers)
    record.deadline_missed_percent = aggregate.ratio(record.deadline_missed, expected, 100)
    for name in ("age_mean_us", "age_p99_us", "age_max_us", "blind_ms"):
        setattr(record, name, aggregate.complete_max(one.get(name) for one in own))
    if outputs.trial.cell.test_options.get("deadline_ms"):
        record.gaps = aggregate.total(one.get("gaps") for one in own)


def _of_subscriber(subscriber: Summary, record: Metrics) -> dict[str, Any]:
    """Return the counts of a subscriber, and its delays if they are one-way. An unknown percentile is None."""
    arrivals = subscriber["arrivals"]
    jitter_us = aggregate.ratio(arrivals["jitter_ns"], 1000)
    own = {
        "received": subscriber["received"],
        "lost": subscriber["lost"],
        "jitter_us": jitter_us if (subscriber["received"] or 0) > 1 else None,
        **_freshness(arrivals, record.delay_method),
    }
    if record.delay_method == HALF_ROUND_TRIP:
        return own
    unsent_or_lost = max((record.scheduled or 0) - (subscriber["received"] or 0), 0)
    own["missed"] = unsent_or_lost + (arrivals["missed"] or 0)
    # Percentiles of delays by two clocks cannot be merged.
    clocks = [delays for delays in (subscriber["one_way_ns"], subscriber["one_way_realtime_ns"]) if delays]
    delays = clocks[0] if len(clocks) == 1 else {}
    quantities = ("mean", *histograms.PERCENTILES, "max")
    return (
        own
        | {"count": sum(clock["count"] for clock in clocks)}
        | {f"{quantity}_us": aggregate.ratio(delays.get(quantity), 1000) for quantity in quantities}
    )


def _freshness(arrivals: dict[str, Any], method: str | None) -> dict[str, Any]:
    """Return the times without a fresh sample, and the ages if they are one-way; empty for an earlier perftest."""
    if arrivals.get("blind_ns") is None:
        return {}
    own = {"blind_ms": arrivals["blind_ns"] / 1e6, "gaps": arrivals["gaps"]}
    ages = None if method == HALF_ROUND_TRIP else arrivals.get("age_ns")
    return own | {f"age_{name}_us": ages[name] / 1000 for name in ("mean", "p99", "max")} if ages else own


def delays_of(outputs: TrialOutputs, method: str | None) -> Histogram | None:
    """Return the delays that count by a method, in ns, merged over the subscribers; None if there are none."""
    return histograms.merged(
        outputs.latencies[tag] for tag in TAGS.get(method or "", ()) if tag in outputs.latencies
    )


def _method(outputs: TrialOutputs) -> tuple[str, str]:
    """Return how delays are measured, and why they cannot be measured one-way; empty if they can."""
    arrivals = [summary["arrivals"] for summary in outputs.subscribers if summary["arrivals"]]
    if arrivals and all(arrival["clock"] == "shared" for arrival in arrivals):
        return SHARED_CLOCK, ""
    step_us = max((arrival.get("clock_step_ns") or 0 for arrival in arrivals), default=0) / 1000
    why = clock_problem(outputs.measurement.clock_error, outputs.latencies.get("one_way_realtime"), step_us)
    return (HALF_ROUND_TRIP, why) if why else (SYNCHRONIZED_CLOCKS, "")


def clock_problem(error: ClockError | None, delays: Histogram | None, step_us: float) -> str:
    """Return why delays between the realtime clocks of several machines do not count; empty if they do."""
    if error is None or delays is None:
        return "the participants do not share a clock"
    if error.bound_us is None:
        return error.source
    median_us = delays.percentiles([50])[0] / 1000
    bound_us = error.bound_us + step_us
    if delays.minimum <= 0:
        return (
            f"samples arrived before they were due, so the clocks differ by more than {error.source} reported"
        )
    if bound_us > CLOCK_ERROR_SHARE * median_us:
        step = f" and the clocks were stepped by {step_us:.1f} µs" if step_us > error.bound_us else ""
        return (
            f"the clocks may differ by {bound_us:.1f} µs ({error.source}{step}), more than"
            f" {CLOCK_ERROR_SHARE:.0%} of the median delay of {median_us:.1f} µs"
        )
    return ""
