"""What this machine keeps of a cluster: how to reach it, and logs. The truth about it is on its machines."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import state_folder


def folder(name: str, make: bool = False) -> Path:
    """The private folder of a cluster."""
    path = state_folder() / "clusters" / name
    if make:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def logs(name: str) -> Path:
    """Folder of what was done on each machine."""
    return folder(name) / "logs"


def read(name: str) -> dict[str, Any] | None:
    """The record of a cluster that was deployed from here; None: there is none."""
    try:
        found: dict[str, Any] = json.loads((folder(name) / "cluster.json").read_text())
    except (OSError, ValueError):
        return None
    return found


def write(name: str, **values: Any) -> None:
    """Write the record, keeping when it was made first."""
    made_at = (read(name) or {}).get("made_at") or datetime.now(UTC).isoformat(timespec="seconds")
    whole = {"name": name, "kubeconfig": str(folder(name) / "kubeconfig"), "made_at": made_at, **values}
    path = folder(name, make=True) / "cluster.json"
    write_atomically(path, json.dumps(whole, indent=1) + "\n", mode=0o600)


def forget(name: str, keep_logs: bool = False) -> None:
    """Remove all that is kept of a cluster, or all but the logs of what was done."""
    if keep_logs and logs(name).is_dir():
        for path in folder(name).iterdir():
            if path.is_file():
                path.unlink()
        return
    shutil.rmtree(folder(name), ignore_errors=True)
    with contextlib.suppress(OSError):
        folder(name).parent.rmdir()


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One command at a time changes a cluster. Raises PrerequisiteError where another is at it."""
    path = folder(name, make=True) / "lock"
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PrerequisiteError(
                f"another k8sdds command is changing the cluster {name}", "wait until it has ended"
            ) from None
        try:
            yield
        finally:
            if [one.name for one in path.parent.iterdir()] == [path.name]:
                forget(name)
