"""Record what each lab is about to create on this machine, so that `k8sdds clean` can remove it.

There is one small JSON file per lab (of a campaign, or of `lab up`) in `labs/` of the user's state folder. Only the
cgroups and this file remain after a crash. Everything else ends with the lab's holder processes.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from k8sdds.system import cgroups, processes, reading
from k8sdds.system.errors import InputError
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import state_folder

UNFINISHED_S = 10
"""Age after which the writer of an incomplete file counts as killed."""


@dataclass
class LabRecord:
    """One lab: its owner, the holder process of each lab network, and its cgroup folders."""

    name: str
    kind: str
    """`campaign`: ends with its owner; `lab`: created by `lab up`, remains after its owner has ended."""
    owner: tuple[int, int | None]
    """(process id, start time)"""
    experiment: str = ""
    created_at: str = ""
    holders: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """Lab network to (process id, start time) of its holder."""
    cgroup_folders: list[str] = field(default_factory=list)
    pods: dict[str, dict[str, int]] = field(default_factory=dict)
    """Lab network to pod to the id of the pod's first process."""
    plans: dict[str, str] = field(default_factory=dict)
    """Lab network to its cell as JSON, from which the plan can be computed again."""

    @property
    def in_use(self) -> bool:
        """Whether the lab must be kept: its campaign runs, or `lab up` created it and it still runs."""
        if self.kind == "lab":
            return any(processes.is_alive(*holder) for holder in self.holders.values())
        return processes.is_alive(*self.owner)


def folder() -> Path:
    """Return the folder of the records."""
    path = state_folder() / "labs"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def create(record: LabRecord) -> None:
    """Write a new record. There must be no lab of this name."""
    try:
        write(record, exclusive=True)
    except FileExistsError:
        raise InputError(
            f"a lab named {record.name!r} already exists",
            "list labs: k8sdds lab ls; remove leftovers: k8sdds clean",
        ) from None


def write(record: LabRecord, exclusive: bool = False) -> None:
    """Store a record, by default in place of an earlier one."""
    path = folder() / f"{record.name}.json"
    write_atomically(path, json.dumps(asdict(record)), exclusive=exclusive)


def unfinished() -> list[Path]:
    """Return the files that killed writers left: empty records and temporary files."""
    files = [path for path in _files() if path.stat().st_size == 0]
    files += folder().glob("*.json.*.new")
    return [path for path in files if time.time() - path.stat().st_mtime > UNFINISHED_S]


def all_labs() -> list[LabRecord]:
    """Return the records of all labs of this user, by name; damaged ones are left out."""
    return [record for record in map(_read, _files()) if record is not None]


def damaged() -> list[Path]:
    """Return the files of records that cannot be read, such as those that another program changed."""
    return [path for path in _files() if path.stat().st_size and _read(path) is None]


def _files() -> list[Path]:
    return sorted(folder().glob("*.json"))


def _read(path: Path) -> LabRecord | None:
    # Imported here because its import takes longer than most commands.
    from pydantic import TypeAdapter

    try:
        record = TypeAdapter(LabRecord).validate_python(reading.json_file(path))
    except (reading.UnreadableError, ValueError, OSError):
        return None
    return record if record.name == path.stem else None


def find(name: str) -> LabRecord:
    """Return the record of a lab."""
    labs = all_labs()
    for record in labs:
        if record.name == name:
            return record
    known = ", ".join(record.name for record in labs) or "none"
    raise InputError(f"there is no lab {name!r} (known: {known})", "create one: k8sdds lab up EXPERIMENT")


def remove(record: LabRecord) -> list[str]:
    """Kill a lab's holders, then remove its cgroups and its record; return what could not be removed."""
    for pid, started in record.holders.values():
        if processes.kill(pid, started):
            processes.wait_gone(pid, 10)
    left = [folder for folder in record.cgroup_folders if not cgroups.remove(Path(folder))]
    if not left:
        (folder() / f"{record.name}.json").unlink(missing_ok=True)
    return left
