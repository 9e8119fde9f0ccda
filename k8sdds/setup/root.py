"""Run commands as root, directly or with sudo."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import IO


def is_available() -> bool:
    """Return whether this user may be able to run commands as root."""
    return os.geteuid() == 0 or shutil.which("sudo") is not None


def as_root(*argv: str, text: str | None = None, output: IO[str] | int = subprocess.DEVNULL) -> int:
    """Run a command as root and return its exit code. Its messages appear on stderr.

    Ctrl-C is passed on, and the command ends in an orderly way before this function raises KeyboardInterrupt: a
    package manager must not be killed. Without `text`, its input is the terminal, on which sudo asks for a password.
    `output` receives all that it prints; by default, only messages are shown.
    """
    command = argv if os.geteuid() == 0 else ("sudo", "--", *argv)
    process = subprocess.Popen(
        command,
        stdin=None if text is None else subprocess.PIPE,
        stdout=output,
        stderr=None if output == subprocess.DEVNULL else subprocess.STDOUT,
        text=True,
    )
    interrupted = False
    if process.stdin is not None:
        # sudo closes its end without reading if it refuses the command; the exit code reports that.
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(text or "")
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt
    return code
