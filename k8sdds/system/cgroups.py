"""Create cgroups for the lab's pods, below the cgroup of k8sdds itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from k8sdds.system.errors import PrerequisiteError

CONTROLLERS = ("cpuacct", "memory", "cpu")
"""Controllers of cgroup v1 that pods use: CPU time, memory and CPU quota."""

PREFIX = "k8sdds-"
"""Begins the names of the top cgroups of k8sdds."""

UNIFIED = "unified"
"""Name of the hierarchy of cgroup v2."""

QUOTA_PERIOD_US = 100_000
"""CFS period: the default of the kernel and of Kubernetes. Quotas over periods below 20 ms are erratic."""


@dataclass(frozen=True)
class OwnCgroup:
    """The cgroup of this process in each hierarchy; pods' cgroups are created below it."""

    version: str
    """`v1`, `v2` or `none`."""
    folders: dict[str, Path]
    """Controller (v1) or `unified` (v2) to the folder of the cgroup."""


def own_cgroup() -> OwnCgroup:
    """Return the cgroup of this process. v1 is preferred if its controllers are mounted."""
    visible = {
        name: folder for names, folder, _ in hierarchies() for name in names.split(",") if folder is not None
    }
    used = {name: visible[name] for name in CONTROLLERS if name in visible}
    if "cpuacct" in used:
        return OwnCgroup("v1", used)
    return OwnCgroup("v2", {UNIFIED: visible[UNIFIED]}) if UNIFIED in visible else OwnCgroup("none", {})


def hierarchies() -> Iterator[tuple[str, Path | None, Path]]:
    """Yield the mounted hierarchies: controllers (v1) or `unified` (v2), own cgroup if it is visible, mount point."""
    mounted: dict[str, tuple[str, Path]] = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        _, _, _, root, point, *_ = before.split()
        if kind in ("cgroup", "cgroup2"):
            for name in options.split(",") if kind == "cgroup" else [UNIFIED]:
                mounted.setdefault(name, (root, Path(point)))
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        names = names or UNIFIED
        # The controllers of a hierarchy are mounted together.
        root, mount_point = mounted.get(names.split(",")[0], ("", None))
        if mount_point is not None:
            relative = os.path.relpath(path, root)
            yield names, None if relative.startswith("..") else mount_point / relative, mount_point


class PodCgroups:
    """The cgroups of one campaign's pods. If cgroups cannot be created, `unavailable` contains the reason."""

    def __init__(self, name: str) -> None:
        self.own = own_cgroup()
        self.unavailable = ""
        self._roots = {key: folder / f"{PREFIX}{name}" for key, folder in self.own.folders.items()}
        if not self._roots:
            self.unavailable = "no cgroup hierarchy with CPU accounting is mounted"

    @property
    def folders(self) -> list[str]:
        """The top folders of the campaign, which `clean` must remove with everything below."""
        return [str(folder) for folder in self._roots.values()]

    def create(self, pod: str, cpu_quota: float | None) -> list[Path]:
        """Create the cgroups of a pod and return their folders; empty if cgroups are not permitted.

        `cpu_quota` is its limit in cores.
        """
        folders: list[Path] = []
        try:
            for root in self._roots.values():
                root.mkdir(exist_ok=True)
                (root / pod).mkdir(exist_ok=True)
                folders.append(root / pod)
        except OSError as error:
            self.remove()
            self.unavailable = f"{error.filename}: {os.strerror(error.errno or 0)}"
            self._roots = {}
            folders = []
        if cpu_quota is not None:
            self._limit(pod, cpu_quota)
        return folders

    def _limit(self, pod: str, quota: float) -> None:
        cpu = self._roots.get("cpu") or self._roots.get(UNIFIED)
        if cpu is None:
            raise PrerequisiteError(
                f"cannot set a CPU quota: {self.unavailable or 'no cpu controller'}", "remove cpu_quota"
            )
        quota_us = round(quota * QUOTA_PERIOD_US)
        try:
            if "cpu" in self._roots:
                (cpu / pod / "cpu.cfs_period_us").write_text(str(QUOTA_PERIOD_US))
                (cpu / pod / "cpu.cfs_quota_us").write_text(str(quota_us))
                set_to = int((cpu / pod / "cpu.cfs_quota_us").read_text())
            else:
                (cpu / pod / "cpu.max").write_text(f"{quota_us} {QUOTA_PERIOD_US}")
                set_to = int((cpu / pod / "cpu.max").read_text().split()[0])
        except (OSError, ValueError) as error:
            raise PrerequisiteError(
                f"cannot set a CPU quota: {error}", "remove cpu_quota, or run as root"
            ) from error
        if set_to != quota_us:
            raise PrerequisiteError(
                f"the kernel set a CPU quota of {set_to} us instead of {quota_us} us", "remove cpu_quota"
            )

    def remove(self) -> None:
        """Remove the campaign's cgroups. Their processes must have ended."""
        for folder in self._roots.values():
            remove(folder)


def admits_realtime(folder: Path) -> bool:
    """Return whether processes in a cgroup may have real-time priority.

    With group scheduling for real-time, the kernel refuses it in a cgroup of v1 that has no share of that time. The
    shares of all pods could add up to one CPU at most, so pods get none.
    """
    try:
        return int((folder / "cpu.rt_runtime_us").read_text()) != 0
    except (OSError, ValueError):
        return True


def is_own(folder: Path) -> bool:
    """Return whether a folder is a top cgroup of k8sdds, or a child of one. The record of another one is damaged."""
    return any(name.startswith(PREFIX) for name in (folder.name, folder.parent.name))


def remove(folder: Path, timeout_s: float = 10) -> bool:
    """Remove a cgroup and its children when their processes have ended; return whether it was removed.

    A cgroup that is not one of k8sdds is kept.
    """
    if not is_own(folder):
        return True
    deadline = time.monotonic() + timeout_s
    while (folder / "cgroup.procs").is_file():
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(path)
        if time.monotonic() > deadline:
            return not folder.is_dir()
        time.sleep(0.02)
    return True
