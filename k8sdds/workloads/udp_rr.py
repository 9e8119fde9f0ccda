"""The udp-rr workload: the client sends a request on each socket after the response to the previous one."""

from __future__ import annotations

from k8sdds.results.metrics import Metrics
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.tools.transactions import Exchange, Transactions, describe, per_second


class UdpRr(Exchange):
    """Requests and responses of `payload_bytes` each over UDP."""

    name = "udp-rr"
    program = Transactions("--udp")
    longest_payload = 65507
    metrics = (
        "transactions_per_s", "round_trip_mean_us", "round_trip_p50_us", "round_trip_p90_us", "round_trip_p99_us",
        "round_trip_p999_us", "round_trip_p9999_us", "round_trip_max_us",
    )  # fmt: skip

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        """Set the transactions per second and the distribution of the round trips."""
        super().measure(record, outputs)
        record.transactions_per_s = per_second(outputs)

    def describe(self, record: Metrics) -> str:
        """Return the transactions per second and the tail of the round trips."""
        return describe(record, record.transactions_per_s, "transactions")
