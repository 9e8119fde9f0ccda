"""The cache of what takes long to make: shown, bounded by last use, and emptied.

Each kind of thing has a folder in the cache; the things in it are named GROUP-KEY, where the key tells what
they were made from. When a thing was last used is its time of modification.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from k8sdds.system.paths import cache_folder

KEPT = {
    "archives": 6, "bases": 2, "bundles": 3, "emulators": 1, "native": 2, "packages": 2, "programs": 2,
    "rootfs": 2, "sysroots": 2, "unpacked": 2,
}  # fmt: skip
"""How many of a group are kept, those used last; a deploy takes three archives of each architecture."""
RECENT_S = 2 * 3600
"""What was used so recently may still be in use, and is kept beyond that."""
NODES = "nodes"
"""The disks of local nodes: no cache, only beside it."""


@dataclass(frozen=True)
class Usage:
    """What one kind of thing takes."""

    kind: str
    things: int
    size_bytes: int
    used_s: float
    """Seconds since 1970 when one of them was last used."""


@contextlib.contextmanager
def making(path: Path, lock: str = ".lock") -> Iterator[bool]:
    """Alone make a thing that is missing, which is what it yields; then it counts as used."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / lock).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield not path.exists()
        used(path)


def used(path: Path) -> None:
    """Count a thing as used now. Raises FileNotFoundError."""
    try:
        os.utime(path)
    except FileNotFoundError:
        raise
    except OSError:
        pass  # another user's cache is only read


def usage() -> list[Usage]:
    """All that is in the cache, by kind; what several bundles share counts once."""
    seen: set[int] = set()
    found = []
    for folder in _kinds():
        things = _things(folder)
        last = max((path.lstat().st_mtime for path in things), default=0.0)
        found.append(Usage(folder.name, len(things), sum(_size(path, seen) for path in things), last))
    return found


def prune() -> int:
    """Remove what was not used lately, beyond the last few of each group; the bytes that this freed.

    Standing local nodes keep what they see of it.
    """
    protected, nodes_stand = _shown_to_nodes()
    freed = 0
    for kind, kept in KEPT.items():
        # Under each node's own files lies the root file system, which the record does not name.
        if kind == "rootfs" and nodes_stand:
            continue
        for number, path in _by_use(cache_folder() / kind):
            if (number < kept and not _unfinished(path)) or path in protected:
                continue
            freed += _remove(path, older_than_s=RECENT_S)
    return freed


def empty() -> tuple[int, list[str]]:
    """Remove all but what standing local nodes see; the bytes that this freed, and the kinds that were kept.

    What another command needs at this moment goes as well.
    """
    protected, nodes_stand = _shown_to_nodes()
    freed, kept = 0, set()
    for folder in _kinds():
        for path in folder.iterdir():
            if path in protected or folder in protected or (folder.name == "rootfs" and nodes_stand):
                kept.add(folder.name)
            elif not path.name.endswith(".lock"):
                freed += _remove(path)
    return freed, sorted(kept)


def _kinds() -> list[Path]:
    """The folders of the cache, one for each kind of thing."""
    return sorted(path for path in cache_folder().iterdir() if path.is_dir() and path.name != NODES)


def _things(folder: Path) -> list[Path]:
    """What a folder has of its kind, without what belongs to the making of it."""
    return [path for path in folder.iterdir() if not path.name.endswith((".lock", ".log"))]


def _unfinished(path: Path) -> bool:
    """What a command that was killed left, half made."""
    return path.name.startswith(".") or path.suffix == ".new"


def _by_use(folder: Path) -> Iterator[tuple[int, Path]]:
    """The things of a folder, each with its number in its group: 0 was used last."""
    if not folder.is_dir():
        return
    counts: dict[str, int] = {}
    for path in sorted(_things(folder), key=lambda one: one.lstat().st_mtime, reverse=True):
        group = path.name.rpartition("-")[0]
        yield counts.get(group, 0), path
        counts[group] = counts.get(group, 0) + 1


def _shown_to_nodes() -> tuple[set[Path], bool]:
    """What in the cache local nodes see, and whether there are any: of all state folders."""
    shown: set[Path] = set()
    stand = False
    for owner in (cache_folder() / NODES).glob("*/owner"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            # Without a record it is what a power cut left, for `k8sdds clean`.
            text = Path(owner.read_text(), "record.json").read_text()
            stand = True
            machines = json.loads(text)["machines"]
            shown |= {Path(share["host"]) for one in machines.values() for share in one["spec"]["shares"]}
    return shown, stand


def _remove(path: Path, older_than_s: float | None = None) -> int:
    """Remove a thing at once for all who look; the bytes that this freed."""
    gone = path.with_name(f".{path.name.lstrip('.')}.gone")
    try:
        if older_than_s is not None and time.time() - path.lstat().st_mtime < older_than_s:
            return 0
        freed = _size(path, set(), last_links=True)
        path.rename(gone)
    except OSError:
        return 0  # another command was first, or it is another user's
    if gone.is_dir() and not gone.is_symlink():
        shutil.rmtree(gone, ignore_errors=True)
    else:
        gone.unlink(missing_ok=True)
    return freed


def _size(path: Path, seen: set[int], last_links: bool = False) -> int:
    """Bytes on the disk, each file once; `last_links`: only of files that nothing else links to."""
    total = 0
    pending = [path]
    while pending:
        one = pending.pop()
        try:
            state = one.lstat()
            if one.is_dir() and not one.is_symlink():
                pending += one.iterdir()
        except OSError:
            continue
        if state.st_ino not in seen and not (last_links and state.st_nlink > 1 and not one.is_dir()):
            seen.add(state.st_ino)
            total += state.st_blocks * 512
    return total
