"""Decide whether a reader handled a damaged input: a documented exit code, bounded time and memory, nothing written."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow

from k8sdds.system.errors import EXIT_CODES, INTERNAL_ERROR, K8sddsError

CPU_S = 10
"""Processor time of one input. The slowest takes 1 s on a Raspberry Pi 4."""
MEMORY_BYTES = 1024**3
"""What one input may allocate in addition to what the tests use. The analysis requires as much (system/memory.py)."""

# At its first allocation, pyarrow reserves 1 GiB of addresses, which no input uses.
pyarrow.array([""])

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGING = (
    "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.rmtree",
    "subprocess.Popen", "os.system", "os.exec", "socket.connect",
)  # fmt: skip
_allowed: Path | None = None
_violations: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _allowed is None:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else flags & _WRITING
        if not writes:
            return
    elif event in _CHANGING:
        path = arguments[0]
    else:
        return
    if not (isinstance(path, str | bytes | os.PathLike) and Path(os.fsdecode(path)).is_relative_to(_allowed)):
        _violations.append(f"{event} {path!r}")


sys.addaudithook(_watch)


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Fail if the block writes outside of a folder, starts a program or opens a connection."""
    global _allowed
    _violations.clear()
    _allowed = folder
    # Python would write the bytecode of modules that a reader imports.
    writes_bytecode, sys.dont_write_bytecode = not sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = not writes_bytecode
        _allowed = None
    assert not _violations, _violations


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Fail if the block takes too much processor time or memory."""

    def too_slow(*_: object) -> None:
        raise AssertionError(f"more than {CPU_S} s of processor time")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, too_slow)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def judge(read: Callable[[], object], folder: Path) -> str:
    """Run a reader; return `read`, or the name of the documented error. Every other exception is a failure."""
    with watched(folder), bounded():
        try:
            read()
        except K8sddsError as error:
            assert error.exit_code in EXIT_CODES and error.exit_code != INTERNAL_ERROR
            assert error.message.strip() and len(error.message) < 50_000
            return type(error).__name__
    return "read"
