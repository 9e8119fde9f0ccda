"""iperf3: streams of TCP or UDP from the client to the server."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k8sdds.model.measurement import Listener
from k8sdds.model.reason import Reason
from k8sdds.model.trial import FIRST_PUBLISHER, Cell, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.results import aggregate
from k8sdds.results.metrics import Metrics
from k8sdds.system import reading
from k8sdds.system.numbers import number
from k8sdds.system.shapes import Count, Finite, Integer, Number, Shape
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.program import Command, Surroundings
from k8sdds.workloads.protocol import missed_rate
from k8sdds.workloads.tools import Tool, ToolWorkload, server_of, whole_seconds, window, wrong_interval

PORT = 5201
"""TCP port of the server: its default."""
MIN_DATAGRAM_BYTES = 16
MAX_REPORT_BYTES = 64 << 20
"""Largest report: 128 flows, with a line for each second in both directions."""
STDOUT = "stdout"


class _Sum(Shape):
    """Counts over all flows."""

    bytes: Integer
    seconds: Finite = 0.0
    retransmits: Count = None
    packets: Count = None
    lost_packets: Count = None
    jitter_ms: Number = None


class _Interval(Shape):
    class Sum(Shape):
        bytes: Integer
        omitted: bool

    sum: Sum


class _End(Shape):
    sum_sent: _Sum
    sum_received: _Sum
    sum: _Sum | None = None


class _Server(Shape):
    intervals: list[_Interval]


class Report(Shape):
    """The part of the client's JSON that is used, with the report of the server."""

    end: _End
    server_output_json: _Server
    error: Any = None

    @property
    def warmup_bytes(self) -> int:
        """Bytes that the server received in the warm-up, which iperf3 omits from its results."""
        return sum(
            interval.sum.bytes for interval in self.server_output_json.intervals if interval.sum.omitted
        )


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of iperf3, which maps a temporary file in a folder for each stream."""
    # Images need not have a /tmp.
    return {"TMPDIR": str(folder)}


class Iperf3(Tool):
    """iperf3, whose client reports what both sides counted."""

    packages: Mapping[str, str] = {"iperf3": "iperf3"}

    def __init__(self, udp: bool = False) -> None:
        self.name = "iperf3"
        self._udp = udp

    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        server = server_of(surroundings)
        env = environment(surroundings.paths.files)
        common = [self.name, "--json", "--port", str(PORT)]
        if participant.subscribes:
            argv = [*common, "--server", "--bind", server.address]
            return Command(argv, env, listens=Listener("tcp", PORT), window=window(trial))
        cell, options = trial.cell, trial.cell.test_options
        warmup_s, length_s = whole_seconds(trial)
        flows = options.get("flows", 1)
        argv = [*common, "--client", server.address, "--get-server-output"]
        argv += ["--time", str(length_s), "--omit", str(warmup_s)]
        argv += ["--parallel", str(flows), "--length", str(cell.payload_bytes)]
        argv += ["--udp", "--udp-counters-64bit"] if self._udp else []
        # 0 is unlimited, so a low rate must not be rounded to it.
        argv += ["--bitrate", str(math.ceil(cell.rate * cell.payload_bytes * 8 / flows))]
        argv += ["--set-mss", str(options["mss"])] if "mss" in options else []
        return Command(argv, env, window=window(trial))

    def summary(self, trial: Trial, participant: Participant, folder: Path) -> Summary | None:
        report = Report.from_file(folder / FIRST_PUBLISHER.name / STDOUT, MAX_REPORT_BYTES)
        if report is None or report.error is not None:
            return None
        sent, received = report.end.sum_sent, report.end.sum_received
        datagrams = report.end.sum if self._udp else None
        if participant.publishes:
            # What both sides counted of datagrams is not of the same interval, so there is no number of sent ones.
            own = {
                "sent_bytes": sent.bytes,
                "retransmits": sent.retransmits,
                "measured_s": sent.seconds,
            }
            return Summary(own)
        data: dict[str, Any] = {
            "delivered_bytes": received.bytes,
            "warmup_delivered_bytes": report.warmup_bytes,
            "measured_s": received.seconds,
            "throughput_mbps": aggregate.ratio(received.bytes * 8, received.seconds, 1e-6),
        }
        if datagrams:
            data |= {
                "received": received.bytes // trial.cell.payload_bytes,
                "lost": datagrams.lost_packets,
                "jitter_us": aggregate.ratio(datagrams.jitter_ms, 1, 1e3),
            }
        return Summary(data)

    def error(self, folder: Path) -> str:
        try:
            message = reading.json_file(folder / STDOUT, max_bytes=MAX_REPORT_BYTES).get("error")
        except (OSError, reading.UnreadableError):
            message = None
        return reading.one_line(message, 300) if isinstance(message, str) else super().error(folder)


class Stream(ToolWorkload):
    """Payload rate of streams from the client to the server."""

    uses = ("rate",)
    longest_write_bytes: int
    """Longest write that iperf3 accepts."""

    def unsupported(self, cell: Cell) -> str | None:
        too_long = cell.payload_bytes > self.longest_write_bytes
        limit = f"iperf3 writes at most {self.longest_write_bytes} bytes at once" if too_long else None
        return super().unsupported(cell) or limit

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        _, length_s = whole_seconds(outputs.trial)
        for participant, summary in outputs.summaries.items():
            measured_s = summary["measured_s"] if summary else None
            if reason := wrong_interval(participant, measured_s, length_s):
                return reason
        return None

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        record.throughput_mbps = aggregate.mean(summary["throughput_mbps"] for summary in outputs.subscribers)
        record.interval_s = aggregate.mean(summary["measured_s"] for summary in outputs.subscribers)
        record.retransmits = aggregate.total(summary["retransmits"] for summary in outputs.publishers)
        record.achieved_rate_percent = _achieved_percent(outputs)

    def warnings(self, outputs: TrialOutputs) -> list[str]:
        return missed_rate(_achieved_percent(outputs), f"{outputs.trial.cell.rate:g} writes/s")

    def lost(self, record: Metrics) -> str:
        """Describe what did not arrive."""
        raise NotImplementedError

    def describe(self, record: Metrics) -> str:
        if record.throughput_mbps is None:
            return "throughput unknown"
        return f"{number(record.throughput_mbps)} Mbit/s, {self.lost(record)}"


def _achieved_percent(outputs: TrialOutputs) -> float | None:
    cell = outputs.trial.cell
    return outputs.achieved_rate_percent("sent_bytes", cell.rate * cell.payload_bytes)


class TcpStream(Stream):
    """Payload rate of TCP connections."""

    name = "tcp-stream"
    program = Iperf3()
    tcp = True
    metrics = ("throughput_mbps", "retransmits")
    longest_write_bytes = 1 << 20

    def lost(self, record: Metrics) -> str:
        return f"{record.retransmits or 0} retransmits"


class UdpStream(Stream):
    """Payload rate of UDP datagrams, with loss and jitter."""

    name = "udp-stream"
    program = Iperf3(udp=True)
    metrics = ("throughput_mbps", "samples_per_s", "stream_jitter_us")
    longest_write_bytes = 65507

    def unsupported(self, cell: Cell) -> str | None:
        if cell.payload_bytes < MIN_DATAGRAM_BYTES:
            return f"a datagram of iperf3 has at least {MIN_DATAGRAM_BYTES} bytes"
        return super().unsupported(cell)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        super().measure(record, outputs)
        for server in outputs.subscribers:
            record.samples_per_s = aggregate.ratio(server["received"], server["measured_s"])
            record.stream_jitter_us = server["jitter_us"]

    def lost(self, record: Metrics) -> str:
        return f"lost {record.lost_percent or 0:.2f} %"
