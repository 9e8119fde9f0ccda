"""Create cgroups for local nodes: one in every hierarchy, for the node's systemd."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from k8sdds.system import cgroups
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
    mounted = list(cgroups.hierarchies())
    if not mounted:
        raise PrerequisiteError(
            "no cgroup hierarchy is mounted", "mount /sys/fs/cgroup, because local nodes need cgroups"
        )
    if [names for names, _, _ in mounted] == [cgroups.UNIFIED]:
        # A v2 cgroup that contains processes cannot enable controllers for its children, except the root.
        return [Hierarchy("only-v2", mounted[0][2])]
    return [Hierarchy(names, folder or point) for names, folder, point in mounted]


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
