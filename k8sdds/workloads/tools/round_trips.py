"""Round trips of requests and responses, which a program keeps in a histogram: their metrics and description."""

from __future__ import annotations

from k8sdds.model.reason import Reason
from k8sdds.results import histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.workloads import latencies
from k8sdds.workloads.outputs import TrialOutputs

TAG = "round_trip"
"""Tag of the round trips in the log."""

METRICS = (
    "round_trip_mean_us", "round_trip_p50_us", "round_trip_p90_us", "round_trip_p99_us", "round_trip_p999_us",
    "round_trip_p9999_us", "round_trip_max_us",
)  # fmt: skip


def set_metrics(record: Metrics, outputs: TrialOutputs) -> None:
    """Set mean, percentiles and maximum of the logged round trips."""
    timed = outputs.latencies.get(TAG)
    if timed is not None:
        values, missing = histograms.quantities_us(timed), latencies.unanswered_percent(outputs)
        # Only our own program logs episodes: others print values without their order.
        episodes = histograms.episodes(outputs.folder, [TAG], values)
        latencies.set_percentiles(record, TAG, timed.total, values, missing, episodes)


def incomplete(outputs: TrialOutputs, expected: int) -> Reason | None:
    """Return a reason if the histogram does not have exactly one round trip for each request, or None."""
    timed = outputs.latencies.get(TAG)
    kept = timed.total if timed else 0
    return (
        None if kept == expected else Reason("histogram", f"it has {kept} round trips of {expected} requests")
    )


def describe(record: Metrics, rate: float | None, unit: str) -> str:
    """Return a rate and the tail of the round trips."""
    if rate is None:
        return f"{unit} unknown"
    p99 = record.round_trip_p99_us
    return f"{number(rate)} {unit}/s" + (f", p99 {number(p99)} µs" if p99 is not None else "")
