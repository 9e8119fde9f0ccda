"""Find the files of a published folder, recognize them by content, and group them into trials."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from k8sdds.importing import kubectl_top, layouts, osrf
from k8sdds.model.trial import PUBLISHER, Participant, Role
from k8sdds.perftest import log
from k8sdds.perftest.log import Log
from k8sdds.system import faults
from k8sdds.system.files import natural
from k8sdds.system.grouping import grouped
from k8sdds.system.reading import escaped

LOG, METRICS, NOTE, TABLE = "log", "metrics", "note", "table"
OTHER, SKIPPED, UNREADABLE = "other", "skipped", "unreadable"

_MTU = re.compile(r"\s*MTU\s*[=:]\s*([0-9]{3,5})\s*")


@dataclass
class Source:
    """One file of the published folder."""

    path: PurePosixPath
    """Path relative to the imported folder, as printable text."""
    data: bytes | None
    kind: str
    why: str = ""
    """Why the file could not be interpreted."""
    log: Log | None = None
    nodes: kubectl_top.Nodes = field(default_factory=dict)
    rows: dict[int, osrf.Row] = field(default_factory=dict)
    """The rows of a table by line."""
    mtu: int | None = None
    """The MTU that a note states for its folder."""
    size: int = 0
    sha256: str | None = None
    used: list[str] = field(default_factory=list)
    """The trials that use the file, each as `TRIAL_ID PARTICIPANT`."""

    @property
    def role(self) -> Role | None:
        """The role of the participant that wrote this log, from the content or, if missing there, the file name."""
        if self.log and self.log.role:
            return self.log.role
        _, named = layouts.group(self.path.name)
        return named.role if named else None


@dataclass
class Bundle:
    """The logs of one execution of the PerfTest programs, and the files that accompany them."""

    folder: PurePosixPath
    stem: str
    logs: dict[str, Source] = field(default_factory=dict)
    """Logs by participant, such as `pub0` or `sub3`."""
    table: Source | None = None
    """The table that has a row for the trial instead of logs."""
    metrics: list[Source] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)
    """Messages about logs that name the same participant as another log."""

    @property
    def name(self) -> str:
        """The location of the logs within the imported folder."""
        return str(self.folder / self.stem) if self.stem else str(self.folder)


def sources(root: Path, skip: Sequence[str] = (), leave_out: Path | None = None) -> list[Source]:
    """Return every file below `root`, or `root` itself if it is a file, in natural order. Links are not followed.

    Files that match one of the `skip` patterns are listed but not read. The folder `leave_out` is ignored.
    """
    files = []
    for path in sorted(_files(root, leave_out), key=natural):
        relative = PurePosixPath(escaped(path.relative_to(root) if path != root else path.name))
        if any(fits(pattern, relative) for pattern in skip):
            files.append(Source(relative, None, SKIPPED, "skipped with --skip"))
        else:
            files.append(_source(path, relative))
    return files


def fits(pattern: str, path: PurePosixPath) -> bool:
    """Return whether a shell pattern matches a path, a parent folder, or the name of either."""
    names = (*path.parts, str(path), *(str(parent) for parent in path.parents))
    return any(fnmatchcase(name, pattern) for name in names if name != ".")


def bundles(sources: list[Source], layout: str) -> list[Bundle]:
    """Group the logs into bundles, in the order of their files."""
    used = (source for source in sources if source.kind in (LOG, METRICS))
    by_folder = grouped(used, lambda source: source.path.parent)
    return [bundle for folder, files in by_folder.items() for bundle in _of_folder(folder, files, layout)]


def mtu_of(sources: list[Source], folder: PurePosixPath) -> int | None:
    """Return the MTU stated by a note in this folder or in the nearest parent folder that has one."""
    notes = {source.path.parent: source.mtu for source in sources if source.mtu is not None}
    return next((notes[above] for above in (folder, *folder.parents) if above in notes), None)


def _files(root: Path, leave_out: Path | None) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    left_out = leave_out.resolve() if leave_out else None
    for folder, names, files in os.walk(root, onerror=_raise):
        names[:] = [n for n in names if n != ".git" and (Path(folder) / n).resolve() != left_out]
        yield from (Path(folder) / name for name in files)


def _raise(error: OSError) -> None:
    """Let an unreadable folder end the import, because its files would be missing in the account of all files."""
    raise error


def _source(path: Path, relative: PurePosixPath) -> Source:
    try:
        size = path.lstat().st_size
        if path.is_symlink() or not path.is_file():
            return Source(relative, None, UNREADABLE, "not a regular file")
        if size > log.MAX_BYTES:
            why = f"{size} bytes, more than the limit of {log.MAX_BYTES}"
            return Source(relative, None, UNREADABLE, why, size=size)
        data = path.read_bytes()
    except OSError as error:
        if faults.is_resource(error):
            raise
        return Source(relative, None, UNREADABLE, error.strerror or "unreadable")
    why = "neither a log of PerfTest nor a known table"
    source = Source(relative, data, OTHER, why, size=len(data))
    source.sha256 = hashlib.sha256(data).hexdigest()
    if not data.strip():
        source.why = "empty"
    elif data.startswith(b"name,"):
        source.nodes, problems = kubectl_top.read(data)
        source.kind, source.why = METRICS if source.nodes else OTHER, "; ".join(problems)
    elif osrf.is_table(data):
        source.rows, problems = osrf.read(data)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        source.kind, source.why = TABLE if source.rows else OTHER, "".join(problems[:1]) + more
    elif len(data) < 100 and (note := _MTU.fullmatch(data.decode(errors="replace"))):
        source.kind, source.why, source.mtu = NOTE, "", int(note[1])
    elif (read := log.read(data)).understood:
        source.kind, source.why, source.log = LOG, "", read
    return source


def _of_folder(folder: PurePosixPath, files: list[Source], layout: str) -> list[Bundle]:
    logs = [source for source in files if source.kind == LOG]
    publishers = [source for source in logs if source.role == PUBLISHER]
    together = layout == layouts.K8SDDS or len(publishers) == 1
    by_stem: dict[str, Bundle] = {}
    for source in logs:
        stem, named = layouts.group(source.path.name)
        if together:
            stem = ""
        bundle = by_stem.setdefault(stem, Bundle(folder, stem))
        _put(bundle, source, named)
    for source in (source for source in files if source.kind == METRICS):
        # If the folder contains several trials, a table belongs to the trial with the same name.
        own = next((b for stem, b in by_stem.items() if stem and source.path.name.startswith(stem)), None)
        if own is None and len(by_stem) == 1:
            own = next(iter(by_stem.values()))
        if own is not None:
            own.metrics.append(source)
    return list(by_stem.values())


def _put(bundle: Bundle, source: Source, named: Participant | None) -> None:
    """Add a log to a bundle, under the participant named in the log or, if missing there, in the file name."""
    assert source.log is not None
    role, identity = source.role, source.log.settings.identity
    if identity is None and named and named.role == role:
        identity = named.index
    participant = Participant(role, identity or 0).name if role else "unknown0"
    if participant in bundle.logs:
        bundle.clashes.append(
            f"{bundle.logs[participant].path.name} and {source.path.name} are both {participant}"
        )
        while participant in bundle.logs:
            participant += "-again"
    bundle.logs[participant] = source
