"""Run the `k8sdds` command and map every error to a message and an exit code."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from tempfile import NamedTemporaryFile

from k8sdds import __version__
from k8sdds.cli import streams
from k8sdds.cli.terminal import print_error
from k8sdds.system import faults
from k8sdds.system.errors import INTERNAL_ERROR, InputError, Interrupted, K8sddsError


def run() -> None:
    """Run the command (the console script's entry point): every error becomes a message and an exit code."""
    if sys.getfilesystemencoding() != "utf-8":
        _restart_in_utf8()
    code = _exit_code()
    lost = streams.lost_output()
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
        streams.protect()
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
