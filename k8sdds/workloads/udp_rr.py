"""The udp-rr workload: the client sends a request on each socket after the response to the previous one."""

from __future__ import annotations

from k8sdds.workloads.tools import round_trips
from k8sdds.workloads.tools.transactions import Exchange, Transactions


class UdpRr(Exchange):
    """Requests and responses of `payload_bytes` each over UDP."""

    name = "udp-rr"
    program = Transactions("--udp")
    longest_payload = 65507
    metrics = ("transactions_per_s", *round_trips.METRICS)
    columns = ("round_trip_count",)
