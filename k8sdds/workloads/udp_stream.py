"""The udp-stream workload: the client sends UDP datagrams, the server counts what arrives and what is missing."""

from __future__ import annotations

from k8sdds.model.trial import Cell
from k8sdds.results import aggregate
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.tools.iperf3 import Iperf3, Stream, write_limit

MIN_DATAGRAM_BYTES, MAX_DATAGRAM_BYTES = 16, 65507


class UdpStream(Stream):
    """Payload rate of UDP datagrams, with loss and jitter."""

    name = "udp-stream"
    program = Iperf3(udp=True)
    metrics = ("throughput_mbps", "samples_per_s", "stream_jitter_us")

    def unsupported(self, cell: Cell) -> str | None:
        """Return why iperf3 cannot run this cell, or None."""
        if cell.payload_bytes < MIN_DATAGRAM_BYTES:
            return f"a datagram of iperf3 has at least {MIN_DATAGRAM_BYTES} bytes"
        return super().unsupported(cell) or write_limit(cell, MAX_DATAGRAM_BYTES)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        """Set the rates at the server and the jitter."""
        super().measure(record, outputs)
        for server in outputs.subscribers:
            record.samples_per_s = aggregate.ratio(server["received"], server["measured_s"])
            record.stream_jitter_us = server["jitter_us"]

    def describe(self, record: Metrics) -> str:
        """Return the rate and the loss."""
        if record.throughput_mbps is None:
            return "throughput unknown"
        return f"{number(record.throughput_mbps)} Mbit/s, lost {record.lost_percent or 0:.2f} %"
