"""Run the `k8sdds` command and map every error to a message and an exit code."""

from __future__ import annotations

import errno
import gc
import io
import os
import stat
import sys
import traceback
from tempfile import NamedTemporaryFile
from typing import Any, TextIO

from k8sdds import __version__
from k8sdds.cli.terminal import print_error
from k8sdds.system import faults
from k8sdds.system.errors import INTERNAL_ERROR, InputError, Interrupted, K8sddsError, PrerequisiteError


def run() -> None:
    """Run the command (the console script's entry point): every error becomes a message and an exit code."""
    if sys.getfilesystemencoding() != "utf-8":
        _restart_in_utf8()
    code = _exit_code()
    lost = lost_output()
    if lost is not None:
        print_error(lost)
        code = code or lost.exit_code
    sys.exit(code)


def _restart_in_utf8() -> None:
    """Run the same command with files in UTF-8: other encodings lack characters that records and reports contain."""
    output = f"{sys.stdout.encoding if sys.stdout else 'utf-8'}:replace"
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": output}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _check_arguments() -> None:
    """Raise InputError for an argument that no record or page can contain."""
    for argument in sys.argv[1:]:
        if argument.encode(errors="ignore").decode() != argument:
            raise InputError(
                f"argument {argument!a} is not valid UTF-8", "rename the file or folder that it names"
            )


def _exit_code() -> int:
    """Run the command; print its error, if any, and return its exit code."""
    # The computations are small. For each further thread, OpenBLAS reserves memory, and without it raises SIGINT.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Most objects live until the command ends. Looking for garbage more often takes a sixth of the time of a report.
    gc.set_threshold(10_000)
    try:
        protect()
        _check_arguments()
        # Imported here because an import needs memory and open files, which may be exhausted.
        from k8sdds.cli import app

        return app.invoke()
    except KeyboardInterrupt:
        print("k8sdds: interrupted", file=sys.stderr)
        return Interrupted.exit_code
    except Exception as error:
        known = error if isinstance(error, K8sddsError) else faults.explain(error)
        if known is None:
            return _report_defect(error)
        if known is not error:
            known.__cause__ = error
        print_error(known)
        return known.exit_code


def _report_defect(error: Exception) -> int:
    """Write the traceback to a file and ask the user to report it; return the exit code."""
    report = f"k8sdds {__version__}, {sys.argv}\n\n{''.join(traceback.format_exception(error))}"
    try:
        with NamedTemporaryFile(
            "w",
            prefix="k8sdds-defect-",
            suffix=".txt",
            delete=False,
            encoding="utf-8",
            errors="backslashreplace",
        ) as file:
            file.write(report)
        attach = f"attach {file.name}"
    except OSError as failure:
        attach = f"attach this text, because no file could be written ({failure.strerror}):\n{report}"
    print(
        f"k8sdds: internal error: {type(error).__name__}: {error}\n"
        f"  → this is a bug in k8sdds: please report it and {attach}",
        file=sys.stderr,
    )
    return INTERNAL_ERROR


class LossyFile(io.FileIO):
    """The file of a standard stream that discards everything after its first error, so that the command continues.

    The terminal may be closed, or the disk full; output is the least valuable part of a command that measures or
    changes machines.
    """

    failed = False
    fault: OSError | None = None
    """The error, unless the reader has ended, such as `head` or a terminal."""

    def write(self, data: Any) -> int:
        """Write data, unless an error has occurred."""
        if not self.failed:
            try:
                return super().write(data)
            except OSError as error:
                self.failed = True
                terminal_closed = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self.fileno()).st_mode)
                if not isinstance(error, BrokenPipeError) and not terminal_closed:
                    self.fault = error
        return memoryview(data).nbytes


def protect() -> None:
    """Replace stdout and stderr by streams whose errors do not stop the command."""
    # Closed standard streams become /dev/null: files of the command would get their numbers otherwise.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout, sys.stderr = _lossy(sys.stdout, 1), _lossy(sys.stderr, 2)


def _lossy(stream: TextIO | None, number: int) -> TextIO:
    if stream is not None:
        stream.flush()
    file = LossyFile(stream.fileno() if stream else number, "wb", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(file),
        encoding=stream.encoding if stream else "utf-8",
        errors=stream.errors if stream else None,
        line_buffering=number == 2 or file.isatty(),
    )


def lost_output() -> PrerequisiteError | None:
    """Flush stdout; return the error if some of it was lost to a fault of this machine."""
    file = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(file, LossyFile):
        sys.stdout.flush()
    if not isinstance(file, LossyFile) or file.fault is None:
        return None
    reason = file.fault.strerror
    return PrerequisiteError(
        f"cannot write the output: {reason}", "free space, or redirect it to another place"
    )
