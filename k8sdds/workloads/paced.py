"""The paced workload: publishers send samples at an offered rate, subscribers time the delay of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from k8sdds.model.trial import SUBSCRIBER, Cell
from k8sdds.perftest.command import Load
from k8sdds.perftest.rows import THROUGHPUT
from k8sdds.results import aggregate, histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system.strict import Strict
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.protocol import Workload

RATE_MISSED = 0.02
"""Fraction of the schedule that may be missing without a warning."""

SHARED_CLOCK, HALF_ROUND_TRIP = "shared clock", "round trip / 2"
"""How delays were measured: by the clock that all participants share, or by the publisher's clock alone."""


class PacedOptions(Strict):
    """Options of the paced test."""

    deadline_ms: float | None = Field(
        default=None,
        gt=0,
        description="a sample that arrives later after it was due counts as missed; default: one period",
    )


class Paced(Workload):
    """Delay of each sample from the time at which it was due by the offered rate: a stall counts in full."""

    name = "paced"
    options = PacedOptions
    metrics = (
        "delay_p90_us", "delay_mean_us", "delay_p50_us", "delay_p99_us", "delay_p999_us", "delay_p9999_us",
        "delay_max_us", "delay_jitter_us", "deadline_missed_percent", "achieved_rate_percent",
    )  # fmt: skip
    measured_by = SUBSCRIBER
    histograms = ("half_round_trip", "one_way")  # the former only if a clock is not shared
    mode = THROUGHPUT

    def unsupported(self, cell: Cell) -> str | None:
        """Return why a cell has no schedule, or None."""
        return (
            None
            if cell.rate
            else "a paced test needs the rate of its schedule: set `rate` (samples per second)"
        )

    def load(self, cell: Cell) -> Load:
        """Return a stream on a schedule."""
        deadline_ms = cell.test_options.get("deadline_ms")
        deadline_s = deadline_ms / 1000 if deadline_ms else None
        return Load(rate=cell.rate, batch_bytes=cell.batch_bytes, on_schedule=True, deadline_s=deadline_s)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        """Set the distribution of the delays of all subscribers, and what missed its schedule or its deadline."""
        record.delay_method = SHARED_CLOCK if _clock_is_shared(outputs) else HALF_ROUND_TRIP
        delays = outputs.latencies
        if delays is not None:
            record.delay_count = delays.get_total_count()
            record.delay_mean_us = delays.get_mean_value() / 1000
            record.delay_p50_us = histograms.percentile_us(delays, 50)
            record.delay_p90_us = histograms.percentile_us(delays, 90)
            record.delay_p99_us = histograms.percentile_us(delays, 99)
            record.delay_p999_us = histograms.percentile_us(delays, 99.9)
            record.delay_p9999_us = histograms.percentile_us(delays, 99.99)
            record.delay_max_us = delays.get_max_value() / 1000
        scheduled = aggregate.count(
            (summary["schedule"] or {}).get("samples") for summary in outputs.publishers
        )
        sent = aggregate.count(summary["sent"] for summary in outputs.publishers)
        record.scheduled = scheduled
        record.late = aggregate.count(
            (summary["schedule"] or {}).get("late") for summary in outputs.publishers
        )
        record.achieved_rate_percent = aggregate.ratio(sent, scheduled, 100)
        if record.delay_method != SHARED_CLOCK:
            return
        arrivals = [summary["arrivals"] for summary in outputs.subscribers]
        jitter_ns = aggregate.mean(arrival["jitter_ns"] for arrival in arrivals)
        record.delay_jitter_us = None if jitter_ns is None else jitter_ns / 1000
        expected = (scheduled or 0) * len(outputs.subscribers)
        in_time = sum(
            (summary["received"] or 0) - (summary["arrivals"]["missed"] or 0)
            for summary in outputs.subscribers
        )
        record.deadline_missed_percent = aggregate.ratio(expected - in_time, expected, 100)

    def from_logs(
        self, received: Sequence[dict[str, float]], timed: Sequence[dict[str, float]]
    ) -> dict[str, Any]:
        """Return nothing: no other program writes logs of a paced test."""
        return {}

    def invalid(self, outputs: TrialOutputs) -> str | None:
        """Return a reason if no delay was measured, or None."""
        return "no-samples: no delay was measured" if outputs.latencies is None else None

    def warnings(self, outputs: TrialOutputs) -> list[str]:
        """Return a warning for each publisher that did not keep its schedule."""
        warnings = []
        for participant, summary in outputs.summaries.items():
            schedule = summary["schedule"] if summary is not None else None
            if not participant.publishes or not schedule:
                continue
            missing = max(schedule["not_sent"], schedule["late"])
            if missing > RATE_MISSED * schedule["samples"]:
                warnings.append(
                    f"rate: {participant} wrote {schedule['late']} of {schedule['samples']} samples more than one"
                    f" period late and did not send {schedule['not_sent']}"
                )
        return warnings

    def describe(self, record: Metrics) -> str:
        """Return the tail of the delay and the missed deadlines."""
        p99 = "unknown (too few samples)" if record.delay_p99_us is None else f"{record.delay_p99_us:.1f} µs"
        missed = record.deadline_missed_percent
        return f"p99 delay {p99}" + (f", {missed:.2f} % missed the deadline" if missed else "")


def _clock_is_shared(outputs: TrialOutputs) -> bool:
    arrivals = [summary["arrivals"] for summary in outputs.subscribers]
    return bool(arrivals) and all(arrival and arrival["clock"] == "shared" for arrival in arrivals)
