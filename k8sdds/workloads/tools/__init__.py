"""What tests of standard tools have in common: a client (publisher) and a server (subscriber) of a Debian package."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence

from k8sdds.model.axis import DDS, PROCESS, WORKLOAD
from k8sdds.model.measurement import Window
from k8sdds.model.reason import Reason
from k8sdds.model.trial import AXES, SUBSCRIBER, Cell, Endpoint, Participant, Role, Trial
from k8sdds.system.errors import Problem
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


class Tool(Program):
    """Programs of Debian packages."""

    packages: Mapping[str, str]
    """Program to package. `k8sdds setup` installs them for the lab, and the image of k8sdds contains them."""

    def problems(self, trials: Sequence[Trial], testbed: str) -> list[Problem]:
        """Return a problem for each program that is not installed in the lab."""
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
        """Return which setting of the cell has no effect, or None."""
        for name, default in NO_EFFECT.items():
            if name not in self.uses and getattr(cell, name) != default:
                return f"{name} has no effect in a {self.name} test: leave it out"
        return None


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
