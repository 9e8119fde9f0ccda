"""Wait for the supervisors of one attempt in a lab network, and end them. Each runs one participant in its pod."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from k8sdds.model.measurement import GRACE_S, Launch, Outcome
from k8sdds.perftest.output import NOT_STARTED
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds import read_meters

READY_TIMEOUT_S = 15

START = b"go\n"
"""Opens a supervisor's barrier."""
KILL = b"kill\n"
"""Lets a supervisor end its participant like a crash, after the participant has saved what it has measured."""
KILL_TIMEOUT_S = GRACE_S + 5


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
        """Kill the participant, and wait until the supervisor has ended."""
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

    @property
    def was_killed(self) -> bool:
        """Whether it or its participant was killed, except by an outage."""
        code = self.process.poll()
        return code is not None and processes.was_killed(code) and not self.is_away

    def terminate(self) -> tuple[int, int | None] | None:
        """Send it SIGTERM; return its (process id, start time), or None if it has ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # ends a supervisor that still waits at its barrier
        # The process is nsenter; its child in the pod is the supervisor.
        pid = processes.descendant(self.process.pid, 1)
        if pid is None:
            return None
        started = processes.start_time(pid)
        processes.kill(pid, started, signal.SIGTERM)
        return pid, started

    def outcome(self, failure: str) -> Outcome:
        """Return how its participant ended, or why it did not start."""
        code = self.process.returncode
        return Outcome(
            participant=self.launch.participant,
            exit_code=NOT_STARTED if failure else (128 - code if code < 0 else code),
            meters=read_meters(self.launch.directory),
            message=failure or self.message(),
        )

    def _write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line)
            self.process.stdin.flush()


def await_ready(supervisors: Sequence[Supervisor]) -> str:
    """Wait until every supervisor reports `ready`; return an error message, or an empty string."""
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


def await_end(supervisors: Sequence[Supervisor], timeout_s: float) -> None:
    """Wait until all supervisors have ended or one was killed, in blocking polls, which use no CPU."""
    deadline = time.monotonic() + timeout_s
    while True:
        # Read before the exit codes: one that ends in between is gone when it is waited for. One that an outage kills
        # is another process afterwards.
        running = [each.process.pid for each in supervisors if each.process.poll() is None]
        if not running or any(each.was_killed for each in supervisors):
            return
        if not processes.wait_any_gone(running, max(0.0, deadline - time.monotonic())):
            return


def end(supervisors: Collection[Supervisor]) -> None:
    """End supervisors that still run: with SIGTERM, so that they write their meters, then with SIGKILL."""
    signalled = [supervisor.terminate() for supervisor in supervisors if supervisor.process.poll() is None]
    deadline = time.monotonic() + GRACE_S + 1
    for pid, started in filter(None, signalled):
        if not processes.wait_gone(pid, max(0.0, deadline - time.monotonic())):
            processes.kill(pid, started)
    for supervisor in supervisors:
        process = supervisor.process
        if process.poll() is None and not processes.wait_gone(process.pid, GRACE_S):
            process.kill()
        process.wait()
