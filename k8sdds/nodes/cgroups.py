"""Create cgroups for local nodes: one in every hierarchy, for the node's systemd."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from k8sdds.system.cgroups import mounts
from k8sdds.system.errors import PrerequisiteError

V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")


@dataclass(frozen=True)
class Hierarchy:
    """One cgroup hierarchy of this machine."""

    name: str
    """Its controllers as mounted, `name=systemd`, `unified` (v2 in addition to v1) or `only-v2`."""
    parent: Path
    """The cgroup in which the cluster's cgroup is created."""


def hierarchies() -> list[Hierarchy]:
    """Return all mounted hierarchies.

    Raises:
        PrerequisiteError: There is none.
    """
    mounted = mounts()
    result = []
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, names, path = line.split(":", 2)
        root, point = mounted.get(names.split(",")[0] or "unified", ("", None))
        if point is None:
            continue
        relative = os.path.relpath(path, root)
        own = point if relative.startswith("..") else point / relative
        if names:
            result.append(Hierarchy(names, own))
        elif len(lines) > 1:
            result.append(Hierarchy("unified", own))
        else:
            # A v2 cgroup that contains processes cannot enable controllers for its children, except the root.
            result.append(Hierarchy("only-v2", point))
    if not result:
        raise PrerequisiteError(
            "no cgroup hierarchy is mounted", "mount /sys/fs/cgroup, because local nodes need cgroups"
        )
    return result


def create(hierarchy: Hierarchy, cluster_folder: str, node: str) -> Path:
    """Create a node's cgroup in a hierarchy and return its folder. Raises PrerequisiteError."""
    group = hierarchy.parent / cluster_folder
    try:
        group.mkdir(exist_ok=True)
        if hierarchy.name == "only-v2":
            for folder in (hierarchy.parent, group):
                available = (folder / "cgroup.controllers").read_text().split()
                enabled = " ".join(f"+{name}" for name in V2_CONTROLLERS if name in available)
                (folder / "cgroup.subtree_control").write_text(enabled)
        if "cpuset" in hierarchy.name.split(","):
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((hierarchy.parent / file).read_text())
            (group / "cgroup.clone_children").write_text("1")
        (group / node).mkdir(exist_ok=True)
    except OSError as error:
        raise PrerequisiteError(
            f"cannot create the cgroup {group}: {error.strerror}", "run as root, with writable cgroups"
        ) from error
    return group / node
