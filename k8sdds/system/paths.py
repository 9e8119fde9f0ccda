"""Where the files that ship with k8sdds are: in the checkout, or installed beside the interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from k8sdds.system.errors import PrerequisiteError

CHECKOUT = Path(__file__).resolve().parents[2]


def shared(kind: str) -> Path:
    """The folder of `experiments`, `qos`, `profiles`, …, wherever k8sdds is installed."""
    for folder in (CHECKOUT / kind, Path(sys.prefix) / "share" / "k8sdds" / kind):
        if folder.is_dir():
            return folder
    raise PrerequisiteError(
        f"the folder {kind}/ that ships with k8sdds is missing", "install k8sdds again: make setup"
    )


def private_folder(participant: str) -> Path:
    """Where a participant finds its private files, on every testbed: in memory, never in a run folder."""
    return Path("/run/k8sdds") / participant


def native_program(name: str) -> str:
    """Path of a native program: k8sdds-perftest or k8sdds-supervisor.

    Looked for in $K8SDDS_LIBEXEC, then beside the interpreter, then in the checkout's build folder.
    """
    given = os.environ.get("K8SDDS_LIBEXEC")
    installed = Path(sys.prefix) / "libexec" / "k8sdds"
    folders = [Path(given)] if given else [installed, CHECKOUT / "build" / "libexec" / "k8sdds"]
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    raise PrerequisiteError(
        f"the program {name} is not in {' or '.join(str(folder) for folder in folders)}",
        "build it: make setup",
    )


def cache_folder() -> Path:
    """Where what takes long to make is kept between runs: $K8SDDS_CACHE_DIR, else ~/.cache/k8sdds.

    Made when missing; raises PrerequisiteError where it cannot be.
    """
    given = os.environ.get("K8SDDS_CACHE_DIR")
    path = Path(given).absolute() if given else Path.home() / ".cache" / "k8sdds"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot make {path}: {error.strerror}", "set K8SDDS_CACHE_DIR to a folder of yours"
        ) from error
    return path
