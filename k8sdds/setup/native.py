"""Build the native programs for this machine."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from k8sdds.bundle import cache
from k8sdds.middleware import BACKENDS
from k8sdds.middleware.k8sdds_perftest import backends, build_record
from k8sdds.system import cmake
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import CHECKOUT, built_folder, cache_folder, native_program, shared

PROGRAMS = ("k8sdds-perftest", "k8sdds-supervisor", "k8sdds-link")
COMPILER = ("c++", "cmake", "ninja")
_WHAT = "the native programs"
_SETUP = "k8sdds setup"
_TESTED = ("all", "test-programs")
"""What the tests of a source tree run, in addition to the programs that are installed."""


def is_current(for_tests: bool = False) -> bool:
    """Return whether all programs exist, with all middlewares, and correspond to their sources."""
    try:
        for program in PROGRAMS:
            native_program(program)
    except PrerequisiteError:
        return False
    return not missing_middlewares() and (
        CHECKOUT is None or _is_up_to_date(CHECKOUT / "build" / "native", for_tests)
    )


def can_build() -> bool:
    """Return whether a compiler and its tools are installed."""
    return all(shutil.which(tool) for tool in COMPILER)


def build(report: Callable[[str], None], progress: Callable[[str], None], for_tests: bool = False) -> None:
    """Build and install the programs, and report each middleware that could not be built.

    Args:
        report: Receives steps and notes.
        progress: Receives the lines of the build.
        for_tests: Whether to build the programs that only the tests of a source tree run, too.

    Raises:
        PrerequisiteError: The build fails.
    """
    report(f"building {_WHAT} (takes a few minutes)")
    if CHECKOUT is None:
        log = _build_in_cache(progress)
    else:
        targets = (*_TESTED, "install") if for_tests else ("install",)
        log = _build(CHECKOUT / "build" / "native", CHECKOUT / "build", targets, progress)
    for program in PROGRAMS:
        native_program(program)
    for name in missing_middlewares():
        reason = build_record(Path(native_program(PROGRAMS[0])).parent).get(name, "not built")
        report(f"middleware {name}: {reason}; see the build log: {log}")


def missing_middlewares() -> list[str]:
    """Return the names of the middlewares of k8sdds-perftest that are not built."""
    return [name for name in BACKENDS if name not in backends()]


def _build_in_cache(progress: Callable[[str], None]) -> Path:
    """Build the programs in the cache and return the build log."""
    cache_folder()  # creates it for this user only
    target = built_folder()
    log = target.with_suffix(".log")
    # The lock lets a second command wait instead of building the same.
    with cache.creating(target):
        if not is_current():
            with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as folder:
                _build(Path(folder, "native"), Path(folder, "install"), ("install",), progress, log)
                cache.remove(target)
                Path(folder, "install", "libexec", "k8sdds").rename(target)
    cache.prune()
    return log


def _build(
    folder: Path,
    prefix: Path,
    targets: Sequence[str],
    progress: Callable[[str], None],
    log: Path | None = None,
) -> Path:
    log = log or folder / "build.log"
    settings = {"CMAKE_INSTALL_PREFIX": prefix}
    cmake.build(_WHAT, shared("perftest-images"), folder, log, settings, targets, _SETUP, progress)
    return log


def _is_up_to_date(folder: Path, for_tests: bool) -> bool:
    if not (folder / "build.ninja").is_file() or not shutil.which("ninja"):
        return False
    targets = _TESTED if for_tests else ("all",)
    done = subprocess.run(["ninja", "-C", folder, "-n", *targets], capture_output=True, text=True)
    return done.returncode == 0 and "no work to do" in done.stdout
