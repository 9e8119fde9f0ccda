"""Verify an artifact: report every file that is changed, missing or added.

The artifact may be an archive, which is verified without unpacking it, or the folder that it was unpacked to. Both
are read in parts. The checksums and the names of the files are in memory, and their size is limited.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from k8sdds.artifact import checksums, files, zip_format
from k8sdds.artifact.zip_format import Damaged
from k8sdds.system.errors import InputError
from k8sdds.system.faults import explained, is_resource
from k8sdds.system.reading import escaped

MAX_LISTING_BYTES = 64 << 20
"""Largest size of SHA256SUMS. In an archive, it is also limited by the size of the directory."""
MAX_FINDINGS = 10_000
"""Number of findings after which the verification ends."""


@dataclass(frozen=True)
class VerificationIssue:
    """A deviation of kind `changed`, `missing`, `added`, or `damaged` (the archive or its SHA256SUMS)."""

    kind: str
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {escaped(self.path)}" + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class Verification:
    """The result of a verification. `content_id` is None if SHA256SUMS is missing."""

    content_id: str | None
    files: int
    findings: list[VerificationIssue]
    format: int | None = None
    """Version of the archive's format; None for folders."""


def verify(path: Path, expect: str | None = None) -> Verification:
    """Verify an artifact, and if `expect` is given, that it has this content ID."""
    with explained(f"cannot read {path}", "make it readable, or specify another path"):
        if not path.is_dir() and not path.is_file():
            raise InputError(
                f"{path} does not exist",
                "specify an artifact: a ZIP file, or the folder that it was unpacked to",
            )
        result = _verify_folder(path) if path.is_dir() else _verify_archive(path)
    if expect is not None and result.content_id != expect.lower().removeprefix("sha256:"):
        wrong = VerificationIssue(
            "changed", checksums.NAME, f"its content ID is {result.content_id}, not {expect}"
        )
        result.findings.insert(0, wrong)
    return result


_RAW = re.compile("runs/[^/]+/raw/")
Content = Iterable[bytes]
"""A file's content in parts. Iterating raises Damaged or OSError if it cannot be read."""


def _verify_archive(path: Path) -> Verification:
    with path.open("rb") as file:
        result = Verification(None, 0, [])
        try:
            archive = zip_format.Archive.open(file)
            entries = {entry.filename: entry for entry in archive.zip.infolist()}
            listing = entries.pop(checksums.NAME, None)
            limit = min(MAX_LISTING_BYTES, 2 * checksums.size(entries) + (1 << 20))
            # Of the folders, only those of raw files have an entry.
            packed = [(name, entry) for name, entry in entries.items() if not _RAW.fullmatch(name)]
            contents = ((name, archive.content(entry)) for name, entry in packed)
            found = _verify(archive.content(listing) if listing else None, limit, contents)
            result = replace(found, format=archive.format)
            if not result.findings:
                archive.check_seal()
        except Damaged as error:
            return replace(result, findings=[VerificationIssue("damaged", str(path), str(error))])
        return result


def _verify_folder(folder: Path) -> Verification:
    listing = folder / checksums.NAME
    return _verify(_file(listing) if os.path.lexists(listing) else None, MAX_LISTING_BYTES, _files(folder))


def _files(folder: Path) -> Iterator[tuple[str, Content]]:
    for name in files.walk(folder):
        if name != checksums.NAME:
            yield os.fsencode(name).decode("utf-8", "backslashreplace"), _file(folder / name)


def _file(path: Path) -> Iterator[bytes]:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Damaged("not a regular file")
    # The file may be replaced before it is opened. Opening a named pipe would wait for a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if os.fstat(file.fileno()).st_size > zip_format.MAX_FILE_BYTES:
            raise Damaged(f"larger than {zip_format.MAX_FILE_BYTES >> 30} GiB")
        while part := file.read(zip_format.CHUNK_BYTES):
            yield part


def _verify(listing: Content | None, limit: int, contents: Iterator[tuple[str, Content]]) -> Verification:
    """Compare contents with the text of SHA256SUMS, which must not be larger than `limit`."""
    if listing is None:
        return Verification(None, 0, [VerificationIssue("missing", checksums.NAME)])
    text = bytearray()
    content_id = None
    try:
        for part in listing:
            text += part
            if len(text) > limit:
                raise Damaged("it is larger than the names of the files require")
        content_id = checksums.digest(text)
        expected = checksums.read(text)
    except (Damaged, OSError, ValueError) as error:
        if is_resource(error):
            raise
        issue = VerificationIssue("damaged", checksums.NAME, escaped(str(error)))
        return Verification(content_id, 1, [issue])
    text.clear()
    compared, findings = _compare_all(expected, contents)
    return Verification(content_id, 1 + compared, findings)


def _compare_all(
    expected: dict[str, str], contents: Iterator[tuple[str, Content]]
) -> tuple[int, list[VerificationIssue]]:
    """Compare contents with their checksums, which are consumed; return the number of contents and the deviations."""
    findings = []
    count = 0
    for path, content in contents:
        count += 1
        finding = _compared(path, content, expected.pop(path, None))
        if finding:
            findings.append(finding)
        if len(findings) == MAX_FINDINGS:
            unchecked = "the remaining files were not checked"
            return count, [*findings, VerificationIssue("damaged", checksums.NAME, unchecked)]
    findings += [VerificationIssue("missing", path) for path in sorted(expected)[:MAX_FINDINGS]]
    return count, sorted(findings, key=lambda finding: finding.path)


def _compared(path: str, content: Content, expected: str | None) -> VerificationIssue | None:
    """Return the deviation of a file from its expected checksum, if any. Added files are not read."""
    if expected is None:
        return VerificationIssue("added", path)
    digest = hashlib.sha256()
    try:
        for part in content:
            digest.update(part)
    except (Damaged, OSError) as error:
        if is_resource(error):
            raise
        return VerificationIssue("changed", path, getattr(error, "strerror", None) or str(error))
    return None if digest.hexdigest() == expected else VerificationIssue("changed", path)
