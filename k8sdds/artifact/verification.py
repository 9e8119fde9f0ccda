"""Verify an artifact: report every file that is changed, missing or added.

The artifact may be an archive, which is verified without unpacking it, or the folder that it was unpacked to.
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

from k8sdds.artifact import checksums
from k8sdds.artifact.archive import FOLDER_MODE, MADE_AT, MODE
from k8sdds.system.errors import InputError

HEADER_BYTES = 30
"""Size of an entry's local header in a ZIP file, without its name."""

_DAMAGE_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, OSError,
    MemoryError, ValueError, OverflowError, AssertionError,
)  # fmt: skip
"""Exceptions that zipfile and its decompressors raise for damaged entries."""


@dataclass(frozen=True)
class VerificationIssue:
    """A deviation of kind `changed`, `missing`, `added`, or `damaged` (the archive or its SHA256SUMS)."""

    kind: str
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Verification:
    """The result of a verification. `content_id` is None if SHA256SUMS is missing."""

    content_id: str | None
    files: int
    findings: list[VerificationIssue]


def verify(path: Path, expect: str | None = None) -> Verification:
    """Verify an artifact, and if `expect` is given, that it has this content ID.

    Raises:
        InputError: the path does not exist.
    """
    if path.is_dir():
        result = _verify(_read_folder(path))
    elif path.is_file():
        result = _verify_archive(path)
    else:
        raise InputError(
            f"{path} does not exist", "specify an artifact: a ZIP file, or the folder that it was unpacked to"
        )
    if expect is not None and result.content_id != expect.lower().removeprefix("sha256:"):
        wrong = VerificationIssue(
            "changed", checksums.NAME, f"its content ID is {result.content_id}, not {expect}"
        )
        result.findings.insert(0, wrong)
    return result


Content = tuple[str, bytes | None, str]
"""(path, content or None if it cannot be read, the reason)."""


def _verify(contents: Iterator[Content]) -> Verification:
    """Compare contents with the SHA256SUMS among them."""
    digests: dict[str, str | None] = {}
    findings = []
    listing: bytes | None = None
    for path, content, reason in contents:
        if path in digests:
            findings.append(VerificationIssue("added", path, "it occurs twice"))
            continue
        if content is None:
            findings.append(VerificationIssue("changed", path, reason))
            digests[path] = None
            continue
        digests[path] = checksums.digest(content)
        if path == checksums.NAME:
            listing = content
    if listing is None:
        if checksums.NAME not in digests:
            findings.append(VerificationIssue("missing", checksums.NAME))
        return Verification(None, len(digests), findings)
    try:
        expected = checksums.read(listing.decode("utf-8"))
    except ValueError as error:
        findings.append(VerificationIssue("damaged", checksums.NAME, str(error)))
        return Verification(digests[checksums.NAME], len(digests), findings)
    for path in sorted(expected.keys() | digests.keys() - {checksums.NAME}):
        if path not in digests:
            findings.append(VerificationIssue("missing", path))
        elif path not in expected:
            findings.append(VerificationIssue("added", path))
        elif digests[path] is not None and digests[path] != expected[path]:
            findings.append(VerificationIssue("changed", path))
    return Verification(digests[checksums.NAME], len(digests), findings)


def _read_folder(folder: Path) -> Iterator[Content]:
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in sorted([*files, *links]):
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            try:
                if not stat.S_ISREG(path.lstat().st_mode):
                    yield relative, None, "not a regular file"
                else:
                    yield relative, path.read_bytes(), ""
            except OSError as error:
                yield relative, None, error.strerror or str(error)


def _verify_archive(path: Path) -> Verification:
    try:
        with zipfile.ZipFile(path) as archive:
            result = _verify(_read_entries(archive))
            result.findings.extend(_extra_bytes(archive))
            return result
    # A damaged central directory causes many kinds of exceptions in zipfile.
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError, OverflowError) as error:
        return Verification(
            None, 0, [VerificationIssue("damaged", str(path), f"not a complete ZIP file: {error}")]
        )


def _read_entries(archive: zipfile.ZipFile) -> Iterator[Content]:
    for info in archive.infolist():
        parts = PurePosixPath(info.filename).parts
        if info.filename.startswith("/") or ".." in parts or not parts:
            yield info.filename, None, "its path is outside of the artifact"
            continue
        try:
            content = archive.read(info)
        except _DAMAGE_ERRORS as error:
            yield info.filename, None, f"cannot be unpacked: {error}"
            continue
        # The archive contains folder entries only for the runs' raw files.
        raw = info.is_dir() and len(parts) == 3 and (parts[0], parts[2]) == ("runs", "raw") and not content
        mode = FOLDER_MODE if raw else MODE
        if info.date_time != MADE_AT or info.external_attr != mode or info.comment:
            yield info.filename, None, "its entry in the archive was changed"
        elif not raw:
            yield info.filename, content, ""


def _extra_bytes(archive: zipfile.ZipFile) -> Iterator[VerificationIssue]:
    """Yield an issue for bytes before, between or after the entries."""
    position = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        if info.header_offset != position:
            yield VerificationIssue("added", info.filename, "extra bytes before its entry")
        position = info.header_offset + HEADER_BYTES + len(info.filename.encode()) + info.compress_size
    if position != archive.start_dir:
        yield VerificationIssue("added", "the archive", "extra bytes after its last entry")
    if archive.comment:
        yield VerificationIssue("added", "the archive", "a comment")
