"""Keep a command running when its output cannot be written: the terminal was closed, or the disk is full.

Output is the least valuable part of a command that measures or changes machines. A stream that fails is redirected
to /dev/null, and the command continues. `lost_output` returns the error for the end of the command.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from functools import cache
from typing import TextIO

from k8sdds.system.errors import PrerequisiteError


class LossyStream(io.TextIOWrapper):
    """A text stream that discards everything after its first error.

    Args:
        stream: The stream to replace; its file is used.
        null: A descriptor of /dev/null, opened in advance: no further one may be available at the error.
    """

    def __init__(self, stream: TextIO, null: int) -> None:
        stream.flush()
        self._null = null
        self.error: OSError | None = None
        """The error; None if everything was written, or the reader has ended, such as `head` or a terminal."""
        super().__init__(
            io.BufferedWriter(io.FileIO(stream.fileno(), "wb", closefd=False)),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.isatty() or stream is sys.stderr,
        )

    def write(self, text: str) -> int:
        """Write text, unless an error has occurred."""
        try:
            return super().write(text)
        except OSError as error:
            self._discard(error)
            return len(text)

    def flush(self) -> None:
        """Write what is buffered, unless an error has occurred."""
        try:
            super().flush()
        except OSError as error:
            self._discard(error)

    def _discard(self, error: OSError) -> None:
        terminal_closed = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self.fileno()).st_mode)
        if not isinstance(error, BrokenPipeError) and not terminal_closed:
            self.error = error
        # What is still buffered goes to /dev/null too.
        os.dup2(self._null, self.fileno())


def protect() -> None:
    """Replace stdout and stderr by streams whose errors do not stop the command."""
    null = _open_null()
    sys.stdout, sys.stderr = _lossy(sys.stdout, null), _lossy(sys.stderr, null)


def lost_output() -> PrerequisiteError | None:
    """Flush stdout; return the error if some of it was lost to a fault of this machine."""
    stdout = sys.stdout
    if isinstance(stdout, LossyStream):
        stdout.flush()
    error = stdout.error if isinstance(stdout, LossyStream) else None
    if error is None:
        return None
    return PrerequisiteError(
        f"cannot write the output: {error.strerror}", "free space, or redirect it to another place"
    )


@cache
def _open_null() -> int:
    """Return a descriptor of /dev/null.

    Closed standard streams become /dev/null too: files of the command would get their numbers otherwise.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    return descriptor


def _lossy(stream: TextIO | None, null: int) -> TextIO:
    if stream is None:  # it was closed when the command started
        return open(os.devnull, "w", encoding="utf-8")
    return LossyStream(stream, null)
