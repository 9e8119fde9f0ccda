"""Cgroups for local nodes: one below our own in every hierarchy, for the machine's systemd."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from k8sdds.system.cgroups import mounts
from k8sdds.system.errors import PrerequisiteError

V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")


@dataclass(frozen=True)
class Hierarchy:
    """One cgroup hierarchy of this machine."""

    name: str
    """Its controllers as mounted, `name=systemd`, `unified` (v2 beside v1) or `only-v2`."""
    parent: Path
    """Where our folder is made."""


def hierarchies() -> list[Hierarchy]:
    """All that are mounted here. Read before a process moves."""
    where = mounts()
    found = []
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, names, path = line.split(":", 2)
        root, point = where.get(names.split(",")[0] or "unified", ("", None))
        if point is None:
            continue
        relative = os.path.relpath(path, root)
        own = point if relative.startswith("..") else point / relative
        if names:
            found.append(Hierarchy(names, own))
        elif len(lines) > 1:
            found.append(Hierarchy("unified", own))
        else:
            # Our own cgroup has processes in it and can give no controllers on; the root can.
            found.append(Hierarchy("only-v2", point))
    if not found:
        raise PrerequisiteError(
            "no cgroup hierarchy is mounted", "local nodes need cgroups: mount /sys/fs/cgroup"
        )
    return found


def make(hierarchy: Hierarchy, cluster_folder: str, node: str) -> Path:
    """The node's cgroup in a hierarchy. Raises PrerequisiteError where it cannot be made."""
    group = hierarchy.parent / cluster_folder
    try:
        group.mkdir(exist_ok=True)
        if hierarchy.name == "only-v2":
            for folder in (hierarchy.parent, group):
                there = (folder / "cgroup.controllers").read_text().split()
                wanted = " ".join(f"+{name}" for name in V2_CONTROLLERS if name in there)
                (folder / "cgroup.subtree_control").write_text(wanted)
        if "cpuset" in hierarchy.name.split(","):
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((hierarchy.parent / file).read_text())
            (group / "cgroup.clone_children").write_text("1")
        (group / node).mkdir(exist_ok=True)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot make the cgroup {group}: {error.strerror}", "local nodes need root and writable cgroups"
        ) from error
    return group / node


def remove(folder: Path, patience_s: float = 10) -> bool:
    """Remove a cgroup with all below it, once its processes have ended; True if it is gone."""
    deadline = time.monotonic() + patience_s
    while folder.is_dir():
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        if time.monotonic() > deadline:
            return not folder.is_dir()
        time.sleep(0.02)
    return True
