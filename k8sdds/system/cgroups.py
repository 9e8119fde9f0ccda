"""Cgroups for the lab's pods: below k8sdds's own cgroup, where that is permitted."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from k8sdds.system.errors import PrerequisiteError

CONTROLLERS = ("cpuacct", "memory", "cpu")
"""Controllers of cgroup v1 that pods use: CPU time, memory, and the quota."""

QUOTA_PERIOD_US = 100_000
"""CFS period, the kernel's and Kubernetes' default; quotas over periods below 20 ms are erratic."""


@dataclass(frozen=True)
class Parents:
    """The own cgroup in each hierarchy: where pods' cgroups may be made."""

    version: str
    """`v1`, `v2` or `none`."""
    folders: dict[str, Path]
    """Controller (v1) or `unified` (v2) to the folder of the own cgroup."""


def own() -> Parents:
    """The own cgroup, found from /proc; v1 is preferred where its controllers are mounted."""
    found = mounts()
    v1: dict[str, Path] = {}
    v2: dict[str, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(",") if names else ["unified"]:
            if name in found:
                root, point = found[name]
                relative = os.path.relpath(path, root)
                if not relative.startswith(".."):
                    (v2 if name == "unified" else v1)[name] = point / relative
    wanted = {name: v1[name] for name in CONTROLLERS if name in v1}
    if "cpuacct" in wanted:
        return Parents("v1", wanted)
    return Parents("v2", v2) if v2 else Parents("none", {})


def mounts() -> dict[str, tuple[str, Path]]:
    """Controller to (root of the mount within the hierarchy, mount point)."""
    found: dict[str, tuple[str, Path]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        fields = before.split()
        if kind == "cgroup":
            for name in options.split(","):
                found.setdefault(name, (fields[3], Path(fields[4])))
        elif kind == "cgroup2":
            found.setdefault("unified", (fields[3], Path(fields[4])))
    return found


class PodCgroups:
    """The cgroups of one campaign's pods. `lack` says why there are none, where there are none."""

    def __init__(self, name: str) -> None:
        self.parents = own()
        self.lack = ""
        self._roots = {key: folder / f"k8sdds-{name}" for key, folder in self.parents.folders.items()}
        if not self._roots:
            self.lack = "no cgroup hierarchy with CPU accounting is mounted"

    @property
    def folders(self) -> list[str]:
        """The campaign's own folders: what `clean` must remove, with all below."""
        return [str(folder) for folder in self._roots.values()]

    def make(self, pod: str, cpu_quota: float | None) -> list[Path]:
        """Cgroup folders for a pod, empty where cgroups are not permitted.

        Raises PrerequisiteError if a quota is wanted that cannot be set here.
        """
        folders: list[Path] = []
        try:
            for root in self._roots.values():
                root.mkdir(exist_ok=True)
                (root / pod).mkdir(exist_ok=True)
                folders.append(root / pod)
        except OSError as error:
            self.remove()
            self.lack = f"{error.filename}: {os.strerror(error.errno or 0)}"
            self._roots = {}
            folders = []
        if cpu_quota is not None:
            self._limit(pod, cpu_quota)
        return folders

    def _limit(self, pod: str, quota: float) -> None:
        cpu = self._roots.get("cpu") or self._roots.get("unified")
        if cpu is None:
            raise PrerequisiteError(
                f"no CPU quota here: {self.lack or 'no cpu controller'}", "leave out cpu_quota"
            )
        wanted = round(quota * QUOTA_PERIOD_US)
        try:
            if "cpu" in self._roots:
                (cpu / pod / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
                (cpu / pod / "cpu.cfs_quota_us").write_text(str(wanted))
                set_to = int((cpu / pod / "cpu.cfs_quota_us").read_text())
            else:
                (cpu / pod / "cpu.max").write_text(f"{wanted} {QUOTA_PERIOD_US}")
                set_to = int((cpu / pod / "cpu.max").read_text().split()[0])
        except (OSError, ValueError) as error:
            raise PrerequisiteError(
                f"no CPU quota here: {error}", "leave out cpu_quota, or run as root"
            ) from error
        if set_to != wanted:
            raise PrerequisiteError(
                f"the kernel set a CPU quota of {set_to} us instead of {wanted}", "leave out cpu_quota"
            )

    def remove(self) -> None:
        """Remove the campaign's cgroups; processes in them must have ended."""
        remove(self.folders)


def remove(folders: list[str], patience_s: float = 5) -> list[str]:
    """Remove cgroup folders with their children; returns those that could not be removed.

    A cgroup stays busy for a moment after its last process has ended, so this waits for it.
    """
    left = []
    for folder in map(Path, folders):
        deadline = time.monotonic() + patience_s
        while folder.is_dir():
            try:
                for child in folder.iterdir():
                    if child.is_dir():
                        child.rmdir()
                folder.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    left.append(str(folder))
                    break
                time.sleep(0.01)
    return left
