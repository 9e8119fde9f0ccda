"""Identify processes by id and start time, and send signals to exactly those."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from k8sdds.system.errors import PartFailed

KILLING_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
"""Signals that others send to end a process. A program that fails ends by others, such as SIGSEGV."""
UNSHARE = ("env", "LC_ALL=C", "unshare")
"""unshare, without a translation of its messages."""
UNSHARED_KILLED = "sigprocmask unblock failed"
"""What unshare of util-linux 2.38 prints if its command was killed by SIGKILL, which it cannot unblock to end likewise.
Its exit code is 1, as if it had failed itself."""


def start_time(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it has ended or is a zombie.

    Id and start time together identify a process, because the kernel reuses ids.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name is in parentheses and may contain any character, parentheses included.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def has_output(stream: IO[Any] | int, timeout_s: float) -> bool:
    """Wait until a pipe can be read without waiting: there is output, or its writers have closed it."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))


def is_alive(pid: int, started: int | None) -> bool:
    """Return whether the process with this id and start time still runs."""
    return started is not None and start_time(pid) == started


def pid_namespace(pid: int) -> str | None:
    """Return the identity of the PID namespace of a process, or None if the process has ended or is another user's."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return _children_by_scan(pid)
    return [int(child) for child in text.split()]


def _children_by_scan(pid: int) -> list[int]:
    # Kernels without CONFIG_PROC_CHILDREN.
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) == pid:
                    pids.append(int(entry.name))
    return pids


def descendant(pid: int, generations: int) -> int | None:
    """Return the first child of the first child … of a process; None if there is none yet."""
    for _ in range(generations):
        below = children(pid)
        if not below:
            return None
        pid = below[0]
    return pid


def kill(pid: int, started: int | None, number: int = signal.SIGKILL) -> bool:
    """Send a signal to the process with this id and start time; return False if it has ended."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Checked after the pidfd is open, so that the signal cannot reach a later process with the same id.
        if not is_alive(pid, started):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def was_killed(exit_code: int) -> bool:
    """Return whether a process ended by a signal from another process. A shell and nsenter report 128 + signal."""
    return (-exit_code if exit_code < 0 else exit_code - 128) in KILLING_SIGNALS


def was_stopped(exit_code: int) -> bool:
    """Return whether another process ended a process that runs until it is stopped, such as a daemon."""
    return exit_code == 0 or was_killed(exit_code)


def require_not_killed(exit_code: int, what: str) -> None:
    """Raise PartFailed if a process that has ended was killed."""
    if was_killed(exit_code):
        raise PartFailed(f"{what} was killed")


def require_not_stopped(exit_code: int, what: str) -> None:
    """Raise PartFailed if another process ended a process that runs until it is stopped."""
    if was_stopped(exit_code):
        raise PartFailed(f"{what} was stopped")


def require_unshare_not_stopped(unshare: subprocess.Popen[bytes], what: str, timeout_s: float) -> str:
    """Raise PartFailed if another process ended the command of `unshare --fork`; otherwise return what it printed."""
    require_not_stopped(unshare.wait(timeout_s), what)
    assert unshare.stderr is not None
    # The command can outlive it and hold the other end.
    os.set_blocking(unshare.stderr.fileno(), False)
    message = " ".join((unshare.stderr.read() or b"").decode(errors="replace").split())
    if UNSHARED_KILLED in message:
        raise PartFailed(f"{what} was stopped")
    return message or "no message"


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Wait until a process has ended; return whether it has. It need not be a child of this process."""
    return wait_any_gone([pid], timeout_s)


def wait_any_gone(pids: Iterable[int], timeout_s: float) -> bool:
    """Wait until one of these processes has ended; return whether one has."""
    poll = select.poll()
    with contextlib.ExitStack() as handles:
        for pid in pids:
            try:
                handle = os.pidfd_open(pid)
            except OSError:
                return True
            handles.callback(os.close, handle)
            poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
