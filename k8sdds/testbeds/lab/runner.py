"""Run the participants of one attempt in a lab network.

All supervisors get ready, start their participants at one barrier, and are awaited until they end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from k8sdds.model.measurement import Launch, Outcome
from k8sdds.model.trial import FIRST_PUBLISHER
from k8sdds.perftest.output import DEADLINE, NOT_STARTED, PEER_LOST
from k8sdds.system import processes
from k8sdds.testbeds import read_meters
from k8sdds.testbeds.core_layout import Layout
from k8sdds.testbeds.lab.failures import Interrupter
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.supervisors import GRACE_S, Attempt, Supervisor, await_ready, start, start_service

END_POLL_S = 0.1

MEASURED = b"measured\n"
"""What the supervisor of the first publisher prints when its measured interval begins."""


def run(
    lab_network: LabNetwork,
    launches: Sequence[Launch],
    layout: Layout,
    cgroups: dict[str, list[Path]],
    deadline_s: float,
    at_start: Callable[[], None],
    outage: Interrupter | None = None,
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

    def started(launch: Launch, pod: str, reports_start: bool = False) -> Supervisor:
        return start(lab_network, launch, pod, layout, cgroups.get(pod, []), deadline_s, reports_start)

    supervisors: list[Supervisor] = []
    try:
        for launch in launches:
            reports_start = outage is not None and launch.participant == FIRST_PUBLISHER
            supervisors.append(started(launch, launch.participant.name, reports_start))
        attempt = Attempt(lab_network, supervisors, started)
        failing = _running(outage, attempt, supervisors)
        return _attend(lab_network, supervisors, deadline_s, at_start, failing)
    finally:
        _end(supervisors)
        for supervisor in supervisors:
            supervisor.close()


def _attend(
    lab_network: LabNetwork,
    supervisors: Sequence[Supervisor],
    deadline_s: float,
    at_start: Callable[[], None],
    failing: contextlib.AbstractContextManager[None],
) -> dict[str, Outcome]:
    """Start services, then all participants at once; return the outcomes when they have ended. Raises like `run`.

    `failing` is what an outage runs in meanwhile.
    """
    services = [supervisor for supervisor in supervisors if supervisor.launch.listens]
    participants = [supervisor for supervisor in supervisors if not supervisor.launch.listens]
    failure = await_ready(supervisors) or next(
        filter(None, (start_service(lab_network, service) for service in services)), ""
    )
    if not failure:
        at_start()
        # A service that has started measures from now on.
        with failing:
            for supervisor in supervisors:
                supervisor.open_barrier()
            _await_end(participants, deadline_s + GRACE_S + 5)
    # The peers of a killed participant would wait for it until their timeouts.
    ended_as = PEER_LOST if any(map(_was_killed, participants)) else DEADLINE
    ended_here = [each.name for each in participants if each.is_away or each.process.poll() is None]
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
        if (
            service.name not in served
            and not service.is_away
            and processes.was_stopped(service.process.returncode)
        ):
            outcomes[service.name] = replace(outcomes[service.name], lost="it was stopped")
    return outcomes


@contextlib.contextmanager
def _running(
    outage: Interrupter | None, attempt: Attempt, supervisors: Sequence[Supervisor]
) -> Iterator[None]:
    """Run an outage within a `with` block, in a thread that ends with the block.

    Raises:
        PrerequisiteError: Something could not be ended, or not be started again.
        PartFailed: A part was killed that is needed for it.
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
                    outage.run(ended.wait, attempt)
                return

    with ThreadPoolExecutor(1) as pool:
        try:
            running = pool.submit(run)
            yield
        finally:
            ended.set()
        running.result()


def _await_end(supervisors: Sequence[Supervisor], timeout_s: float) -> None:
    """Wait until all supervisors have ended or one was killed, in blocking polls, which use no CPU."""
    deadline = time.monotonic() + timeout_s
    while not any(map(_was_killed, supervisors)):
        # One that an outage kills is another process afterwards.
        running = [each.process.pid for each in supervisors if each.process.poll() is None]
        if not running or not processes.wait_any_gone(running, max(0.0, deadline - time.monotonic())):
            return


def _was_killed(supervisor: Supervisor) -> bool:
    """Return whether a supervisor or its participant was killed, except by an outage."""
    code = supervisor.process.poll()
    return code is not None and processes.was_killed(code) and not supervisor.is_away


def _outcome(supervisor: Supervisor, failure: str) -> Outcome:
    message = failure or supervisor.message()
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
