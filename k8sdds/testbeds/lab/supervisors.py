"""Start and stop the supervisors of one attempt in a lab network. Each runs one participant in its pod."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from k8sdds.model.measurement import Launch
from k8sdds.results import arrivals
from k8sdds.system import processes
from k8sdds.system.cgroups import admits_realtime
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program
from k8sdds.testbeds import listening
from k8sdds.testbeds.core_layout import Layout
from k8sdds.testbeds.lab.lab_network import LabNetwork

READY_TIMEOUT_S = 15
GRACE_S = 2
"""Time between SIGTERM and SIGKILL for a participant that exceeds its deadline."""

SERVICE_POLL_S = 0.01

START = b"go\n"
"""Opens a supervisor's barrier."""
KILL = b"kill\n"
"""Lets a supervisor end its participant like a crash, after the participant has saved what it has measured."""
KILL_TIMEOUT_S = GRACE_S + 5

MAX_LOG_CHARACTERS = 300
"""How much of a service's log an error message contains."""


@dataclass
class Supervisor:
    """A supervisor process, which runs one participant in its pod."""

    launch: Launch
    process: subprocess.Popen[bytes]
    is_away: bool = False
    """Whether an outage has killed it, and not yet started it again."""

    @property
    def name(self) -> str:
        """Name of its participant."""
        return self.launch.participant.name

    def open_barrier(self) -> None:
        """Let the participant start."""
        self._write(START)

    def kill(self) -> None:
        """Kill the participant, and wait until the supervisor has ended. Raises PrerequisiteError if it does not."""
        self.is_away = True
        self._write(KILL)
        try:
            self.process.wait(KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise PrerequisiteError(
                f"{self.name} did not end within {KILL_TIMEOUT_S} s of being killed"
            ) from None

    def close(self) -> None:
        """Close the pipes of a supervisor that has ended."""
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                # A supervisor that was killed before the barrier opened has not read what closing writes again.
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def message(self) -> str:
        """Return the stderr of a supervisor that has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read(4096).decode(errors="replace").strip()

    def _write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line)
            self.process.stdin.flush()


class Attempt:
    """The supervisors of an attempt, of which an outage kills one and starts it again.

    `start` starts a supervisor for a launch in a pod.
    """

    def __init__(
        self,
        lab_network: LabNetwork,
        supervisors: Sequence[Supervisor],
        start: Callable[[Launch, str], Supervisor],
    ) -> None:
        self._lab_network, self._start = lab_network, start
        self._supervisors = {supervisor.name: supervisor for supervisor in supervisors}

    def kill(self, name: str) -> None:
        """Kill a participant or service. Raises PrerequisiteError if it does not end."""
        self._supervisors[name].kill()

    def start_again(self, name: str, pod: str) -> None:
        """Start a participant or service that was killed in a pod; return when it starts, or a service listens.

        Raises:
            PrerequisiteError: It does not.
            PartFailed: It was killed.
        """
        supervisor = self._supervisors[name]
        supervisor.close()
        arrivals.set_aside(supervisor.launch.directory)
        launch = replace(supervisor.launch, argv=(*supervisor.launch.argv, *supervisor.launch.restarted))
        supervisor.process = self._start(launch, pod).process
        failure = await_ready([supervisor])
        if not failure and supervisor.launch.listens:
            failure = start_service(self._lab_network, supervisor)
        elif not failure:
            supervisor.open_barrier()
        if failure:
            raise PrerequisiteError(f"after the outage: {failure}")
        supervisor.is_away = False


def start(
    lab_network: LabNetwork,
    launch: Launch,
    pod: str,
    layout: Layout,
    cgroups: list[Path],
    deadline_s: float,
    reports_start: bool = False,
) -> Supervisor:
    """Start the supervisor of a launch in a pod; the participant waits at its barrier."""
    argv = [
        *lab_network.enter(pod),
        native_program("k8sdds-supervisor"), "run", "--barrier",
        "--dir", str(launch.directory), "--deadline", f"{deadline_s:.3f}", "--grace", str(GRACE_S),
        "--capabilities", "kubernetes" if lab_network.plan.datapath.in_pods else "keep",
    ]  # fmt: skip
    cpus = layout.cpus.get(launch.participant.name)
    if cpus:
        argv += ["--cpus", _cpu_list(cpus)]
    if layout.harness:
        argv += ["--own-cpus", _cpu_list(layout.harness)]
    for folder in cgroups:
        if not launch.realtime_priority or admits_realtime(folder):
            argv += ["--join-cgroup", str(folder)]
    argv += launch.supervisor_options
    argv += ["--report-start"] if reports_start else []
    for key, value in launch.env.items():
        argv += ["--env", f"{key}={value}"]
    process = subprocess.Popen(
        [*argv, "--", *launch.argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A separate session, so that Ctrl-C reaches only k8sdds, which then stops the attempt cleanly.
        start_new_session=True,
    )
    return Supervisor(launch, process)


def _cpu_list(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))


def await_ready(supervisors: Sequence[Supervisor]) -> str:
    """Wait until every supervisor reports `ready`; return an error message, or an empty string.

    Raises:
        PartFailed: A supervisor was killed.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    for supervisor in supervisors:
        assert supervisor.process.stdout is not None
        if not processes.has_output(supervisor.process.stdout, deadline - time.monotonic()):
            return f"not ready after {READY_TIMEOUT_S} s: {supervisor.name}"
        if not os.read(supervisor.process.stdout.fileno(), 64).startswith(b"ready"):
            message = supervisor.message()
            processes.require_not_killed(supervisor.process.wait(), f"the supervisor of {supervisor.name}")
            return f"{supervisor.name} did not start: {message}"
    return ""


def start_service(lab_network: LabNetwork, service: Supervisor) -> str:
    """Start a service and wait until it listens; return an error message, or an empty string.

    Raises:
        PartFailed: The service was killed.
    """
    listener = service.launch.listens
    assert listener is not None
    service.open_barrier()
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and service.process.poll() is None:
        sockets = subprocess.run(
            [*lab_network.enter(service.name), *listening.tables(listener)], capture_output=True, text=True
        )
        if listening.is_listening(listener, sockets.stdout):
            return ""
        time.sleep(SERVICE_POLL_S)
    if service.process.poll() is not None:
        processes.require_not_stopped(service.process.returncode, service.name)
    log = _end_of_log(service.launch.directory / "stderr")
    return f"{service.name} does not listen on {listener}: {log}"


def _end_of_log(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()[-MAX_LOG_CHARACTERS:] or "no message"
    return "it did not start"
