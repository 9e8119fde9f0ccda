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

    def of_cluster(self, data: Path) -> Path:
        """Return the cgroup of the cluster with this data folder."""
        return self.parent / f"{cgroups.PREFIX}{data.name}"

    def create(self, data: Path, node: str) -> Path:
        """Create the cgroup of a node in that of its cluster and return its folder."""
        group = self.of_cluster(data)
        try:
            group.mkdir(exist_ok=True)
            if self.name == "only-v2":
                for folder in (self.parent, group):
                    available = (folder / "cgroup.controllers").read_text().split()
                    enabled = " ".join(f"+{name}" for name in V2_CONTROLLERS if name in available)
                    (folder / "cgroup.subtree_control").write_text(enabled)
            if "cpuset" in self.name.split(","):
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (group / file).write_text((self.parent / file).read_text())
                (group / "cgroup.clone_children").write_text("1")
            (group / node).mkdir(exist_ok=True)
        except OSError as error:
            raise PrerequisiteError(
                f"cannot create the cgroup {group}: {error.strerror}", "run as root, with writable cgroups"
            ) from error
        return group / node


def hierarchies() -> list[Hierarchy]:
    """Return all mounted hierarchies."""
    mounted = list(cgroups.hierarchies())
    if not mounted:
        raise PrerequisiteError(
            "no cgroup hierarchy is mounted", "mount /sys/fs/cgroup, because local nodes need cgroups"
        )
    if [names for names, _, _ in mounted] == [cgroups.UNIFIED]:
        # A v2 cgroup that contains processes cannot enable controllers for its children, except the root.
        return [Hierarchy("only-v2", mounted[0][2])]
    return [Hierarchy(names, folder or point) for names, folder, point in mounted]
