"""The tcp-crr workload: the client opens a connection for each request, and the server closes it after the response."""

from __future__ import annotations

from k8sdds.results.metrics import Metrics
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.tools import round_trips
from k8sdds.workloads.tools.transactions import Exchange, Transactions


class TcpCrr(Exchange):
    """Connections with one request and one response of `payload_bytes` each."""

    name = "tcp-crr"
    program = Transactions("--new-connections")
    tcp = True
    metrics = ("connections_per_s", "conntrack_entries", *round_trips.METRICS)
    columns = ("round_trip_count", "tcp_congestion_control")

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        """Set the connections per second, the round trips, and the entries of the connection tracking."""
        super().measure(record, outputs)
        record.conntrack_entries = outputs.measurement.conntrack_entries
