"""Build C and C++ programs with CMake and Ninja."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from k8sdds.system.errors import PrerequisiteError

TIMEOUT_S = 3 * 3600
"""Timeout of a build, which takes most of an hour on a small machine."""


def build(
    what: str,
    sources: Path,
    folder: Path,
    log: Path,
    settings: Mapping[str, object],
    targets: Sequence[str],
    setup: str,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Build and install programs, which messages call `what`. A second build in the same folder is incremental.

    The output of the build goes to `log`, and each line, such as `[12/80] Building …`, to `progress`. `settings` are
    CMake variables, and `setup` is the command that installs CMake and the libraries.
    """
    configure: list[str | Path] = ["cmake", "-S", sources, "-B", folder, "-G", "Ninja"]
    configure += [f"-D{key}={value}" for key, value in {"CMAKE_BUILD_TYPE": "Release", **settings}.items()]
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("w+", buffering=1) as output:
        build: list[str | Path] = ["ninja", "-C", folder, *targets]
        for argv in (configure, build):
            try:
                code = _run(argv, output, progress)
            except FileNotFoundError:
                raise PrerequisiteError(f"{argv[0]} is not installed", f"run: {setup}") from None
            if code:
                raise _failure(what, log)


def _failure(what: str, log: Path) -> PrerequisiteError:
    """Return the error of a failed build, by its log."""
    text, remedy = log.read_text(), f"see the build log: {log}"
    # cargo has already retried. Its message depends on its version. The last cause is the root cause.
    causes = re.findall(r"^Caused by:\n +(.+)", text, re.MULTILINE)
    if causes and re.search(r"failed to download|download of .+ failed", text):
        return PrerequisiteError(
            f"cannot build {what}: cargo cannot download crates: {causes[-1]}",
            f"check the network and the proxy (https_proxy) of this machine, and run the command again; {remedy}",
        )
    lines = [line.strip() for line in text.splitlines() if "rror" in line][:3]
    return PrerequisiteError(f"cannot build {what}: {' | '.join(lines)}", remedy)


def _run(argv: Sequence[str | Path], output: IO[str], progress: Callable[[str], None]) -> int:
    """Run a command, write its output, and return its exit code."""
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", env={**os.environ, "LC_ALL": "C"},
    ) as process:  # fmt: skip
        timer = threading.Timer(TIMEOUT_S, process.terminate)
        timer.start()
        try:
            for line in process.stdout or ():
                output.write(line)
                progress(line.strip())
            code = process.wait()
        except BaseException:
            process.terminate()
            raise
        finally:
            timer.cancel()
        if timer.finished.is_set() and code < 0:
            output.write(f"error: it did not end within {TIMEOUT_S / 3600:g} h\n")
        return code
