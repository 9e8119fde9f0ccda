"""The latency workload: one publisher sends the next sample after the reply to the previous one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from k8sdds.model.trial import PUBLISHER, Cell
from k8sdds.perftest.command import Load
from k8sdds.perftest.rows import LATENCY
from k8sdds.results.metrics import Metrics
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.protocol import Workload


class Latency(Workload):
    """One-way latency without load: half of a round trip."""

    name = "latency"
    # Publisher and subscriber wait for each other in turn, so a second core would only add wake-ups.
    layout = "same"
    sends_at_rate = False
    metrics = (
        "latency_p90_us", "latency_mean_us", "latency_p50_us", "latency_p99_us", "latency_p9999_us",
        "latency_max_us",
    )  # fmt: skip
    measured_by = PUBLISHER
    histograms = ("latency",)
    mode = LATENCY

    def unsupported(self, cell: Cell) -> str | None:
        """Return why a cell cannot be a sequence of round trips, or None."""
        if cell.batch_bytes:
            return "a latency test never batches: batch_bytes must be 0"
        if cell.publishers > 1:
            return "a latency test has one publisher"
        return None

    def load(self, cell: Cell) -> Load:
        """Return round trips."""
        return Load(round_trips=True)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        """Set mean, percentiles and maximum of the one-way latency."""
        record.latency_mean_us = outputs.latency_us("latency_ns", "mean")
        record.latency_p50_us = outputs.latency_us("latency_ns", "p50")
        record.latency_p90_us = outputs.latency_us("latency_ns", "p90")
        record.latency_p99_us = outputs.latency_us("latency_ns", "p99")
        record.latency_p9999_us = outputs.latency_us("latency_ns", "p9999")
        record.latency_max_us = outputs.latency_us("latency_ns", "max")

    def from_logs(
        self, received: Sequence[dict[str, float]], timed: Sequence[dict[str, float]]
    ) -> dict[str, Any]:
        """Return the latencies that a single publisher printed; empty with several publishers."""
        quantities = ("mean", "min", "p50", "p90", "p99", "p9999", "max", "std")
        return {f"latency_{q}_us": timed[0][f"{q}_us"] for q in quantities} if len(timed) == 1 else {}

    def invalid(self, outputs: TrialOutputs) -> str | None:
        """Return a reason if no round trip was timed, or None. RTI PerfTest does not count round trips."""
        latencies = [summary["latency_ns"] for summary in outputs.publishers]
        if not any(values and values.get("count") != 0 for values in latencies):
            return "no-samples: no round trip was timed"
        return None

    def describe(self, record: Metrics) -> str:
        """Return median and 90th percentile."""
        return f"p50 {record.latency_p50_us:.1f} µs, p90 {record.latency_p90_us:.1f} µs"
