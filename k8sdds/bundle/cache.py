"""Manage the cache of build results that take long to create: reuse, list, prune and empty it.

Each kind of entry has a folder in the cache. Entries are named GROUP-KEY, where the key is a hash of
everything the entry was created from. The modification time of an entry is the time of its last use.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from k8sdds.bundle.contents import HOST_ARCH, Report
from k8sdds.system.files import creating_folder
from k8sdds.system.paths import LIBEXEC, built_folder, cache_folder

KEEP = {
    "archives": 6, "bases": 2, "bundles": 3, "emulators": 1, LIBEXEC: 3, "native": 2, "official": 2, "packages": 2,
    "programs": 2, "rootfs": 2, "sysroots": 4, "unpacked": 2,
}  # fmt: skip
"""Number of most recently used entries to keep per group. A deploy uses three archives per architecture."""
RECENT_S = 2 * 3600
"""Entries used more recently are always kept, because they may still be in use."""
SECONDS = {
    "programs/kubernetes": 300, "programs/metrics-server": 120, "programs/flanneld": 90, "programs/coredns": 60,
    "programs/etcd": 30, "programs": 2, "official/kubernetes": 90,
    "official": 10, "rootfs": 120, "native": 180,
}  # fmt: skip
"""Typical time to create an entry on two idle cores, by the beginning of its path."""
OTHER_SECONDS = 20
SHOWN_S = 60
"""Steps that take at least as long are shown with their typical time."""
NODES = "nodes"
"""Folder of the disks of local nodes, which are not cache entries."""


@dataclass(frozen=True)
class Usage:
    """Disk usage of one kind of entry."""

    kind: str
    things: int
    """Number of entries."""
    size_bytes: int
    used_s: float
    """Time at which any entry was last used, in seconds since 1970."""


class NotCached(Exception):
    """An entry is missing, and `frozen` prevents its creation."""


_missing: ContextVar[dict[str, int] | None] = ContextVar("_missing", default=None)


@contextlib.contextmanager
def frozen() -> Iterator[dict[str, int]]:
    """Leave the cache unchanged in this block, and yield the steps that create missing entries, with their times in s.

    `creating` raises NotCached instead, which ends the block without an error. The steps are complete after it.
    """
    steps: dict[str, int] = {}
    token = _missing.set(steps)
    try:
        with contextlib.suppress(NotCached):
            yield steps
    finally:
        _missing.reset(token)


def is_frozen() -> bool:
    """Return whether this is a block of `frozen`."""
    return _missing.get() is not None


def require_all(step: str = "", seconds: int = OTHER_SECONDS) -> None:
    """Raise NotCached if entries are missing in this block of `frozen`, for a step that needs all of them.

    Code that can name further missing entries suppresses NotCached until it calls this.
    """
    if missing := _missing.get():
        missing |= {step: seconds} if step else {}
        raise NotCached


class Numbered:
    """Report the steps of a plan with their numbers and typical times, and other lines unchanged."""

    def __init__(self, report: Report, steps: Mapping[str, int]) -> None:
        self._report = report
        self._steps = steps
        self._numbers = {step: f"[{number}/{len(steps)}] " for number, step in enumerate(steps, 1)}

    def __call__(self, line: str) -> None:
        """Report a line."""
        self._report(self._numbers.get(line, "") + _with_time(line, self._steps.get(line, 0)))


def planned(report: Report, fill: Callable[[Report], object]) -> Numbered:
    """Report what `fill` adds to the cache, and return the report with which to run it.

    `fill` adds entries and reports its steps. It is called here in a block of `frozen`.
    """
    if isinstance(report, Numbered):
        return report
    report = functools.cache(report)  # `fill` reports the reasons of its plan twice
    with frozen() as steps:
        fill(report)
    for line in describe(steps):
        report(line)
    return Numbered(report, steps)


def describe(steps: Mapping[str, int]) -> list[str]:
    """Return the lines of a plan: how many steps it has, how long they take, and what they do."""
    if not steps:
        return []
    if len(steps) == 1:
        return [f"not in the cache yet: {_with_time(*next(iter(steps.items())))}"]
    lines = [f"not in the cache yet: {len(steps)} steps, {_about(sum(steps.values()))} on two idle cores"]
    for verb in dict.fromkeys(step.partition(" ")[0] for step in steps):
        names = [
            _with_time(step.removesuffix(f" for {HOST_ARCH}"), seconds).partition(" ")[2]
            for step, seconds in steps.items()
            if step.startswith(f"{verb} ")
        ]
        lines.append(f"  {verb} {', '.join(names)}")
    return lines


def _with_time(step: str, seconds: int) -> str:
    return f"{step} ({_about(seconds)})" if seconds >= SHOWN_S else step


def _about(seconds: int) -> str:
    return f"about {max(1, round(seconds / 60))} min"


@contextlib.contextmanager
def creating(
    path: Path, step: str = "", report: Report = lambda _: None, lock: str = ".lock"
) -> Iterator[bool]:
    """Hold an exclusive lock and yield whether an entry is missing, which the caller must then create.

    On exit, the entry is marked as used. `report` receives the step that creates it, such as `building etcd`. Raises
    NotCached if it is missing in a block of `frozen`.
    """
    missing_steps = _missing.get()
    if missing_steps is not None and path.exists():
        yield False
        return
    if missing_steps is not None:
        name = f"{path.parent.name}/{path.name}"
        seconds = (time for start, time in SECONDS.items() if name.startswith(start))
        missing_steps[step or name] = next(seconds, OTHER_SECONDS)
        raise NotCached
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / lock).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        missing = not path.exists()
        if missing and step:
            report(step)
        yield missing
        mark_used(path)


def folder(path: Path, step: str, report: Report, fill: Callable[[Path], object]) -> Path:
    """Return an entry that is a folder; if it is missing, create it, then prune the cache.

    `fill` receives the temporary path of the folder, and creates it. The rest is as in `creating`.
    """
    with creating(path, step, report) as missing:
        if missing:
            with creating_folder(path) as unfinished:
                fill(unfinished)
    if missing:
        prune()
    return path


def mark_used(path: Path) -> None:
    """Set the time of an entry's last use to now, except in a block of `frozen`. Raises FileNotFoundError."""
    try:
        if is_frozen():
            path.stat()
        else:
            os.utime(path)
    except FileNotFoundError:
        raise
    except OSError:
        pass  # the cache of another user may be read-only


def usage() -> list[Usage]:
    """Return the disk usage of each kind of entry. Files that several entries share count once."""
    counted: set[int] = set()
    usages = []
    for folder in _kinds():
        entries = _entries(folder)
        last = max((path.lstat().st_mtime for path in entries), default=0.0)
        size = sum(_size(path, counted) for path in entries)
        usages.append(Usage(folder.name, len(entries), size, last))
    return usages


def prune(dry_run: bool = False) -> int:
    """Remove entries that were not used recently and are beyond `KEEP`; return the bytes freed.

    Entries that are mounted in running local nodes are kept. With `dry_run`, nothing is removed.
    """
    protected, has_nodes = _mounted_in_nodes()
    freed = 0
    for kind, kept in KEEP.items():
        # Every node has an overlay over the root file system, which the record does not name.
        if kind == "rootfs" and has_nodes:
            continue
        for number, path in _by_use(cache_folder() / kind):
            # What a killed command leaves has such a name.
            is_unfinished = path.name.startswith(".") or path.suffix == ".new"
            if (number < kept and not is_unfinished) or path in protected:
                continue
            freed += remove(path, RECENT_S, dry_run)
    return freed


def empty(dry_run: bool = False) -> tuple[int, list[str]]:
    """Remove all entries, even if another command is using them; return the bytes freed, and the kinds that were kept.

    Entries mounted in running local nodes are kept, and so are the native programs of this installation. With
    `dry_run`, nothing is removed.
    """
    protected, has_nodes = _mounted_in_nodes()
    protected.add(built_folder())
    freed, kept = 0, set()
    for folder in _kinds():
        for path in folder.iterdir():
            if path in protected or folder in protected or (folder.name == "rootfs" and has_nodes):
                kept.add(folder.name)
            elif not path.name.endswith(".lock"):
                freed += remove(path, dry_run=dry_run)
    return freed, sorted(kept)


def _kinds() -> list[Path]:
    """Return the folders of the cache, one per kind of entry."""
    return sorted(path for path in cache_folder().iterdir() if path.is_dir() and path.name != NODES)


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder, without locks and build logs."""
    return [path for path in folder.iterdir() if not path.name.endswith((".lock", ".log"))]


def _by_use(folder: Path) -> Iterator[tuple[int, Path]]:
    """Yield the entries of a folder with their rank in their group; 0 is the most recently used."""
    if not folder.is_dir():
        return
    counts: dict[str, int] = {}
    for path in sorted(_entries(folder), key=lambda entry: entry.lstat().st_mtime, reverse=True):
        group = path.name.rpartition("-")[0]
        yield counts.get(group, 0), path
        counts[group] = counts.get(group, 0) + 1


def _mounted_in_nodes() -> tuple[set[Path], bool]:
    """Return the host folders mounted in local nodes of all users, and whether there are local nodes."""
    mounted: set[Path] = set()
    has_nodes = False
    for owner in (cache_folder() / NODES).glob("*/owner"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            # Without a record, the folder is a leftover of a power failure, which `k8sdds clean` removes.
            text = Path(owner.read_text(), "record.json").read_text()
            has_nodes = True
            machines = json.loads(text)["machines"]
            mounted |= {Path(share["host"]) for node in machines.values() for share in node["spec"]["shares"]}
    return mounted, has_nodes


def remove(path: Path, older_than_s: float | None = None, dry_run: bool = False) -> int:
    """Remove an entry, atomically for other commands, unless `dry_run`; return the bytes freed."""
    renamed = path.with_name(f".{path.name.lstrip('.')}.gone")
    try:
        if older_than_s is not None and time.time() - path.lstat().st_mtime < older_than_s:
            return 0
        freed = _size(path, set(), last_links=True)
        if dry_run:
            return freed
        path.rename(renamed)
    except OSError:
        return 0  # another command removed it, or it belongs to another user
    if renamed.is_dir() and not renamed.is_symlink():
        shutil.rmtree(renamed, ignore_errors=True)
    else:
        renamed.unlink(missing_ok=True)
    return freed


def _size(path: Path, counted: set[int], last_links: bool = False) -> int:
    """Return the disk space of a path in bytes.

    Inodes in `counted` are not counted again, and it is extended. With `last_links`, only files without other hard
    links count.
    """
    total = 0
    pending = [path]
    while pending:
        current = pending.pop()
        try:
            state = current.lstat()
            if current.is_dir() and not current.is_symlink():
                pending += current.iterdir()
        except OSError:
            continue
        if state.st_ino not in counted and not (last_links and state.st_nlink > 1 and not current.is_dir()):
            counted.add(state.st_ino)
            total += state.st_blocks * 512
    return total
