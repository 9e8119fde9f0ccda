"""Run one command in a session of a connection."""

from __future__ import annotations

import threading
import time
from typing import IO

import paramiko

CHUNK_BYTES = 32768
"""The largest packet that OpenSSH and paramiko send."""
READ_BYTES = 1 << 20
WINDOW_POLL_S = 0.1
SIGNALED = 255
"""Exit code of a command that a signal ended, as ssh returns it."""
THREAD_ENDS_S = 0.5
"""Time in which the thread of a lost connection ends."""


class ConnectionLost(Exception):
    """The connection ended before the command did."""


class CommandTimeout(Exception):
    """The command did not end in time."""


class _Ready:
    """Wakes up the reader when one of several streams has data. paramiko's own pipe for this can lose a wake-up."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Wake up the reader. The streams call it when they have data or end."""
        self._event.set()

    def clear(self) -> None:
        """Do nothing: a stream without data must not hide the data of the other."""

    def wait(self, timeout_s: float) -> None:
        """Wait until `set` is called."""
        self._event.wait(timeout_s)

    def reset(self) -> None:
        """Forget earlier calls of `set`, before the streams are read."""
        self._event.clear()


def execute(
    transport: paramiko.Transport, command: str, stdin: IO[bytes], timeout_s: float
) -> tuple[int, bytes, bytes]:
    """Run a command, stream its stdin, and return its exit code, stdout and stderr.

    One thread does everything, so that many machines can run commands side by side.

    Raises:
        CommandTimeout: The command did not end in time. Its session is closed, the connection remains usable.
        ConnectionLost: The connection ended.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        channel = transport.open_session()
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise ConnectionLost from error
    try:
        streams = _Streams(channel, deadline_s)
        try:
            channel.exec_command(command)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise ConnectionLost from error
        streams.send(stdin)
        streams.receive()
        return _exit_code(channel, transport), b"".join(streams.out), b"".join(streams.err)
    finally:
        channel.close()


class _Streams:
    """The streams of one command."""

    def __init__(self, channel: paramiko.Channel, deadline_s: float) -> None:
        self._channel = channel
        self._deadline_s = deadline_s
        self._ready = _Ready()
        channel.in_buffer.set_event(self._ready)
        channel.in_stderr_buffer.set_event(self._ready)
        self.out: list[bytes] = []
        self.err: list[bytes] = []

    def send(self, content: IO[bytes]) -> None:
        """Send stdin. Reads output meanwhile, because the machine may wait for that before it reads more."""
        self._channel.settimeout(WINDOW_POLL_S)
        try:
            while pending := content.read(CHUNK_BYTES):
                while pending:
                    self._read_available()
                    self._remaining_s()
                    try:
                        pending = pending[self._channel.send(pending) :]
                    except TimeoutError:
                        # The window is full.
                        continue
            self._channel.shutdown_write()
        except (OSError, EOFError):
            # The command ended without reading all of its input, or the connection is lost.
            return

    def receive(self) -> None:
        """Read output until the command has ended and nothing holds its output open."""
        while True:
            self._ready.reset()
            self._read_available()
            if self._channel.eof_received or self._channel.closed:
                break
            self._ready.wait(self._remaining_s())
        self._read_available()
        # A command may close its output before it ends.
        if not self._channel.status_event.wait(self._remaining_s()):
            raise CommandTimeout

    def _read_available(self) -> None:
        while self._channel.recv_ready():
            self.out.append(self._channel.recv(READ_BYTES))
        while self._channel.recv_stderr_ready():
            self.err.append(self._channel.recv_stderr(READ_BYTES))

    def _remaining_s(self) -> float:
        remaining_s = self._deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise CommandTimeout
        return remaining_s


def _exit_code(channel: paramiko.Channel, transport: paramiko.Transport) -> int:
    code: int = channel.recv_exit_status()
    if code >= 0:
        return code
    # Without an exit code, either a signal ended the command, or the connection is lost and its thread ends.
    transport.join(THREAD_ENDS_S)
    if not transport.is_alive():
        raise ConnectionLost
    return SIGNALED
