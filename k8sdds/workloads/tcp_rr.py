"""The tcp-rr workload: the client sends a request on each connection after the response to the previous one."""

from __future__ import annotations

from k8sdds.workloads.tools import round_trips
from k8sdds.workloads.tools.transactions import Exchange, Transactions


class TcpRr(Exchange):
    """Requests and responses of `payload_bytes` each over TCP."""

    name = "tcp-rr"
    program = Transactions()
    tcp = True
    metrics = ("transactions_per_s", *round_trips.METRICS)
    columns = ("round_trip_count", "tcp_congestion_control")
