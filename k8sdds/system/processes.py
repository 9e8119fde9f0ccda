"""Processes by id: who still lives, who is whose child, and ending exactly those that are ours."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path


def start_time(pid: int) -> int | None:
    """Start of a process in clock ticks since boot, which tells it from a later one of the same id.

    None if there is no such process, or only its zombie.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold anything, parentheses included.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def is_alive(pid: int, started: int | None) -> bool:
    """Whether the very process of this id and start time still runs."""
    return started is not None and start_time(pid) == started


def children(pid: int) -> list[int]:
    """Ids of the children of a process."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return _children_by_scan(pid)
    return [int(word) for word in text.split()]


def _children_by_scan(pid: int) -> list[int]:
    # Kernels without CONFIG_PROC_CHILDREN.
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                if int(stat.rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def descendant(pid: int, generations: int) -> int | None:
    """The only child of the only child …, or None while that generation is not there."""
    for _ in range(generations):
        below = children(pid)
        if not below:
            return None
        pid = below[0]
    return pid


def kill(pid: int, started: int | None, number: int = signal.SIGKILL) -> bool:
    """Send a signal to exactly this process; False if it is gone."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        # Read after the pidfd is open: the id cannot pass to another process unnoticed any more.
        if not is_alive(pid, started):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def wait_gone(pid: int, timeout_s: float) -> bool:
    """Wait until a process has ended, not necessarily ours; True if it has."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(handle)
