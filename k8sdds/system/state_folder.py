"""What the lab makes on this machine and what outlives a crash, written down first: the truth for `clean`.

One small JSON file per lab (a campaign's, or one of `lab up`) in a folder of the user's own. Everything
a lab makes hangs on its holders' namespaces; only cgroups and this file outlive a holder.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from k8sdds.system import cgroups, processes
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.files import write_atomically


@dataclass
class Record:
    """One lab: the process that owns it, its holders by bench, and its cgroup folders."""

    name: str
    kind: str
    """`campaign`, which ends with its owner; `lab` for what `lab up` has made, which stays."""
    owner: tuple[int, int | None]
    """(process id, start time)"""
    experiment: str = ""
    created_at: str = ""
    holders: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    cgroup_folders: list[str] = field(default_factory=list)
    pods: dict[str, dict[str, int]] = field(default_factory=dict)
    """LabNetwork to pod to the id of the pod's first process."""
    plans: dict[str, str] = field(default_factory=dict)
    """LabNetwork to its cell as JSON, from which the plan can be made again."""

    @property
    def in_use(self) -> bool:
        """Whether it must not be cleaned away: its campaign runs, or it was made to stay."""
        if self.kind == "lab":
            return any(processes.is_alive(*holder) for holder in self.holders.values())
        return processes.is_alive(*self.owner)


def folder() -> Path:
    """Where records are kept, for this user alone; made when missing.

    $K8SDDS_STATE_DIR if set; else /run/k8sdds for root, and the user's runtime folder for others.
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
            f"cannot make {path}: {error.strerror}", "set K8SDDS_STATE_DIR to a folder of yours"
        ) from error
    if status.st_uid != os.geteuid() or not path.is_dir() or path.is_symlink():
        raise PrerequisiteError(f"{path} is not a folder of yours", "set K8SDDS_STATE_DIR to one")
    return path


def create(record: Record) -> None:
    """Write a new record down; a lab of this name that is known already is an InputError."""
    try:
        (folder() / f"{record.name}.json").open("x").close()
    except FileExistsError:
        raise InputError(
            f"a lab named {record.name!r} is here already",
            "k8sdds lab ls; k8sdds clean removes what is left over",
        ) from None
    write(record)


def write(record: Record) -> None:
    """Write a record down, replacing its former state atomically."""
    write_atomically(folder() / f"{record.name}.json", json.dumps(asdict(record)))


def forget(record: Record) -> None:
    """Remove a record, when all it names is gone."""
    (folder() / f"{record.name}.json").unlink(missing_ok=True)


def records() -> list[Record]:
    """All labs known on this machine to this user."""
    found = []
    for path in sorted(folder().glob("*.json")):
        with contextlib.suppress(ValueError, TypeError, KeyError, OSError):
            data = json.loads(path.read_text())
            data["owner"] = tuple(data["owner"])
            data["holders"] = {bench: tuple(holder) for bench, holder in data["holders"].items()}
            found.append(Record(**data))
    return found


def remove(record: Record) -> list[str]:
    """End a lab's holders, remove its cgroups and its record; returns what could not be removed."""
    for pid, started in record.holders.values():
        if processes.kill(pid, started):
            processes.wait_gone(pid, 10)
    left = cgroups.remove(record.cgroup_folders)
    if not left:
        forget(record)
    return left
