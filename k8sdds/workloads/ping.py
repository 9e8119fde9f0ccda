"""The ping workload: ICMP echo requests of the client, which the kernel of the server's pod answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from k8sdds.model.measurement import Listener
from k8sdds.model.reason import Reason
from k8sdds.model.trial import FIRST_PUBLISHER, PUBLISHER, Cell, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.results import histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system import reading
from k8sdds.versions import UNPRIVILEGED_USER
from k8sdds.workloads import latencies
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.program import Command, Surroundings
from k8sdds.workloads.tools import (
    INTERVAL_TOLERANCE,
    ROUND_TRIP,
    RoundTripWorkload,
    Tool,
    server_of,
    whole_seconds,
    window,
)

MAX_OUTPUT_BYTES = 256 << 20
"""Largest output: a day at 20 requests per second."""
MIN_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES = 16, 65507
"""ping times a request only if it can hold a time stamp."""
LONGEST_NS = 100_000_000_000
"""Largest value of a histogram."""
SEQUENCE_NUMBERS = 1 << 16
"""Requests after which icmp_seq starts again at 0."""
_REPLY = re.compile(
    rb"^\[(\d{1,12}\.\d{1,9})\] .{0,200}\bicmp_seq=(\d{1,10}) .{0,60}\btime=(\d{1,9}(?:\.\d{1,6})?) ms",
    re.MULTILINE,
)


class IputilsPing(Tool):
    """ping of iputils, which prints each round trip with a resolution of 1 µs or less."""

    name = "ping"
    # Pods have no capabilities, so that ping needs the right to open ICMP sockets.
    sysctls: Mapping[str, str] = {"net.ipv4.ping_group_range": f"0 {UNPRIVILEGED_USER}"}
    packages: Mapping[str, str] = {"ping": "iputils-ping"}

    def command(self, trial: Trial, participant: Participant, surroundings: Surroundings) -> Command:
        if participant.subscribes:
            return Command(["sleep", "infinity"], listens=Listener("icmp", 0), window=window(trial))
        cell = trial.cell
        pace = ["-i", f"{1 / cell.rate:.6f}"] if cell.rate else ["-A"]
        argv = [
            self.name,
            "-n",
            "-D",
            *pace,
            "-s",
            str(cell.payload_bytes),
            "-w",
            str(sum(whole_seconds(trial))),
        ]
        return Command([*argv, server_of(surroundings).address], window=window(trial))

    def summary(self, trial: Trial, participant: Participant, folder: Path) -> Summary | None:
        replies = measured(trial, folder)
        if len(replies) < 2:
            return None
        first, last = replies[0], replies[-1]
        sent = last.sequence - first.sequence + 1
        data = {
            "delivered_bytes": len(replies) * trial.cell.payload_bytes,
            # From the first request to the one that would follow the last: a period for each.
            "measured_s": (last.time_s - first.time_s) * sent / (sent - 1),
        }
        if participant.publishes:
            return Summary(data | {"sent": sent, "pings_sent": sent, "pongs_timed_out": sent - len(replies)})
        return Summary(data | {"received": len(replies), "lost": sent - len(replies)})

    def convert(self, trial: Trial, folder: Path) -> None:
        counts = Counter(reply.round_trip_ns for reply in measured(trial, folder))
        if counts:
            _, length_s = whole_seconds(trial)
            histograms.write(folder / FIRST_PUBLISHER.name, ROUND_TRIP, counts, length_s)


@dataclass(frozen=True)
class Reply:
    """A reply that ping printed."""

    time_s: float
    sequence: int
    round_trip_ns: int


def measured(trial: Trial, folder: Path) -> list[Reply]:
    """Return the replies in the measured interval, in the order of the requests, each once."""
    try:
        output = reading.data(folder / FIRST_PUBLISHER.name / "stdout", MAX_OUTPUT_BYTES)
    except (OSError, reading.UnreadableError):
        return []
    replies: dict[int, Reply] = {}
    sequence = 0
    for match in _REPLY.finditer(output):
        sequence = _nearest(int(match[2]), sequence)
        reply = Reply(float(match[1]), sequence, min(round(float(match[3]) * 1e6), LONGEST_NS))
        replies.setdefault(reply.sequence, reply)
    warmup_s, length_s = whole_seconds(trial)
    begin = min((reply.time_s for reply in replies.values()), default=0) + warmup_s
    own = [reply for reply in replies.values() if begin <= reply.time_s <= begin + length_s]
    return sorted(own, key=lambda reply: reply.sequence)


def _nearest(icmp_seq: int, sequence: int) -> int:
    """Return the number of the request with this icmp_seq that is nearest to the request of the previous reply."""
    half = SEQUENCE_NUMBERS // 2
    return sequence + (icmp_seq - sequence + half) % SEQUENCE_NUMBERS - half


class Ping(RoundTripWorkload):
    """Round trips of ICMP echo requests, each after the reply to the previous one or at a rate."""

    name = "ping"
    program = IputilsPing()
    layout = "same"
    uses = ("rate",)
    metrics = (
        "round_trip_p50_us", "round_trip_mean_us", "round_trip_p90_us", "round_trip_p99_us", "round_trip_p999_us",
        "round_trip_p9999_us", "round_trip_max_us", "pings_unanswered_percent",
    )  # fmt: skip

    def unsupported(self, cell: Cell) -> str | None:
        if not MIN_PAYLOAD_BYTES <= cell.payload_bytes <= MAX_PAYLOAD_BYTES:
            return f"ping times requests of {MIN_PAYLOAD_BYTES} to {MAX_PAYLOAD_BYTES} bytes"
        return super().unsupported(cell)

    def timed_per_s(self, cell: Cell) -> float | None:
        return cell.rate or None

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        super().measure(record, outputs)
        latencies.set_pings(record, outputs)

    def invalid(self, outputs: TrialOutputs) -> Reason | None:
        _, length_s = whole_seconds(outputs.trial)
        for participant, summary in outputs.summaries_of(PUBLISHER).items():
            if summary["measured_s"] < (1 - INTERVAL_TOLERANCE) * length_s:
                return Reason(
                    "interval", f"{participant} got replies for {summary['measured_s']:.3g} s of {length_s} s"
                )
        return None

    def warnings(self, outputs: TrialOutputs) -> list[str]:
        return latencies.warnings(outputs)

    def describe(self, record: Metrics) -> str:
        return latencies.describe(p50=record.round_trip_p50_us, p99=record.round_trip_p99_us)
