"""Is an artifact whole? Every file that is changed, missing or added, by name.

An archive is checked as it is, without unpacking it; an unpacked one as a folder.
"""

from __future__ import annotations

import lzma
import os
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from k8sdds.artifact import archive as packing
from k8sdds.artifact import checksums
from k8sdds.system.errors import InputError

HEADER_BYTES = 30
"""Of an entry's own header in a ZIP file, before its name."""


_DAMAGES = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, OSError,
    MemoryError, ValueError, OverflowError, AssertionError,
)  # fmt: skip
"""What zipfile and its decompressors raise on an entry of damaged bytes."""


@dataclass(frozen=True)
class VerificationIssue:
    """One thing wrong: `changed`, `missing`, `added`, or `damaged` (the archive or its SHA256SUMS)."""

    kind: str
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Verified:
    """What was found. `content_id` is None where SHA256SUMS is missing."""

    content_id: str | None
    files: int
    findings: list[VerificationIssue]


def verify(path: Path, expect: str | None = None) -> Verified:
    """Check an artifact, archive or folder; with `expect` also that it is the one with this content id.

    Raises InputError only where there is nothing to check.
    """
    if path.is_dir():
        found = _checked(_folder(path))
    elif path.is_file():
        found = _archive(path)
    else:
        raise InputError(
            f"{path} is not there", "name an artifact: a ZIP file, or the folder it was unpacked to"
        )
    if expect is not None and found.content_id != expect.lower().removeprefix("sha256:"):
        wrong = VerificationIssue("changed", checksums.NAME, f"its content id is {found.content_id}, not {expect}")
        found.findings.insert(0, wrong)
    return found


Content = tuple[str, bytes | None, str]
"""(path, content or None where it cannot be read, why)"""


def _checked(contents: Iterator[Content]) -> Verified:
    """Contents against the SHA256SUMS among them."""
    found: dict[str, str | None] = {}
    findings = []
    listing: bytes | None = None
    for path, content, why in contents:
        if path in found:
            findings.append(VerificationIssue("added", path, "a second time"))
            continue
        if content is None:
            findings.append(VerificationIssue("changed", path, why))
            found[path] = None
            continue
        found[path] = checksums.digest(content)
        if path == checksums.NAME:
            listing = content
    if listing is None:
        if checksums.NAME not in found:
            findings.append(VerificationIssue("missing", checksums.NAME))
        return Verified(None, len(found), findings)
    try:
        wanted = checksums.read(listing.decode("utf-8"))
    except ValueError as error:
        findings.append(VerificationIssue("damaged", checksums.NAME, str(error)))
        return Verified(found[checksums.NAME], len(found), findings)
    for path in sorted(wanted.keys() | found.keys() - {checksums.NAME}):
        if path not in found:
            findings.append(VerificationIssue("missing", path))
        elif path not in wanted:
            findings.append(VerificationIssue("added", path))
        elif found[path] is not None and found[path] != wanted[path]:
            findings.append(VerificationIssue("changed", path))
    return Verified(found[checksums.NAME], len(found), findings)


def _folder(folder: Path) -> Iterator[Content]:
    for parent, folders, files in os.walk(folder):
        here = Path(parent)
        links = [name for name in folders if (here / name).is_symlink()]
        for name in sorted([*files, *links]):
            path = here / name
            said = path.relative_to(folder).as_posix()
            try:
                if not stat.S_ISREG(path.lstat().st_mode):
                    yield said, None, "not a plain file"
                else:
                    yield said, path.read_bytes(), ""
            except OSError as error:
                yield said, None, error.strerror or str(error)


def _archive(path: Path) -> Verified:
    try:
        with zipfile.ZipFile(path) as archive:
            found = _checked(_entries(archive))
            found.findings.extend(_loose_bytes(archive))
            return found
    # A damaged directory makes zipfile stumble in many ways.
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, OverflowError) as error:
        return Verified(None, 0, [VerificationIssue("damaged", str(path), f"no whole ZIP file: {error}")])


def _entries(archive: zipfile.ZipFile) -> Iterator[Content]:
    for info in archive.infolist():
        parts = PurePosixPath(info.filename).parts
        if info.filename.startswith("/") or ".." in parts or not parts:
            yield info.filename, None, "its path leads out of the artifact"
            continue
        try:
            content = archive.read(info)
        except _DAMAGES as error:
            yield info.filename, None, f"cannot be unpacked: {error}"
            continue
        # The only entries without a file are those that stand for the raw files of a run.
        raw = info.is_dir() and len(parts) == 3 and (parts[0], parts[2]) == ("runs", "raw") and not content
        mode = packing.FOLDER_MODE if raw else packing.MODE
        if info.date_time != packing.MADE_AT or info.external_attr != mode or info.comment:
            yield info.filename, None, "its entry in the archive was altered"
        elif not raw:
            yield info.filename, content, ""


def _loose_bytes(archive: zipfile.ZipFile) -> Iterator[VerificationIssue]:
    """Bytes before, between or after the entries that belong to no file."""
    at = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        if info.header_offset != at:
            yield VerificationIssue("added", info.filename, "bytes before its entry that belong to no file")
        at = info.header_offset + HEADER_BYTES + len(info.filename.encode()) + info.compress_size
    if at != archive.start_dir:
        yield VerificationIssue("added", "the archive", "bytes after its last entry that belong to no file")
    if archive.comment:
        yield VerificationIssue("added", "the archive", "a comment")
