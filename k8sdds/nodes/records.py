"""Record the clusters of local nodes on this machine, before anything of them is created.

Every cluster has a private folder in the state folder, with its record and keys. The disks of its nodes are
in the cache folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from k8sdds.nodes.spec import NAME, NodeSpec
from k8sdds.system import processes
from k8sdds.system.errors import InputError
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import state_folder


@dataclass
class MachineRecord:
    """One node."""

    spec: NodeSpec
    address: str
    """Its address of the first family, whose last part is its number."""
    pid: int = 0
    """Its first process, as seen from this machine; 0 if stopped."""
    started: int | None = None
    """Start time of that process."""
    answered: bool = False
    """Whether its sshd has answered since it booted."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return processes.is_alive(self.pid, self.started)


@dataclass
class ClusterRecord:
    """One cluster: its holder process, its nodes, and what must be removed with it."""

    cluster: str
    data: str
    """Folder of the nodes' disks."""
    holder: tuple[int, int | None] = (0, None)
    """(process id, start time)"""
    cgroup_folders: list[str] = field(default_factory=list)
    machines: dict[str, MachineRecord] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether its holder runs."""
        return processes.is_alive(*self.holder)

    @property
    def folder(self) -> Path:
        """Private folder of the record and the keys."""
        return folder() / self.cluster

    def write(self) -> None:
        """Replace the stored record."""
        write_atomically(self.folder / "record.json", _RECORD.dump_json(self))

    def forget(self) -> None:
        """Remove the record and the keys. Everything else of the cluster must have been removed."""
        shutil.rmtree(self.folder, ignore_errors=True)


_RECORD = TypeAdapter(ClusterRecord)


def folder() -> Path:
    """Return the folder of the clusters' private folders."""
    path = state_folder() / "nodes"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@contextlib.contextmanager
def locked(cluster: str) -> Iterator[None]:
    """Prevent other commands from changing a cluster."""
    if not NAME.fullmatch(cluster):
        raise InputError(
            f"{cluster!r} is not a valid cluster name", "use up to 12 characters of a-z, 0-9 and -"
        )
    path = folder() / f"{cluster}.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(cluster: str) -> ClusterRecord | None:
    """Return the record of a cluster, or None if there is none."""
    try:
        return _RECORD.validate_json((folder() / cluster / "record.json").read_bytes())
    except (OSError, ValidationError, InputError):
        return None


def damaged() -> list[Path]:
    """Return the files of records that cannot be read, such as those that another program changed."""
    files = [path / "record.json" for path in sorted(folder().iterdir())]
    return [file for file in files if file.is_file() and read(file.parent.name) is None]


def all_clusters() -> list[ClusterRecord]:
    """Return the records of all clusters of this user, by name."""
    records = [read(path.name) for path in sorted(folder().iterdir()) if path.is_dir()]
    return [record for record in records if record]
