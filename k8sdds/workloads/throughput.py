"""The throughput workload: publishers send a stream of samples, subscribers count what arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from k8sdds.model.reason import Reason
from k8sdds.model.trial import SUBSCRIBER, Cell
from k8sdds.perftest.command import Load
from k8sdds.perftest.output import Summary
from k8sdds.perftest.rows import THROUGHPUT
from k8sdds.results import aggregate, steadiness, timeline
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.workloads import latencies
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.protocol import Workload, missed_rate

SPAN_TOLERANCE = 0.1
"""Deviation of the interval in which a subscriber received samples, as a fraction of the measured time, from which
delivery is uneven."""
SPAN_SLACK_S = 0.1
"""The same tolerance as a time, for short trials: the first and last sample may wait this long for a core."""

MISSED = 0.1
"""Fraction by which a duration may be exceeded without a warning."""


UNSTEADY = "unsteady"
"""Code of the warning of a trial whose rate was not the same throughout the measured interval."""


class Throughput(Workload):
    """Payload rate that a subscriber receives, and on request the delay in the buffers that a publisher fills."""

    name = "throughput"
    metrics = (
        "throughput_mbps", "samples_per_s", "loaded_latency_p50_us", "loaded_latency_p90_us",
    )  # fmt: skip
    measured_by = SUBSCRIBER
    mode = THROUGHPUT

    def load(self, cell: Cell) -> Load:
        return Load(rate=cell.rate, batch_bytes=cell.batch_bytes, loaded_latency=_times_samples(cell))

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        rates = [_rate(outputs, summary) for summary in outputs.subscribers]
        record.throughput_mbps = aggregate.mean(rate.mbps for rate in rates)
        record.samples_per_s = aggregate.mean(rate.samples_per_s for rate in rates)
        record.interval_s = aggregate.mean(rate.interval_s for rate in rates)
        record.achieved_rate_percent = outputs.achieved_rate_percent("sent", outputs.trial.cell.rate)
        if not _times_samples(outputs.trial.cell):
            return
        counts = [(summary["loaded_latency_ns"] or {}).get("count") for summary in outputs.publishers]
        values = {quantity: outputs.latency_us("loaded_latency_ns", quantity) for quantity in ("p50", "p90")}
        missing = latencies.unanswered_percent(outputs)
        episodes = outputs.episodes("loaded_latency_ns")
        latencies.set_percentiles(
            record, "loaded_latency", aggregate.total(counts), values, missing, episodes
        )
        latencies.set_pings(record, outputs)

    def from_logs(
        self, received: Sequence[dict[str, float]], timed: Sequence[dict[str, float]]
    ) -> dict[str, Any]:
        values: dict[str, Any] = {
            name: aggregate.mean(summary.get(name) for summary in received)
            for name in ("throughput_mbps", "samples_per_s")
        }
        if len(timed) == 1:
            values |= {f"loaded_latency_{q}_us": timed[0][f"{q}_us"] for q in ("p50", "p90")}
        return values

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        if len(outputs.publishers) < 2:
            return None
        return next(iter(_uneven(outputs)), None)

    def warnings(self, outputs: TrialOutputs) -> list[str]:
        duration_s, rate = outputs.trial.duration_s, outputs.trial.cell.rate
        warnings = [str(uneven) for uneven in _uneven(outputs)]
        warnings += missed_rate(outputs.achieved_rate_percent("sent", rate), f"{rate:g} samples/s")
        for summary in outputs.publishers:
            measured_s = summary["measured_s"]
            if measured_s and measured_s > (1 + MISSED) * duration_s:
                warnings.append(
                    f"duration: the last write ended after {measured_s:.3g} s instead of {duration_s:g}"
                )
        unsteady = steadiness.drift([step.mbps for step in timeline.received(outputs.folder)])
        if unsteady is not None:
            warnings.append(f"{UNSTEADY}: {unsteady.describe()}")
        return warnings

    def describe(self, record: Metrics) -> str:
        if record.throughput_mbps is None or record.samples_per_s is None:
            return "throughput unknown"
        lost = f", lost {record.lost_percent:.2f} %" if record.lost_percent else ""
        return f"{number(record.throughput_mbps)} Mbit/s, {number(record.samples_per_s)} samples/s{lost}"


def _times_samples(cell: Cell) -> bool:
    return bool(cell.test_options.get("loaded_latency"))


class _Rate(NamedTuple):
    mbps: float | None
    samples_per_s: float | None
    interval_s: float | None


def _rate(outputs: TrialOutputs, subscriber: Summary) -> _Rate:
    """Return the rate of a subscriber.

    That of samples that arrived only in a part of the measured time, or also later, is the one over all of this time.
    """
    span_s = interval_s(subscriber)
    if not _is_uneven(outputs, subscriber):
        return _Rate(subscriber["throughput_mbps"], subscriber["samples_per_s"], span_s)
    whole_s = max(span_s or 0, _measured_s(outputs))
    per_s = (subscriber["received"] or 0) / whole_s
    return _Rate(per_s * outputs.trial.cell.payload_bytes * 8 / 1e6, per_s, whole_s)


def _uneven(outputs: TrialOutputs) -> list[Reason]:
    """Describe the subscribers that received samples in a part of the measured time alone, or later."""
    return [
        Reason(
            "uneven",
            f"{participant} got {summary['received']} samples within {interval_s(summary):.3g} s of the"
            f" {_measured_s(outputs):.3g} s measured; measure longer",
        )
        for participant, summary in outputs.summaries_of(SUBSCRIBER).items()
        if summary["received"] and _is_uneven(outputs, summary)
    ]


def _is_uneven(outputs: TrialOutputs, subscriber: Summary) -> bool:
    # RTI PerfTest does not report when samples arrived.
    span_s, measured_s = interval_s(subscriber), _measured_s(outputs)
    return span_s is not None and abs(span_s - measured_s) > max(SPAN_TOLERANCE * measured_s, SPAN_SLACK_S)


def _measured_s(outputs: TrialOutputs) -> float:
    return max((summary["measured_s"] or 0 for summary in outputs.publishers), default=0)


def interval_s(subscriber: Summary) -> float | None:
    """Return the length of the interval over which a subscriber's rate is calculated; None if it is not reported."""
    common = subscriber["common_interval"]
    return (common["last_ns"] - common["first_ns"]) / 1e9 if common else None
