"""Build C and C++ programs with CMake and Ninja."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from k8sdds.system.errors import PrerequisiteError

TIMEOUT_S = 3600
"""The build of perftest takes about two minutes on two shared cores, and several times as long on a Raspberry Pi."""


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
    """Build and install programs. A second build in the same folder is incremental.

    Args:
        what: What messages call the programs.
        sources: Folder with CMakeLists.txt.
        folder: Folder of the intermediate files.
        log: File for the output of the build.
        settings: CMake variables, such as CMAKE_INSTALL_PREFIX.
        targets: `install`, or `install/strip` to remove debug information, and others of the project.
        setup: The command that installs CMake and the libraries.
        progress: Receives the last line of the output every second, such as `[12/80] Building …`.

    Raises:
        PrerequisiteError: CMake is not installed, or the build fails.
    """
    configure = ["cmake", "-S", sources, "-B", folder, "-G", "Ninja"]
    configure += [f"-D{key}={value}" for key, value in {"CMAKE_BUILD_TYPE": "Release", **settings}.items()]
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("w+") as output:
        for argv in (configure, ["cmake", "--build", folder, "--target", *targets]):
            try:
                code = _run(argv, output, lambda: progress(_last_line(log)))
            except FileNotFoundError:
                raise PrerequisiteError("cmake is not installed", f"run: {setup}") from None
            except subprocess.TimeoutExpired:
                raise PrerequisiteError(f"building {what} timed out after {TIMEOUT_S} s") from None
            if code:
                lines = [line.strip() for line in log.read_text().splitlines() if "rror" in line][:3]
                raise PrerequisiteError(
                    f"cannot build {what}: {' | '.join(lines)}", f"see the build log: {log}"
                )


def _run(argv: Sequence[str | Path], output: IO[str], every_second: Callable[[], None]) -> int:
    """Run a command and return its exit code. Raises TimeoutExpired."""
    ends_s = time.monotonic() + TIMEOUT_S
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C"},
    ) as process:  # fmt: skip
        try:
            while True:
                try:
                    return process.wait(timeout=1)
                except subprocess.TimeoutExpired:
                    if time.monotonic() > ends_s:
                        raise
                    every_second()
        finally:
            process.kill()


def _last_line(log: Path) -> str:
    return (log.read_text(errors="replace").splitlines() or [""])[-1]
