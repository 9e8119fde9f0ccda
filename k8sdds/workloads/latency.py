"""The latency workload: one publisher sends the next sample after the reply to the previous one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from k8sdds.model.reason import NO_SAMPLES, Reason
from k8sdds.model.trial import PUBLISHER, Cell
from k8sdds.perftest.command import Load
from k8sdds.perftest.rows import LATENCY
from k8sdds.results import histograms
from k8sdds.results.metrics import Metrics
from k8sdds.workloads import latencies
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.protocol import Workload


class Latency(Workload):
    """One-way latency without load: half of a round trip."""

    name = "latency"
    # Publisher and subscriber wait for each other in turn, so a second core would only add wake-ups.
    layout = "same"
    metrics = (
        "latency_p90_us", "latency_mean_us", "latency_p50_us", "latency_p99_us", "latency_p999_us",
        "latency_p9999_us", "latency_max_us", "pings_unanswered_percent",
    )  # fmt: skip
    measured_by = PUBLISHER
    histograms = ("latency",)
    mode = LATENCY

    def unsupported(self, cell: Cell) -> str | None:
        if cell.batch_bytes:
            return "a latency test never batches: batch_bytes must be 0"
        if cell.has_several_writers:
            return "a latency test has one sample under way, and so one writer: topics and writers must be 1"
        if cell.publishers > 1:
            return "a latency test has one publisher"
        return None

    def load(self, cell: Cell) -> Load:
        return Load(round_trips=True, rate=cell.rate)

    def timed_per_s(self, cell: Cell) -> float | None:
        return cell.rate or None

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        values = {name: outputs.latency_us("latency_ns", name) for name in histograms.QUANTITIES}
        missing = latencies.unanswered_percent(outputs)
        episodes = outputs.episodes("latency_ns")
        latencies.set_percentiles(record, "latency", _count(outputs), values, missing, episodes)
        latencies.set_pings(record, outputs)

    def from_logs(
        self, received: Sequence[dict[str, float]], timed: Sequence[dict[str, float]]
    ) -> dict[str, Any]:
        if len(timed) != 1:
            return {}
        quantities = ("mean", "min", "p50", "p90", "p99", "p9999", "max", "std")
        # Every sample is a ping, which each subscriber receives.
        count = min((round(summary["samples"]) for summary in received), default=None)
        record = Metrics()
        latencies.set_percentiles(record, "latency", count, {q: timed[0][f"{q}_us"] for q in quantities})
        return record.model_dump(include=record.model_fields_set)

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        timed = [summary["latency_ns"] for summary in outputs.publishers]
        if not any(values and values.get("count") != 0 for values in timed):
            return Reason(NO_SAMPLES, "no round trip was timed")
        return None

    def warnings(self, outputs: TrialOutputs) -> list[str]:
        return latencies.warnings(outputs)

    def describe(self, record: Metrics) -> str:
        return latencies.describe(p50=record.latency_p50_us, p90=record.latency_p90_us)


def _count(outputs: TrialOutputs) -> int | None:
    """Return the number of round trips. RTI PerfTest does not print it: each sample that arrives is one."""
    if any(summary["pongs_received"] == 0 for summary in outputs.publishers):
        return 0
    counts = [(summary["latency_ns"] or {}).get("count") for summary in outputs.publishers]
    received = [summary["received"] for summary in outputs.subscribers]
    return next((count for count in counts if count is not None), min(received, default=None))
