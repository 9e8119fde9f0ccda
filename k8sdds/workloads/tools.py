"""What tests of standard tools have in common: a client (publisher) and a server (subscriber) of a Debian package."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence

from k8sdds.model.axis import DDS, PROCESS, WORKLOAD
from k8sdds.model.measurement import Window
from k8sdds.model.reason import Reason
from k8sdds.model.trial import AXES, PUBLISHER, SUBSCRIBER, Cell, Endpoint, Participant, Role, Trial
from k8sdds.results import histograms
from k8sdds.results.metrics import Metrics
from k8sdds.system.errors import Problem
from k8sdds.system.numbers import number
from k8sdds.workloads import latencies
from k8sdds.workloads.outputs import TrialOutputs
from k8sdds.workloads.program import Program, Surroundings
from k8sdds.workloads.protocol import Workload

SERVER = Participant(SUBSCRIBER)
"""The participant that runs the server."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the supervisor finds programs."""

NO_EFFECT = {
    name: axis.default
    for name, axis in AXES.items()
    if axis.key and axis.scope in (DDS, PROCESS, WORKLOAD) and name not in ("test", "payload_bytes")
} | {"capture": False}
"""Settings of a cell that tools do not have, unless a test names them in `uses`, with their defaults."""

INTERVAL_TOLERANCE = 0.1
"""Fraction by which the measured interval may differ from the requested one."""

ROUND_TRIP = "round_trip"
"""Tag of the round trips in the log."""

ROUND_TRIPS = (
    "round_trip_mean_us", "round_trip_p50_us", "round_trip_p90_us", "round_trip_p99_us", "round_trip_p999_us",
    "round_trip_p9999_us", "round_trip_max_us",
)  # fmt: skip
"""The metrics of round trips."""


class Tool(Program):
    """Programs of Debian packages."""

    packages: Mapping[str, str]
    """Program to package. `k8sdds setup` installs them for the lab, and the image of k8sdds contains them."""

    def problems(self, trials: Sequence[Trial], testbed: str) -> list[Problem]:
        missing = [name for name in self.packages if testbed == "lab" and not shutil.which(name, path=PATH)]
        return [
            Problem(
                f"test {trials[0].cell.test} needs {name} (package {self.packages[name]}), which is not installed",
                "run: k8sdds setup",
            )
            for name in missing
        ]


class ToolWorkload(Workload):
    """A test of a tool, between one client and one server."""

    measured_by: Role = SUBSCRIBER
    program: Program
    uses: tuple[str, ...] = ()
    """Settings among `NO_EFFECT` that this test has."""

    def unsupported(self, cell: Cell) -> str | None:
        for name, default in NO_EFFECT.items():
            if name not in self.uses and getattr(cell, name) != default:
                return f"{name} has no effect in a {self.name} test: leave it out"
        return None


class RoundTripWorkload(ToolWorkload):
    """A test whose program keeps a histogram of the round trips of its requests."""

    measured_by: Role = PUBLISHER
    histograms: tuple[str, ...] = (ROUND_TRIP,)
    columns: tuple[str, ...] = ("round_trip_count",)

    def measure(self, record: Metrics, outputs: TrialOutputs) -> None:
        timed = outputs.latencies.get(ROUND_TRIP)
        if timed is not None:
            values, missing = histograms.quantities_us(timed), latencies.unanswered_percent(outputs)
            # Only our own program logs episodes: others print values without their order.
            episodes = histograms.episodes(outputs.folder, [ROUND_TRIP], values)
            latencies.set_percentiles(record, ROUND_TRIP, timed.total, values, missing, episodes)

    def describe(self, record: Metrics) -> str:
        unit, rate = self.metrics[0].removesuffix("_per_s"), getattr(record, self.metrics[0])
        if rate is None:
            return f"{unit} unknown"
        p99 = record.round_trip_p99_us
        return f"{number(rate)} {unit}/s" + (f", p99 {number(p99)} µs" if p99 is not None else "")


def missing_round_trips(outputs: TrialOutputs, expected: int) -> Reason | None:
    """Return a reason if the histogram does not have exactly one round trip for each request, or None."""
    timed = outputs.latencies.get(ROUND_TRIP)
    kept = timed.total if timed else 0
    if kept == expected:
        return None
    return Reason("histogram", f"it has {kept} round trips of {expected} requests")


def server_of(surroundings: Surroundings) -> Endpoint:
    """Return the endpoint of the server."""
    return surroundings.endpoints[SERVER.name]


def whole_seconds(trial: Trial) -> tuple[int, int]:
    """Return (warm-up, measured interval) in whole seconds, rounded up: tools accept nothing else."""
    return math.ceil(trial.warmup_s), max(1, math.ceil(trial.duration_s))


def window(trial: Trial) -> Window:
    """Return when the meters are read during a tool that measures whole seconds."""
    warmup_s, length_s = whole_seconds(trial)
    return Window(warmup_s, length_s)


def wrong_interval(
    participant: Participant, measured_s: float | None, requested_s: float, late_s: float = 0
) -> Reason | None:
    """Return a reason if another interval than requested was measured, or None. The tool may end `late_s` late."""
    measured_s = measured_s or 0
    tolerance_s = INTERVAL_TOLERANCE * requested_s
    if -tolerance_s <= measured_s - requested_s <= tolerance_s + late_s:
        return None
    return Reason("interval", f"{participant} measured {measured_s:.3g} s of {requested_s:g} s")
