"""Build the native programs with CMake.

It requires only the standard library: `make` runs it as a program while pip installs the Python packages.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from k8sdds.system import cmake
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import CHECKOUT, shared

WHAT = "the native programs"
_SETUP = "k8sdds setup"
_TESTED = ("all", "test-programs")
"""What the tests of a source tree run, in addition to the programs that are installed."""


def build_checkout(
    checkout: Path,
    progress: Callable[[str], None] = lambda _: None,
    for_tests: bool = False,
    options: Mapping[str, object] = MappingProxyType({}),
) -> Path:
    """Build and install the programs in the build folder of a source tree, and return the build log."""
    targets = (*_TESTED, "install") if for_tests else ("install",)
    return build(_folder(checkout), checkout / "build", targets, progress, options)


def is_up_to_date(checkout: Path, for_tests: bool = False) -> bool:
    """Return whether the build folder of a source tree corresponds to the sources."""
    folder = _folder(checkout)
    if not (folder / "build.ninja").is_file() or not shutil.which("ninja"):
        return False
    targets = _TESTED if for_tests else ("all",)
    done = subprocess.run(["ninja", "-C", folder, "-n", *targets], capture_output=True, text=True)
    return done.returncode == 0 and "no work to do" in done.stdout


def build(
    folder: Path,
    prefix: Path,
    targets: Sequence[str],
    progress: Callable[[str], None],
    options: Mapping[str, object] = MappingProxyType({}),
    log: Path | None = None,
) -> Path:
    """Build targets in a folder, install them under a prefix, and return the build log.

    `options` are variables of CMake. Those of an earlier build in this folder are kept.
    """
    log = log or folder / "build.log"
    settings = {"CMAKE_INSTALL_PREFIX": prefix, **options}
    cmake.build(WHAT, shared("perftest-images"), folder, log, settings, targets, _SETUP, progress)
    return log


def _folder(checkout: Path) -> Path:
    return checkout / "build" / "native"


if __name__ == "__main__" and CHECKOUT is not None:
    # `k8sdds setup` repeats what failed, and explains it.
    with contextlib.suppress(PrerequisiteError, OSError, KeyboardInterrupt):
        build_checkout(CHECKOUT)
