"""What is known of the clusters of local nodes on this machine: written down before anything is made.

One private folder per cluster in the state folder, with the record and the keys; what machines write lies
in the cache folder, on a disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from k8sdds.nodes.spec import NAME, Link, NodeSpec, Share
from k8sdds.system import processes
from k8sdds.system.errors import InputError
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import state_folder


@dataclass
class Machine:
    """One node as recorded."""

    spec: NodeSpec
    address: str
    pid: int = 0
    """Its first process as this machine sees it; 0 while it is stopped."""
    started: int | None = None
    answered: bool = False
    """Whether its sshd has greeted since it was booted."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return processes.is_alive(self.pid, self.started)


@dataclass
class Record:
    """One cluster: its holder, its machines, and what must be removed with it."""

    cluster: str
    data: str
    """Folder of what its machines write."""
    holder: tuple[int, int | None] = (0, None)
    cgroup_folders: list[str] = field(default_factory=list)
    machines: dict[str, Machine] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether its switch stands."""
        return processes.is_alive(*self.holder)

    @property
    def folder(self) -> Path:
        """Private folder of record and keys."""
        return folder() / self.cluster

    def write(self) -> None:
        """Replace the recorded state atomically."""
        write_atomically(self.folder / "record.json", json.dumps(asdict(self), default=str))

    def forget(self) -> None:
        """Remove record and keys, when all that it names is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)


def folder() -> Path:
    """Where the clusters' private folders are."""
    path = state_folder() / "nodes"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@contextlib.contextmanager
def locked(cluster: str) -> Iterator[None]:
    """One command at a time changes a cluster; the name is checked."""
    if not NAME.fullmatch(cluster):
        raise InputError(f"{cluster!r} cannot name a cluster", "up to 12 of a-z, 0-9 and -")
    path = folder() / f"{cluster}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(cluster: str) -> Record | None:
    """The record of a cluster, None if there is none."""
    try:
        data = json.loads((folder() / cluster / "record.json").read_text())
    except (OSError, ValueError):
        return None
    data["holder"] = tuple(data["holder"])
    data["machines"] = {name: _machine(machine) for name, machine in data["machines"].items()}
    return Record(**data)


def _machine(data: dict[str, Any]) -> Machine:
    spec = data.pop("spec")
    spec["link"] = Link(**spec["link"])
    # Not checked again: a shared folder may be gone by now.
    shares = tuple(Share(Path(share["host"]), share["inside"]) for share in spec.pop("shares"))
    made = NodeSpec(**spec)
    object.__setattr__(made, "shares", shares)
    return Machine(made, **data)


def clusters() -> list[Record]:
    """All clusters known to this user."""
    found = [read(path.name) for path in sorted(folder().iterdir()) if path.is_dir()]
    return [record for record in found if record]
