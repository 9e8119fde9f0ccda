"""Locate the files installed with k8sdds, and its state and cache folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from k8sdds.system.errors import PrerequisiteError

_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = _PACKAGE / "_shipped"
"""Where setup.py copies the shipped folders; a source tree has them next to the package instead."""
CHECKOUT = None if _SHIPPED.is_dir() else _PACKAGE.parent
"""The source tree, if k8sdds runs from one."""


def shared(kind: str) -> Path:
    """Return the folder of `experiments`, `qos`, `profiles` or another kind of shipped files.

    Raises:
        PrerequisiteError: The folder is missing.
    """
    folder = (CHECKOUT or _SHIPPED) / kind
    if not folder.is_dir():
        raise PrerequisiteError(f"the folder {folder} is missing from this installation", "reinstall k8sdds")
    return folder


def private_folder(participant: str) -> Path:
    """Return the folder of a participant's private files, the same on every testbed; it is in memory."""
    return Path("/run/k8sdds") / participant


def native_program(name: str) -> str:
    """Return the path of a native program: `k8sdds-perftest` or `k8sdds-supervisor`.

    Searches $K8SDDS_LIBEXEC if it is set; else the installation.

    Raises:
        PrerequisiteError: The program is not built.
    """
    given = os.environ.get("K8SDDS_LIBEXEC")
    folder = Path(given) if given else Path(sys.prefix) / "libexec" / "k8sdds"
    if os.access(folder / name, os.X_OK):
        return str(folder / name)
    raise PrerequisiteError(f"the program {name} is not in {folder}", "build it: make setup")


def cache_folder() -> Path:
    """Return the folder of results that take long to create, and create it if it is missing.

    It is $K8SDDS_CACHE_DIR if set, else ~/.cache/k8sdds.

    Raises:
        PrerequisiteError: The folder cannot be created.
    """
    given = os.environ.get("K8SDDS_CACHE_DIR")
    path = Path(given).absolute() if given else Path.home() / ".cache" / "k8sdds"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot create {path}: {error.strerror}", "set K8SDDS_CACHE_DIR to a folder that you can write"
        ) from error
    return path


def state_folder() -> Path:
    """Return the folder of this user's records of labs and clusters, and create it if it is missing.

    It is $K8SDDS_STATE_DIR if set; else /run/k8sdds for root, and the runtime folder for other users.

    Raises:
        PrerequisiteError: The folder cannot be created, or belongs to another user.
    """
    given = os.environ.get("K8SDDS_STATE_DIR")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if given:
        path = Path(given)
    elif os.geteuid() == 0:
        path = Path("/run/k8sdds")
    else:
        path = Path(runtime) / "k8sdds" if runtime else Path(f"/tmp/k8sdds-{os.geteuid()}")
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise PrerequisiteError(
            f"cannot create {path}: {error.strerror}", "set K8SDDS_STATE_DIR to a folder that you own"
        ) from error
    if status.st_uid != os.geteuid() or not path.is_dir() or path.is_symlink():
        raise PrerequisiteError(
            f"{path} is not a folder that you own", "set K8SDDS_STATE_DIR to a folder that you own"
        )
    return path
