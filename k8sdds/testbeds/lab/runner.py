"""Run the participants of one attempt in a lab network.

All supervisors get ready, start their participants at one barrier, and are awaited until they end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from k8sdds.model.measurement import Launch, Outcome
from k8sdds.model.trial import FIRST_PUBLISHER
from k8sdds.perftest.output import DEADLINE, NOT_STARTED, PEER_LOST
from k8sdds.system import processes
from k8sdds.system.cgroups import admits_realtime
from k8sdds.system.paths import native_program
from k8sdds.testbeds import listening, read_meters
from k8sdds.testbeds.core_layout import Layout
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.outage import LinkOutages

READY_TIMEOUT_S = 15
GRACE_S = 2
"""Time between SIGTERM and SIGKILL for a participant that exceeds its deadline."""

SERVICE_POLL_S = 0.01
END_POLL_S = 0.1

START = b"go\n"
"""Opens a supervisor's barrier."""
MEASURED = b"measured\n"
"""What the supervisor of the first publisher prints when its measured interval begins."""

MAX_LOG_CHARACTERS = 300
"""How much of a service's log an error message contains."""


@dataclass
class Supervisor:
    """A supervisor process, which runs one participant in its pod."""

    launch: Launch
    process: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        """Name of its participant."""
        return self.launch.participant.name

    def open_barrier(self) -> None:
        """Let the participant start."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(START)
            self.process.stdin.flush()


def run(
    lab_network: LabNetwork,
    launches: Sequence[Launch],
    layout: Layout,
    cgroups: dict[str, list[Path]],
    deadline_s: float,
    at_start: Callable[[], None],
    outage: LinkOutages | None = None,
) -> dict[str, Outcome]:
    """Start all launches at one barrier and wait until they end, or until one of the participants was killed.

    No participant outlives this call, even if it raises.

    Args:
        lab_network: Where the participants run.
        launches: The participants and services.
        layout: Cores of the participants.
        cgroups: Participant to the cgroup folders that it joins.
        deadline_s: Limit of the participants' run time.
        at_start: Called when all supervisors are ready, right before the barrier opens.
        outage: What fails from when the first publisher's measured interval begins.

    Returns:
        The outcomes by participant. A service that runs until the participants end has exit code 0.

    Raises:
        PartFailed: A supervisor or service was killed before the participants started.
    """
    supervisors: list[Supervisor] = []
    try:
        for launch in launches:
            folders = cgroups.get(launch.participant.name, [])
            reports_start = outage is not None and launch.participant == FIRST_PUBLISHER
            supervisors.append(_start(lab_network, launch, layout, folders, deadline_s, reports_start))
        return _attend(lab_network, supervisors, deadline_s, at_start, outage)
    finally:
        _end(supervisors)
        for supervisor in supervisors:
            process = supervisor.process
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    # A supervisor that was killed before the barrier opened has not read what closing writes again.
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()


def _attend(
    lab_network: LabNetwork,
    supervisors: Sequence[Supervisor],
    deadline_s: float,
    at_start: Callable[[], None],
    outage: LinkOutages | None,
) -> dict[str, Outcome]:
    """Start services, then all participants at once; return the outcomes when they have ended. Raises like `run`."""
    services = [supervisor for supervisor in supervisors if supervisor.launch.listens]
    participants = [supervisor for supervisor in supervisors if not supervisor.launch.listens]
    failure = _await_ready(supervisors) or next(
        filter(None, (_start_service(lab_network, service) for service in services)), ""
    )
    if not failure:
        at_start()
        # A service that has started measures from now on.
        with _running(outage, participants):
            for supervisor in supervisors:
                supervisor.open_barrier()
            _await_end(participants, deadline_s + GRACE_S + 5)
    # The peers of a killed participant would wait for it until their timeouts.
    ended_as = PEER_LOST if any(map(_was_killed, participants)) else DEADLINE
    ended_here = [participant.name for participant in participants if participant.process.poll() is None]
    # Services must run until all participants have ended.
    _end(participants)
    served = {service.name for service in services if service.process.poll() is None}
    _end(services)
    outcomes = {supervisor.name: _outcome(supervisor, failure) for supervisor in supervisors}
    if failure:
        return outcomes
    # Where this function has ended a process, its exit code does not show why.
    outcomes |= {name: replace(outcomes[name], exit_code=ended_as) for name in ended_here}
    outcomes |= {name: replace(outcomes[name], exit_code=0) for name in served}
    for service in services:
        if service.name not in served and processes.was_stopped(service.process.returncode):
            outcomes[service.name] = replace(outcomes[service.name], lost="it was stopped")
    return outcomes


def _start(
    lab_network: LabNetwork,
    launch: Launch,
    layout: Layout,
    cgroups: list[Path],
    deadline_s: float,
    reports_start: bool,
) -> Supervisor:
    argv = [
        *lab_network.enter(launch.participant.name),
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


@contextlib.contextmanager
def _running(outage: LinkOutages | None, supervisors: Sequence[Supervisor]) -> Iterator[None]:
    """Run an outage within a `with` block, in a thread that ends with the block.

    Raises:
        PrerequisiteError: The link could not be interrupted.
        PartFailed: What interrupts it was killed.
    """
    if outage is None:
        yield
        return
    first = next(each for each in supervisors if each.launch.participant == FIRST_PUBLISHER)
    ended = threading.Event()

    def run() -> None:
        assert first.process.stdout is not None
        while not ended.is_set():
            if processes.has_output(first.process.stdout, END_POLL_S):
                if os.read(first.process.stdout.fileno(), 64) == MEASURED:
                    outage.run(ended.wait)
                return

    with ThreadPoolExecutor(1) as pool:
        try:
            running = pool.submit(run)
            yield
        finally:
            ended.set()
        running.result()


def _cpu_list(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))


def _await_ready(supervisors: Sequence[Supervisor]) -> str:
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
            message = _message(supervisor)
            processes.require_not_killed(supervisor.process.wait(), f"the supervisor of {supervisor.name}")
            return f"{supervisor.name} did not start: {message}"
    return ""


def _message(supervisor: Supervisor) -> str:
    """Return the stderr of a supervisor that has ended."""
    assert supervisor.process.stderr is not None
    return supervisor.process.stderr.read(4096).decode(errors="replace").strip()


def _start_service(lab_network: LabNetwork, service: Supervisor) -> str:
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


def _await_end(supervisors: Sequence[Supervisor], timeout_s: float) -> None:
    """Wait until all supervisors have ended or one was killed, in a blocking poll, which uses no CPU."""
    poll = select.poll()
    running: dict[int, Supervisor] = {}
    for supervisor in supervisors:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(supervisor.process.pid)
            running[handle] = supervisor
            poll.register(handle, select.POLLIN)
    deadline = time.monotonic() + timeout_s
    try:
        while running and not any(map(_was_killed, supervisors)):
            events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not events:
                break
            for handle, _ in events:
                poll.unregister(handle)
                os.close(handle)
                del running[handle]
    finally:
        for handle in running:
            os.close(handle)


def _was_killed(supervisor: Supervisor) -> bool:
    """Return whether a supervisor or its participant was killed."""
    code = supervisor.process.poll()
    return code is not None and processes.was_killed(code)


def _outcome(supervisor: Supervisor, failure: str) -> Outcome:
    message = failure or _message(supervisor)
    code = supervisor.process.returncode
    return Outcome(
        participant=supervisor.launch.participant,
        exit_code=NOT_STARTED if failure else (128 - code if code < 0 else code),
        meters=read_meters(supervisor.launch.directory),
        message=message,
    )


def _end(supervisors: Sequence[Supervisor]) -> None:
    """End supervisors that still run: with SIGTERM, so that they write their meters, then with SIGKILL."""
    signalled = [_terminate(supervisor) for supervisor in supervisors if supervisor.process.poll() is None]
    deadline = time.monotonic() + GRACE_S + 1
    for pid, started in filter(None, signalled):
        if not processes.wait_gone(pid, max(0.0, deadline - time.monotonic())):
            processes.kill(pid, started)
    for supervisor in supervisors:
        process = supervisor.process
        if process.poll() is None and not processes.wait_gone(process.pid, GRACE_S):
            process.kill()
        process.wait()


def _terminate(supervisor: Supervisor) -> tuple[int, int | None] | None:
    """Send SIGTERM to a supervisor; return its (process id, start time), or None if it has ended."""
    assert supervisor.process.stdin is not None
    with contextlib.suppress(OSError):
        supervisor.process.stdin.close()  # ends a supervisor that still waits at its barrier
    # The process is nsenter; its child in the pod is the supervisor.
    pid = processes.descendant(supervisor.process.pid, 1)
    if pid is None:
        return None
    started = processes.start_time(pid)
    processes.kill(pid, started, signal.SIGTERM)
    return pid, started
