"""Running the participants of one attempt in a bench: all ready, then all go, then all ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from k8sdds.model.measurement import Launch, Outcome
from k8sdds.system import processes
from k8sdds.system.paths import native_program
from k8sdds.testbeds import read_meters
from k8sdds.testbeds.core_layout import Layout
from k8sdds.testbeds.lab.lab_network import LabNetwork

READY_TIMEOUT_S = 15
GRACE_S = 2
"""Between SIGTERM and SIGKILL for a participant that overstays its deadline."""

SERVICE_POLL_S = 0.01

NOT_STARTED = 125
"""Exit code of a supervisor whose barrier never opened."""


@dataclass
class Running:
    """One supervisor, with its participant in the pod."""

    launch: Launch
    process: subprocess.Popen[bytes]


def run(
    bench: LabNetwork,
    launches: Sequence[Launch],
    layout: Layout,
    cgroups: dict[str, list[Path]],
    deadline_s: float,
    at_start: Callable[[], None],
) -> dict[str, Outcome]:
    """Start all launches at one barrier and wait for their end.

    `at_start` is called when all are ready, right before the barrier opens. Whatever happens here, no
    participant outlives this call.
    """
    running: list[Running] = []
    try:
        for launch in launches:
            running.append(
                _start(bench, launch, layout, cgroups.get(launch.participant.name, []), deadline_s)
            )
        services = [one for one in running if one.launch.serves_udp]
        participants = [one for one in running if not one.launch.serves_udp]
        late = _await_ready(running) or next(filter(None, (_serve(bench, one) for one in services)), "")
        if not late:
            at_start()
            for one in participants:
                _say(one, b"go\n")
            _await_end(participants, deadline_s + GRACE_S + 5)
        # Participants first: what serves them has to be there until they have ended.
        _end(participants)
        served = {one.launch.participant for one in services if one.process.poll() is None}
        _end(services)
        outcomes = [_outcome(one, late) for one in running]
        return {
            one.participant.name: replace(one, exit_code=0) if one.participant in served and not late else one
            for one in outcomes
        }
    finally:
        _end(running)
        for one in running:
            for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
                if stream is not None:
                    stream.close()


def _start(
    bench: LabNetwork, launch: Launch, layout: Layout, cgroups: list[Path], deadline_s: float
) -> Running:
    argv = [
        *bench.enter(launch.participant.name),
        native_program("k8sdds-supervisor"), "run", "--barrier",
        "--dir", str(launch.directory), "--deadline", f"{deadline_s:.3f}", "--grace", str(GRACE_S),
        "--capabilities", "kubernetes" if bench.plan.datapath.in_pods else "keep",
    ]  # fmt: skip
    cpus = layout.cpus.get(launch.participant.name)
    if cpus:
        argv += ["--cpus", _list(cpus)]
    if layout.harness:
        argv += ["--own-cpus", _list(layout.harness)]
    for folder in cgroups:
        argv += ["--join-cgroup", str(folder)]
    for key, value in launch.env.items():
        argv += ["--env", f"{key}={value}"]
    process = subprocess.Popen(
        [*argv, "--", *launch.argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C on the terminal reaches k8sdds alone, which then ends the trial in order.
        start_new_session=True,
    )
    return Running(launch, process)


def _list(cpus: tuple[int, ...]) -> str:
    return ",".join(map(str, cpus))


def _say(one: Running, word: bytes) -> None:
    assert one.process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        one.process.stdin.write(word)
        one.process.stdin.flush()


def _await_ready(running: list[Running]) -> str:
    """Wait for every supervisor's `ready`; returns what went wrong, or an empty string."""
    poll = select.poll()
    waiting = {}
    for one in running:
        assert one.process.stdout is not None
        waiting[one.process.stdout.fileno()] = one
        poll.register(one.process.stdout.fileno(), select.POLLIN)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while waiting:
        events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not events:
            names = ", ".join(one.launch.participant.name for one in waiting.values())
            return f"not ready after {READY_TIMEOUT_S} s: {names}"
        for fd, _ in events:
            one = waiting.pop(fd)
            poll.unregister(fd)
            if not os.read(fd, 64).startswith(b"ready"):
                return f"{one.launch.participant} did not start"
    return ""


def _serve(bench: LabNetwork, one: Running) -> str:
    """Let a service start, and wait until it listens; returns what went wrong, or an empty string."""
    name, port = one.launch.participant.name, one.launch.serves_udp
    assert port is not None
    _say(one, b"go\n")
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and one.process.poll() is None:
        sockets = subprocess.run([*bench.enter(name), "cat", "/proc/net/udp"], capture_output=True, text=True)
        if f":{port:04X} " in sockets.stdout:
            return ""
        time.sleep(SERVICE_POLL_S)
    return f"{name} does not listen on UDP port {port}: {_last_words(one.launch.directory / 'stderr')}"


def _last_words(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()[-300:] or "it said nothing"
    return "it did not start"


def _await_end(running: list[Running], timeout_s: float) -> None:
    """Sleep until all supervisors have ended; a blocking poll, so that nothing of ours runs meanwhile."""
    poll = select.poll()
    handles = {}
    for one in running:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(one.process.pid)
            handles[handle] = one
            poll.register(handle, select.POLLIN)
    deadline = time.monotonic() + timeout_s
    waiting = dict(handles)
    try:
        while waiting:
            events = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not events:
                break
            for handle, _ in events:
                poll.unregister(handle)
                waiting.pop(handle)
    finally:
        for handle in handles:
            os.close(handle)


def _outcome(one: Running, late: str) -> Outcome:
    assert one.process.stderr is not None
    message = late or one.process.stderr.read(4096).decode(errors="replace").strip()
    code = one.process.returncode
    return Outcome(
        participant=one.launch.participant,
        exit_code=NOT_STARTED if late else (128 - code if code < 0 else code),
        meters=read_meters(one.launch.directory),
        message=message,
    )


def _end(running: list[Running]) -> None:
    """End supervisors that still run: first in order and all together, so that their meters are written,
    then at once."""
    signalled = [_ask_to_end(one) for one in running if one.process.poll() is None]
    deadline = time.monotonic() + GRACE_S + 1
    for supervisor, started in filter(None, signalled):
        if not processes.wait_gone(supervisor, max(0.0, deadline - time.monotonic())):
            processes.kill(supervisor, started)
    for one in running:
        if one.process.poll() is None and not processes.wait_gone(one.process.pid, GRACE_S):
            one.process.kill()
        one.process.wait()


def _ask_to_end(one: Running) -> tuple[int, int | None] | None:
    assert one.process.stdin is not None
    with contextlib.suppress(OSError):
        one.process.stdin.close()  # before `go`, the end of its input ends the supervisor
    # nsenter's child in the pod is the supervisor itself.
    supervisor = processes.descendant(one.process.pid, 1)
    if supervisor is None:
        return None
    started = processes.start_time(supervisor)
    processes.kill(supervisor, started, signal.SIGTERM)
    return supervisor, started
