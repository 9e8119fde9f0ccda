"""Create cgroups for the lab's pods, below the cgroup of k8sdds itself."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from k8sdds.system.errors import PrerequisiteError

CONTROLLERS = ("cpuacct", "memory", "cpu")
"""Controllers of cgroup v1 that pods use: CPU time, memory and CPU quota."""

PREFIX = "k8sdds-"
"""Begins the names of the top cgroups of k8sdds."""

UNIFIED = "unified"
"""Name of the hierarchy of cgroup v2."""

CPU_REQUEST = 0.05
"""CPUs that a pod requests unless a trial states a number."""
MIN_QUOTA_US = 1000
"""Shortest CPU time in a period that the kernel accepts."""
SHARES_OF_CPU = 1024
"""CPU shares of cgroup v1 for a request of one CPU, as in Kubernetes."""


@dataclass(frozen=True)
class CpuResources:
    """The CPU limit of a pod and its request, as `resources` of a container in Kubernetes."""

    quota: float | None = None
    """Number of CPUs that it may use at most; None without a limit."""
    period_ms: float = 100.0
    """Period of the quota, by default that of the kernel and of Kubernetes."""
    burst_ms: float = 0.0
    """Unused CPU time of earlier periods that it may use in addition, at most that of one period."""
    request: float | None = None
    """Number of CPUs that it has at least, in proportion to the requests of others, if all are busy."""

    def __bool__(self) -> bool:
        """Return whether a limit or a request is set."""
        return self != CpuResources()

    @property
    def quota_us(self) -> int | None:
        """CPU time that it may use in each period, in microseconds; None without a quota."""
        return None if self.quota is None else round(self.quota * round(self.period_ms * 1000))

    def files(self, version: str) -> dict[str, str]:
        """Return the files of a cgroup (`v1` or `v2`) with their content, in the order in which to write them.

        Requests become shares of v1, of which weights of v2 are a linear function, as in the kubelet.
        """
        period, quota, burst = round(self.period_ms * 1000), self.quota_us, round(self.burst_ms * 1000)
        shares = None if self.request is None else max(2, int(self.request * SHARES_OF_CPU))
        found: dict[str, object] = (
            {
                "cpu.cfs_period_us": quota and period,
                "cpu.cfs_quota_us": quota,
                "cpu.cfs_burst_us": burst,
                "cpu.shares": shares,
            }
            if version == "v1"
            else {
                "cpu.max": quota and f"{quota} {period}",
                "cpu.max.burst": burst,
                "cpu.weight": shares and 1 + (shares - 2) * 9999 // 262142,
            }
        )
        return {name: str(value) for name, value in found.items() if value}


@dataclass(frozen=True)
class OwnCgroup:
    """The cgroup of this process in each hierarchy; pods' cgroups are created below it."""

    version: str
    """`v1`, `v2` or `none`."""
    folders: dict[str, Path]
    """Controller (v1) or `unified` (v2) to the folder of the cgroup."""


def own_cgroup() -> OwnCgroup:
    """Return the cgroup of this process. v1 is preferred if its controllers are mounted.

    Then v2, where it is mounted too, has no controllers, but the pressure of each cgroup.
    """
    visible = {
        name: folder for names, folder, _ in hierarchies() for name in names.split(",") if folder is not None
    }
    used = {name: visible[name] for name in CONTROLLERS if name in visible}
    unified = {UNIFIED: visible[UNIFIED]} if UNIFIED in visible else {}
    if "cpuacct" in used:
        return OwnCgroup("v1", used | {key: own for key, own in unified.items() if os.access(own, os.W_OK)})
    return OwnCgroup("v2" if unified else "none", unified)


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

    def __init__(self, name: str, limited: bool) -> None:
        """Name the cgroups. `limited`: whether any pod of the campaign has CPU limits."""
        self.own = own_cgroup()
        self.unavailable = ""
        parents = self.own.folders
        if limited and self.own.version == "v2":
            # A cgroup that contains processes, as the own one, cannot give its children a controller.
            parents = {UNIFIED: next(point for names, _, point in hierarchies() if names == UNIFIED)}
        self._roots = {key: folder / f"{PREFIX}{name}" for key, folder in parents.items()}
        if not self._roots:
            self.unavailable = "no cgroup hierarchy with CPU accounting is mounted"

    @property
    def folders(self) -> list[str]:
        """The top folders of the campaign, which `clean` must remove with everything below."""
        return [str(folder) for folder in self._roots.values()]

    def create(self, pod: str, limits: CpuResources) -> list[Path]:
        """Create the cgroups of a pod and return their folders; empty if cgroups are not permitted.

        Raises PrerequisiteError if its limits cannot be set.
        """
        folders: list[Path] = []
        try:
            for root in self._roots.values():
                # That of an earlier network with this name may have other limits.
                remove(root / pod)
                (root / pod).mkdir(parents=True)
                folders.append(root / pod)
        except OSError as error:
            self.remove()
            self.unavailable = f"{error.filename}: {os.strerror(error.errno or 0)}"
            self._roots = {}
            folders = []
        if limits:
            self._limit(pod, limits)
        return folders

    def _limit(self, pod: str, limits: CpuResources) -> None:
        version = self.own.version
        root = self._roots.get("cpu" if version == "v1" else UNIFIED)
        if root is None:
            reason = self.unavailable or "no cpu controller"
            raise PrerequisiteError(
                f"cannot limit the CPU time of pods: {reason}", "remove cpu_quota and cpu_request"
            )
        try:
            if version == "v2":
                _enable_cpu(root)
            for name, text in limits.files(version).items():
                _set(root / pod / name, text)
        except OSError as error:
            raise PrerequisiteError(
                f"cannot limit the CPU time of pods: {error}",
                "remove cpu_quota and cpu_request, or run as root",
            ) from error

    def remove(self) -> None:
        """Remove the campaign's cgroups. Their processes must have ended."""
        for folder in self._roots.values():
            remove(folder)


def limited(folders: Iterable[Path]) -> Path | None:
    """Return the folder of a pod's cgroup that has a CPU limit; None if none of them has one."""
    # "-1" and "max ..." are no limits.
    files = ((folder, folder / name) for folder in folders for name in ("cpu.cfs_quota_us", "cpu.max"))
    return next((folder for folder, file in files if file.exists() and file.read_text()[0].isdigit()), None)


def _enable_cpu(folder: Path) -> None:
    """Give the children of a cgroup of v2 below the root the controller `cpu`, if the root gives it that."""
    if "cpu" not in (folder / "cgroup.controllers").read_text().split():
        root = folder.parent / "cgroup.subtree_control"
        raise PrerequisiteError(f"{root} does not contain cpu", f"as root: echo +cpu > {root}")
    (folder / "cgroup.subtree_control").write_text("+cpu")


def _set(file: Path, text: str) -> None:
    """Write a file of a cgroup. Raises PrerequisiteError if the kernel does not have it, or sets another value."""
    if not file.exists():
        setting = "cpu_burst_ms" if "burst" in file.name else "cpu_quota and cpu_request"
        raise PrerequisiteError(f"this kernel has no {file.name} for cgroups", f"remove {setting}")
    file.write_text(text)
    if (found := file.read_text().strip()) != text:
        raise PrerequisiteError(f"the kernel set {file} to {found} instead of {text}", "remove cpu_quota")


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
        if folder.is_dir():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True
