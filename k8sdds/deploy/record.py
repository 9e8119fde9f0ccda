"""Keep the local record of a deployed cluster: its profile, its kubeconfig, and logs.

The record contains how to reach the cluster. The state of the cluster is read from its machines.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from k8sdds.system import reading
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import state_folder


def folder(name: str, create: bool = False) -> Path:
    """Return the private folder of a cluster; `create` creates it."""
    path = state_folder() / "clusters" / name
    if create:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def logs(name: str) -> Path:
    """Return the folder with the logs of all actions, one file per node."""
    return folder(name) / "logs"


def read(name: str) -> dict[str, Any] | None:
    """Return the record of a cluster that was deployed from this machine; None if there is no such cluster."""
    try:
        return reading.json_file(folder(name) / "cluster.json")
    except (OSError, reading.UnreadableError):
        return None


def write(name: str, **values: Any) -> None:
    """Write the record, keeping the time at which it was first written."""
    made_at = (read(name) or {}).get("made_at") or datetime.now(UTC).isoformat(timespec="seconds")
    record = {"name": name, "kubeconfig": str(folder(name) / "kubeconfig"), "made_at": made_at, **values}
    path = folder(name, create=True) / "cluster.json"
    write_atomically(path, json.dumps(record, indent=1) + "\n", mode=0o600)


def delete(name: str, keep_logs: bool = False) -> None:
    """Delete the record of a cluster; `keep_logs` keeps its logs."""
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
    """Hold the lock of a cluster, so that one command at a time changes it."""
    path = folder(name, create=True) / "lock"
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PrerequisiteError(
                f"another k8sdds command is changing the cluster {name}", "wait until it ends"
            ) from None
        try:
            yield
        finally:
            # If the command wrote no record, delete the folder.
            if [entry.name for entry in path.parent.iterdir()] == [path.name]:
                delete(name)
