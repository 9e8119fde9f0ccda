"""Define a run of a program, and read its result from the output of the program and from the supervisor's meters."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k8sdds.campaign import record as attempt
from k8sdds.middleware import raw
from k8sdds.model.measurement import Measurement
from k8sdds.model.trial import FIRST_PUBLISHER, SUBSCRIBER, Participant, Trial

PUB, SUB = FIRST_PUBLISHER, Participant(SUBSCRIBER)

RAW = ("raw", *(f"raw-{mode}" for mode in raw.MODES))
WARMUP_S = 1.0
DEFAULT, TUNED, BATCHED = "default", "tuned", "batched"
"""Settings of a pair. `default`: one sample per message, default sizes of messages and queues. `tuned`: larger sizes in
both programs. `batched`: ddsperf as shipped, and k8sdds-perftest with batches that fill a message."""
TUNED_QUEUE_BYTES = 512 << 10
"""Less than the subscriber's receive buffer holds: a queue of 8 MiB overflows it, and samples are sent again."""

THROUGHPUT_LINE = re.compile(r"^\[\d+\] (?P<t>[\d.]+)\s+size \d+ total (?P<total>\d+) lost (?P<lost>\d+) ")
LATENCY_LINE = re.compile(
    r"^\[\d+\] (?P<t>[\d.]+)\s+\S+ size \d+ mean .* 50% (?P<p50>[\d.]+)us 90% [\d.]+us 99% (?P<p99>[\d.]+)us"
)

EPROSIMA_LINE = re.compile(
    r"^\s*\d+,\s*\d+,\s*\d+,(?:[^,]*,){4}[^,]*,\s*(?P<lost>\d+),[^,]*,\s*(?P<rate>[\d.]+),[^,]*$"
)
EPROSIMA_PINGS = 10_000
EPROSIMA_LATENCY_LINE = re.compile(
    r"^\s*\d+,\s*(?P<pings>\d+),(?:[^,]*,){3}\s*(?P<p50>[\d.]+),\s*(?P<p90>[\d.]+),\s*(?P<p99>[\d.]+),"
)


class Failed(Exception):
    """A run failed; the message contains the reason."""


@dataclass(frozen=True)
class Run:
    """One run: program, test, payload, and one of the settings above."""

    program: str
    test: str
    payload: int
    settings: str = DEFAULT
    spins: bool = False
    """Whether both participants poll without waiting, on separate cores."""

    @property
    def item(self) -> str:
        """The name of the program among values of the same quantity."""
        return f"{self.program} spin" if self.spins else self.program

    @property
    def queue_samples(self) -> int:
        """The unacknowledged samples at which a publisher with tuned settings blocks."""
        return max(8, TUNED_QUEUE_BYTES // self.payload)


@dataclass
class Result:
    """The results of one run, and the packets and bytes per sample on the interface."""

    values: dict[str, float]
    wire: dict[str, float] = field(default_factory=dict)


def ours_result(run: Run, trial: Trial, measurement: Measurement, folder: Path) -> Result:
    """Return the result of k8sdds-perftest; raise Failed without one."""
    record = attempt.record(trial, 1, measurement, folder, {})
    if not record.valid:
        raise Failed(str(record.reason))
    if run.test == "latency":
        percentiles = (record.latency_p50_us, record.latency_p90_us, record.latency_p99_us)
        named = zip(("p50", "p90", "p99"), percentiles, strict=True)
        return Result({name: value for name, value in named if value is not None})
    sent = (record.sent or 0) / _measured_s(measurement, PUB)
    lost = {"lost_percent": record.lost_percent or 0.0}
    rate = record.samples_per_s or 0.0
    if run.program in RAW:
        values = {"rate": rate, **_cpu(measurement, sent), "sent rate": sent}
        return Result(values, _wire(measurement, sent) | lost)
    # ddsperf does not report how many samples it sent. Without losses, this is the rate of received samples.
    received = rate if trial.cell.reliability == "best-effort" else sent
    values = {"rate": rate, **_cpu(measurement, received)}
    return Result(values, _wire(measurement, received) | lost)


def ddsperf_result(run: Run, trial: Trial, measurement: Measurement, folder: Path) -> Result:
    """Return the result of ddsperf; raise Failed without one."""
    if run.test == "latency":
        lines = _lines(folder / PUB.name / "stdout", LATENCY_LINE)
        if len(lines) < 2:
            raise Failed("ddsperf reported fewer than two seconds of round trips")
        # The first second includes the start, and the last one can be incomplete.
        return Result({name: float(lines[1][name]) for name in ("p50", "p99")})
    lines = _lines(folder / SUB.name / "stdout", THROUGHPUT_LINE)
    if not lines or (int(lines[-1]["lost"]) and trial.cell.reliability == "reliable"):
        raise Failed("ddsperf lost samples" if lines else "ddsperf reported no samples")
    first = next((line for line in lines if float(line["t"]) >= WARMUP_S - 0.05), None)
    until = WARMUP_S + trial.duration_s - 0.05
    last = next((line for line in lines if float(line["t"]) >= until), None)
    if first is None or last is None or last is first:
        raise Failed("ddsperf reported too few seconds")
    received, lost = (int(last[key]) - int(first[key]) for key in ("total", "lost"))
    rate = received / (float(last["t"]) - float(first["t"]))
    values = {"rate": rate, **_cpu(measurement, rate)}
    return Result(values, _wire(measurement, rate) | {"lost_percent": 100 * lost / max(received + lost, 1)})


def output(folder: Path) -> str:
    """Return the last output of a program in one line."""
    text = (folder / "stderr").read_text(errors="replace") + (folder / "stdout").read_text(errors="replace")
    return " ".join(text.split())[-200:]


def _lines(path: Path, pattern: re.Pattern[str]) -> list[dict[str, str]]:
    matches = (pattern.match(line) for line in path.read_text(errors="replace").splitlines())
    return [match.groupdict() for match in matches if match]


def iperf3_result(folder: Path, run: Run) -> Result:
    """Return the result of iperf3; raise Failed without one."""
    data: dict[str, Any] = json.loads((folder / SUB.name / "stdout").read_text())
    if "error" in data:
        raise Failed(f"iperf3: {data['error']}")
    # The first second is the warm-up; the last interval can be a short remainder.
    sums = [interval["sum"] for interval in data["intervals"]]
    complete = [item for item in sums if item["seconds"] > 0.5][1:]
    seconds = sum(item["seconds"] for item in complete)
    if not seconds:
        raise Failed("iperf3 reported too few seconds")
    received = sum(item["bytes"] for item in complete) / run.payload
    packets = sum(item["packets"] for item in complete)
    lost = sum(item["lost_packets"] for item in complete)
    rates = {"rate": received / seconds, "sent rate": packets / seconds}
    return Result(rates, {"lost_percent": 100 * lost / packets if packets else 0.0})


def sockperf_result(folder: Path) -> Result:
    """Return the result of sockperf; raise Failed without one."""
    text = (folder / PUB.name / "stdout").read_text(errors="replace")
    found = {
        f"p{percent}": re.search(rf"percentile {percent}\.0+ =\s*([\d.]+)", text) for percent in (50, 90)
    }
    values = {name: float(match[1]) for name, match in found.items() if match}
    if not values:
        raise Failed(f"sockperf reported no percentiles: {output(folder / PUB.name)}")
    return Result(values)


def eprosima_result(folder: Path) -> Result:
    """Return the result of eProsima's ThroughputTest; raise Failed without one."""
    lines = _lines(folder / PUB.name / "stdout", EPROSIMA_LINE)
    if not lines or int(lines[-1]["lost"]):
        raise Failed("ThroughputTest lost samples" if lines else "ThroughputTest reported no result")
    return Result({"rate": float(lines[-1]["rate"])})


def eprosima_latency(folder: Path) -> Result:
    """Return the result of eProsima's LatencyTest; raise Failed without one."""
    lines = _lines(folder / PUB.name / "stdout", EPROSIMA_LATENCY_LINE)
    if not lines or int(lines[-1]["pings"]) < 0.99 * EPROSIMA_PINGS:
        raise Failed("LatencyTest lost pings" if lines else "LatencyTest reported no result")
    return Result({name: float(lines[-1][name]) for name in ("p50", "p90", "p99")})


def direct_result(run: Run, measurement: Measurement, folder: Path) -> Result:
    """Return the result of the program in benchmarks/zenoh; raise Failed without one."""
    sender: dict[str, float] = json.loads((folder / PUB.name / "stdout").read_text())
    if run.test == "latency":
        return Result({name: sender[name] for name in ("p50", "p90", "p99")})
    received = json.loads((folder / SUB.name / "stdout").read_text())["received"]
    if received != sender["sent"]:
        raise Failed(f"{received} of {sender['sent']} samples arrived")
    rate = sender["sent"] / sender["seconds"]
    return Result({"rate": rate, **_cpu(measurement, rate)}, _wire(measurement, rate) | {"lost_percent": 0.0})


def _measured_s(measurement: Measurement, participant: Participant) -> float:
    """Return the length of the measured interval; raise Failed if a participant's meters do not cover it."""
    interval = (measurement.outcomes[participant.name].meters or {}).get("interval") or {}
    if interval.get("kind") != "measured":
        raise Failed(f"the meters of {participant} do not cover the measured interval")
    return float(interval["duration_s"])


def _cpu(measurement: Measurement, rate: float) -> dict[str, float]:
    """Return the CPU time in µs per sample of both participants, and of all cores.

    That of a participant includes all softirqs that interrupted it, also those for other processes.
    """
    cpu = {}
    for participant, key in ((PUB, "publisher cpu"), (SUB, "subscriber cpu")):
        spent = (measurement.outcomes[participant.name].meters or {}).get("cpu_s")
        if spent:
            cpu[key] = 1e6 * spent / (rate * _measured_s(measurement, participant))
    busy = ((measurement.outcomes[PUB.name].meters or {}).get("machine") or {}).get("busy_s")
    if busy:
        cpu["machine cpu"] = 1e6 * busy / (rate * _measured_s(measurement, PUB))
    return cpu


def _wire(measurement: Measurement, rate: float) -> dict[str, float]:
    """Return the packets and bytes per sample that the publisher's pod sent, and the bytes per packet."""
    meters = measurement.outcomes[PUB.name].meters or {}
    counters = (meters.get("interfaces") or {}).get("eth0")
    if not counters or not counters["tx_packets"]:
        return {}
    samples = rate * _measured_s(measurement, PUB)
    return {
        "packets": counters["tx_packets"] / samples,
        "bytes": counters["tx_bytes"] / samples,
        "bytes_per_packet": counters["tx_bytes"] / counters["tx_packets"],
    }
