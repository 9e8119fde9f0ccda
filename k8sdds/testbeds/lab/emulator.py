"""Run `k8sdds-link` in a lab network: it forwards the packets of impaired links in the namespace of the switch."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program
from k8sdds.system.sandbox import Sandbox

ALL_LINKS = "*"
CONFIGURATION = Path("/run/links.json")
"""Its configuration, in the sandbox."""
ANSWER_TIMEOUT_S, END_TIMEOUT_S = 60, 5
MAX_MESSAGE_BYTES = 4096
"""How much of the messages of `k8sdds-link` an error contains."""


class LinkEmulator:
    """A running `k8sdds-link`. It ends with its sandbox."""

    def __init__(self, sandbox: Sandbox, namespace: str, configuration: Mapping[str, Any]) -> None:
        """Start it, and return when it forwards packets."""
        self._name = f"{sandbox.name}: k8sdds-link"
        self.seed: int = configuration["seed"]
        self.core: int | None = configuration["cpu"] if configuration["cpu"] >= 0 else None
        """The core on which it runs; None: any."""
        self.started_us = 0
        """When the statistics began, by CLOCK_MONOTONIC."""
        self._states: list[dict[str, Any]] = []
        """All that `interrupt` changes since then."""
        program = native_program("k8sdds-link")
        sandbox.put({CONFIGURATION: json.dumps(configuration).encode()})
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        argv = [*sandbox.enter(namespace), program, str(CONFIGURATION)]
        try:
            self._process, self._commands = _started(argv, self._messages)
        except BaseException:
            self._messages.close()
            raise
        try:
            # It answers when it forwards packets.
            self.start()
            # The process is nsenter; its child is the program.
            pid = processes.descendant(self._process.pid, 1)
            if pid is None:
                raise self._failure("has ended")
        except BaseException:
            self.close(0)
            raise
        self.pid = pid

    def start(self) -> None:
        """Begin all random decisions and the statistics again, without an outage."""
        self.started_us = self._moment("start")
        self._states.clear()

    def stop(self) -> dict[str, Any]:
        """Return the statistics since `start` (docs/reference/link-emulator.md), and `outages`, all states of links."""
        statistics: dict[str, Any] = json.loads(self._ask("stop"))
        return statistics | {"outages": list(self._states)}

    def interrupt(self, node: str, state: str, at_us: int | None = None) -> int:
        """Change the state of a node's link, or of `ALL_LINKS`, at a time or now, and cancel its later changes.

        Return when it changes. Times are in µs of CLOCK_MONOTONIC. If a time has passed, all that follow are that much
        later.
        """
        changed_us = self._moment(f"outage {node} {state}" + ("" if at_us is None else f" at {at_us}"))
        since_us = changed_us - self.started_us
        while self._states and self._states[-1]["node"] == node and self._states[-1]["at_us"] >= since_us:
            self._states.pop()
        self._states.append({"node": node, "at_us": since_us, "state": state})
        return changed_us

    def close(self, timeout_s: float = END_TIMEOUT_S) -> None:
        """Release its pipes, and end it if it has not ended with its sandbox."""
        os.close(self._commands)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._messages.close()

    def _moment(self, line: str) -> int:
        """Return when a command took effect."""
        answer = self._ask(line).decode(errors="replace").strip()
        if not answer.isdecimal():
            raise PrerequisiteError(
                f"{self._name} is of another version: it answered `{line}` with {answer!r}",
                "build it again: k8sdds setup",
            )
        return int(answer)

    def _ask(self, line: str) -> bytes:
        answers = self._process.stdout
        assert answers is not None
        try:
            os.write(self._commands, f"{line}\n".encode())
        except OSError as error:
            raise self._failure("has ended") from error
        answer = answers.readline() if processes.has_output(answers.fileno(), ANSWER_TIMEOUT_S) else b""
        if not answer.endswith(b"\n"):
            raise self._failure(f"did not answer `{line}`")
        return answer

    def _failure(self, what: str) -> PrerequisiteError:
        """Return the error for a program that did not do what it was asked for. Raises PartFailed if it was killed."""
        what = what if self.started_us else "did not start"
        # The end of its output can arrive before that of the process.
        with contextlib.suppress(subprocess.TimeoutExpired):
            processes.require_not_stopped(self._process.wait(END_TIMEOUT_S), self._name)
        self._messages.seek(0)
        message = self._messages.read(MAX_MESSAGE_BYTES).decode(errors="replace").removeprefix("ready\n")
        message = " ".join(message.split()) or "no message"
        return PrerequisiteError(f"{self._name} {what}: {message}", "run: k8sdds doctor")


def _started(argv: list[str], messages: IO[bytes]) -> tuple[subprocess.Popen[bytes], int]:
    """Start a program that reads commands; return it and where to write them. `messages` gets its errors."""
    commands, write = os.pipe()
    try:
        process = subprocess.Popen(
            argv,
            stdin=commands,
            stdout=subprocess.PIPE,
            stderr=messages,
            # The program has both ends, so that it does not end with this process if the lab outlives it.
            pass_fds=(write,),
            start_new_session=True,
        )
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(commands)
    return process, write
