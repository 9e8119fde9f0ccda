"""Locate the files installed with k8sdds, and its state and cache folders."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import pwd
import sys
from functools import cache
from pathlib import Path

from k8sdds.system import hashing
from k8sdds.system.errors import PrerequisiteError

_PACKAGE = Path(__file__).resolve().parents[1]
_SHIPPED = _PACKAGE / "_shipped"
"""Where setup.py copies the shipped folders; a source tree has them next to the package instead."""
CHECKOUT: Path | None = None if _SHIPPED.is_dir() else _PACKAGE.parent
"""The source tree, if k8sdds runs from one."""
_ROOT = CHECKOUT or _SHIPPED
BUNDLED = _PACKAGE / "_native"
"""Folder of the native programs and their libraries in a wheel for one architecture; other installations have none."""
LIBEXEC = "libexec"
"""Folder of the cache with the native programs of this machine."""


def shared(kind: str) -> Path:
    """Return the folder of `experiments`, `qos`, `profiles` or another kind of shipped files."""
    folder = _ROOT / kind
    if not folder.is_dir():
        raise PrerequisiteError(f"the folder {folder} is missing from this installation", "reinstall k8sdds")
    return folder


def private_folder(participant: str) -> Path:
    """Return the folder of a participant's private files, the same on every testbed; it is in memory."""
    return Path("/run/k8sdds") / participant


def native_program(name: str) -> str:
    """Return the path of a native program, such as `k8sdds-supervisor`.

    If $K8SDDS_LIBEXEC is set, the program is there; if the installed package has programs, it is one of them. Otherwise
    it is in the folder that `k8sdds setup` builds into, or where a distribution's package installs it.
    """
    given = os.environ.get("K8SDDS_LIBEXEC")
    if given or BUNDLED.is_dir():
        folders = [Path(given or BUNDLED)]
    else:
        folders = [*_built_folders(), Path(sys.prefix) / "libexec" / "k8sdds"]
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return str(folder / name)
    raise PrerequisiteError(
        f"the program {name} is not in {' or '.join(str(folder) for folder in folders)}",
        "build it: k8sdds setup",
    )


def built_folder() -> Path:
    """Return the folder that `k8sdds setup` builds the native programs into.

    It is build/ in a source tree, which needs incremental builds; else a folder of the cache for exactly these
    sources and this system.
    """
    if CHECKOUT is not None:
        return CHECKOUT / "build" / "libexec" / "k8sdds"
    return _cache_path() / LIBEXEC / _native_key()


def _built_folders() -> list[Path]:
    """Return where `k8sdds setup` has built: for this user, or for the owner of the installation.

    Root uses what the owner of the installation built, as in `sudo k8sdds`. It trusts that user, whose Python
    code it runs.
    """
    folders = [built_folder()]
    owner = Path(sys.prefix).stat().st_uid
    if CHECKOUT is None and os.geteuid() == 0 and owner != 0:
        with contextlib.suppress(KeyError):
            folders.append(_default_cache(Path(pwd.getpwuid(owner).pw_dir)) / LIBEXEC / _native_key())
    return folders


@cache
def _native_key() -> str:
    """Return a name that changes with the sources of the native programs, the architecture and the system."""
    system = platform.freedesktop_os_release()
    key = hashlib.sha256(f"{system.get('ID')} {system.get('VERSION_ID')}".encode())
    hashing.add_folder(key, shared("perftest-images"))
    return f"{platform.machine()}-{key.hexdigest()[:16]}"


def cache_folder() -> Path:
    """Return the folder of results that take long to create, and create it if it is missing.

    It is $K8SDDS_CACHE_DIR if set, else ~/.cache/k8sdds.
    """
    path = _cache_path()
    _create(path, "set K8SDDS_CACHE_DIR to a folder that you can write")
    return path


def _cache_path() -> Path:
    given = os.environ.get("K8SDDS_CACHE_DIR")
    return Path(given).absolute() if given else _default_cache(Path.home())


def _default_cache(home: Path) -> Path:
    return home / ".cache" / "k8sdds"


def state_folder() -> Path:
    """Return the folder of this user's records of labs and clusters, and create it if it is missing.

    It is $K8SDDS_STATE_DIR if set; else /run/k8sdds for root, and the runtime folder for other users.
    """
    given = os.environ.get("K8SDDS_STATE_DIR")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if given:
        path = Path(given)
    elif os.geteuid() == 0:
        path = Path("/run/k8sdds")
    else:
        path = Path(runtime) / "k8sdds" if runtime else Path(f"/tmp/k8sdds-{os.geteuid()}")
    remedy = "set K8SDDS_STATE_DIR to a folder that you own"
    _create(path, remedy, parents=False)
    if path.lstat().st_uid != os.geteuid() or path.is_symlink():
        raise PrerequisiteError(f"{path} is not a folder that you own", remedy)
    return path


def _create(path: Path, remedy: str, parents: bool = True) -> None:
    try:
        path.mkdir(mode=0o700, parents=parents, exist_ok=True)
    except OSError as error:
        raise PrerequisiteError(f"cannot create {path}: {error.strerror}", remedy) from error
