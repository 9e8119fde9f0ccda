"""Build the native programs for this machine."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from k8sdds.bundle import cache
from k8sdds.middleware import ALWAYS_BUILT, BACKENDS
from k8sdds.middleware.k8sdds_perftest import backends, build_record
from k8sdds.system import native_build
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import CHECKOUT, built_folder, cache_folder, native_program

PROGRAMS = ("k8sdds-perftest", "k8sdds-supervisor", "k8sdds-link")
COMPILER = ("c++", "cmake", "ninja")


def is_current(for_tests: bool = False, requested: Sequence[str] = ()) -> bool:
    """Return whether all programs exist, with their middlewares, and correspond to their sources.

    `requested`: backends that are built only on request.
    """
    try:
        for program in PROGRAMS:
            native_program(program)
    except PrerequisiteError:
        return False
    return not missing_middlewares(requested) and (
        CHECKOUT is None or native_build.is_up_to_date(CHECKOUT, for_tests)
    )


def can_build() -> bool:
    """Return whether a compiler and its tools are installed."""
    return all(shutil.which(tool) for tool in COMPILER)


def build(
    report: Callable[[str], None],
    progress: Callable[[str], None],
    for_tests: bool = False,
    requested: Sequence[str] = (),
) -> None:
    """Build and install the programs, and report each middleware that could not be built.

    `progress` receives the lines of the build. `for_tests` also builds what only the tests of a source tree run.
    """
    report(f"building {native_build.WHAT} (takes a few minutes)")
    if CHECKOUT:
        log = native_build.build_checkout(CHECKOUT, progress, for_tests, _options(requested))
    else:
        log = _build_in_cache(progress, requested)
    for program in PROGRAMS:
        native_program(program)
    for name in missing_middlewares(requested):
        reason = build_record(Path(native_program(PROGRAMS[0])).parent).get(name, "not built")
        report(f"middleware {name}: {reason}; see the build log: {log}")


def missing_middlewares(requested: Sequence[str] = ()) -> list[str]:
    """Return the names of the backends of k8sdds-perftest that are not built: the usual and the requested ones."""
    return [name for name in (*ALWAYS_BUILT, *requested) if name not in backends()]


def _options(requested: Sequence[str]) -> dict[str, str]:
    """Return the variables of CMake that request backends. A Python with pip gets what is not Debian's."""
    return {"K8SDDS_PYTHON": sys.executable, **{BACKENDS[name]: "ON" for name in requested}}


def _build_in_cache(progress: Callable[[str], None], requested: Sequence[str]) -> Path:
    """Build the programs in the cache and return the build log."""
    cache_folder()  # creates it for this user only
    target = built_folder()
    log = target.with_suffix(".log")
    # The lock lets a second command wait instead of building the same.
    with cache.creating(target):
        if not is_current(requested=requested):
            with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as folder:
                parts = Path(folder, "native"), Path(folder, "install")
                # What was requested for the programs that are replaced is built again.
                earlier = (name for name in backends(target) if BACKENDS.get(name))
                options = _options([*requested, *earlier])
                native_build.build(*parts, ("install",), progress, options, log)
                cache.remove(target)
                Path(folder, "install", "libexec", "k8sdds").rename(target)
    cache.prune()
    return log
