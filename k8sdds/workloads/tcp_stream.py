"""The tcp-stream workload: the client writes to TCP connections, the server counts what arrives."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from k8sdds.model.axis import WORKLOAD, Axis
from k8sdds.model.trial import Cell
from k8sdds.results.metrics import Metrics
from k8sdds.system.numbers import number
from k8sdds.workloads.tools.iperf3 import MAX_WRITE_BYTES, Iperf3, Stream, StreamOptions, write_limit


class TcpStreamOptions(StreamOptions):
    """Options of the tcp-stream test."""

    mss: Annotated[int | None, Axis(WORKLOAD, lambda v: f"MSS {v:g} B")] = Field(
        default=None,
        ge=88,
        le=9216,
        description="largest TCP segment in bytes; default: as the MTU allows",
    )


class TcpStream(Stream):
    """Payload rate of TCP connections."""

    name = "tcp-stream"
    options = TcpStreamOptions
    program = Iperf3()
    tcp = True
    metrics = ("throughput_mbps", "retransmits")
    columns = ("tcp_congestion_control",)

    def unsupported(self, cell: Cell) -> str | None:
        """Return why iperf3 cannot run this cell, or None."""
        return super().unsupported(cell) or write_limit(cell, MAX_WRITE_BYTES)

    def describe(self, record: Metrics) -> str:
        """Return the rate and the retransmits."""
        if record.throughput_mbps is None:
            return "throughput unknown"
        return f"{number(record.throughput_mbps)} Mbit/s, {record.retransmits or 0} retransmits"
