"""The tcp-crr workload: the client opens a connection for each request, and the server closes it after the response."""

from __future__ import annotations

from k8sdds.results.metrics import Metrics
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.tools.transactions import Exchange, Transactions, describe, per_second


class TcpCrr(Exchange):
    """Connections with one request and one response of `payload_bytes` each."""

    name = "tcp-crr"
    program = Transactions("--new-connections")
    metrics = (
        "connections_per_s", "conntrack_entries", "round_trip_mean_us", "round_trip_p50_us", "round_trip_p90_us",
        "round_trip_p99_us", "round_trip_p999_us", "round_trip_p9999_us", "round_trip_max_us",
    )  # fmt: skip

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        """Set the connections per second, the entries of the connection tracking, and the round trips."""
        super().measure(record, outputs)
        record.connections_per_s = per_second(outputs)
        record.conntrack_entries = outputs.measurement.conntrack_entries

    def describe(self, record: Metrics) -> str:
        """Return the connections per second and the tail of the round trips."""
        return describe(record, record.connections_per_s, "connections")
