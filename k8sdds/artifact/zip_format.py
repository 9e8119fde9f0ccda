"""Write and read the ZIP file of an artifact with zipfile, which gives the same entries the same headers.

The reader accepts an entry only if its headers are the ones that the writer writes and the entries follow each
other without a gap, so that every program that unpacks the file finds the same names and contents. Contents are
processed in parts, within the limits below.

Format 2 ends with a seal, the SHA-256 of all other bytes, in the comment of the ZIP file. Format 1, of earlier
versions of k8sdds, has no seal.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import BinaryIO

from k8sdds.system.errors import InputError

FORMAT = 2
UNSEALED_FORMAT = 1
CHUNK_BYTES = 1 << 20

MAX_FILES = 200_000
MAX_DIRECTORY_BYTES = 16 << 20
MAX_NAME_BYTES = 1024
MAX_FILE_BYTES = 1 << 30
MAX_TOTAL_BYTES = 64 << 30
MAX_RATIO = 200
"""Largest ratio of the sizes of content and archive, for content that is larger than MAX_FILE_BYTES."""

_SEAL = b"k8sdds artifact 2 sha256:"
_SEAL_PATTERN = re.compile(re.escape(_SEAL) + rb"[0-9a-f]{64}")
SEAL_BYTES = len(_SEAL) + 64
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f]")


class Damaged(Exception):
    """The archive, or the entry that is being read, differs from what the writer writes."""


def name_problem(name: str) -> str | None:
    """Return why a file of this name cannot be in an artifact, or None.

    A name must mean the same file on every system, inside of the folder to which the artifact is unpacked.
    """
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    if len(encoded) > MAX_NAME_BYTES:
        return f"its name is longer than {MAX_NAME_BYTES} bytes"
    if _UNPRINTABLE.search(name):
        return "its name contains a control character"
    if "\\" in name:
        return "its name contains a backslash"
    if not name or {"", ".", ".."}.intersection(name.removesuffix("/").split("/")):
        return "its path is outside of the artifact"
    return None


def _info(name: str) -> zipfile.ZipInfo:
    """Return the entry of a file, or of a folder if the name ends with a slash. Its date is 1980-01-01."""
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.compress_type = zipfile.ZIP_STORED if info.is_dir() else zipfile.ZIP_DEFLATED
    info.external_attr = 0o40755 << 16 | 0x10 if info.is_dir() else 0o100644 << 16
    return info


class Writer:
    """Writes an archive to an empty file. Use `add` for each file, and `finish` once."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._zip = zipfile.ZipFile(output, "w")
        self._total_bytes = 0

    def folder(self, name: str) -> None:
        """Add an entry for a folder; its name must end with a slash."""
        self._zip.writestr(_info(name), b"")

    def add(self, name: str, parts: Iterable[bytes]) -> tuple[str, int]:
        """Add a file; return its SHA-256 and its size. If `parts` raises, the archive is as it was before."""
        with tempfile.SpooledTemporaryFile(CHUNK_BYTES) as content:
            for part in parts:
                content.write(part)
            info = _info(name)
            info.file_size = content.tell()
            content.seek(0)
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            content.seek(0)
            with self._zip.open(info, "w") as entry:
                shutil.copyfileobj(content, entry, CHUNK_BYTES)
        self._total_bytes += info.file_size
        problem = size_problem(info.file_size, self._total_bytes, self._output.tell())
        if problem or len(self._zip.infolist()) > MAX_FILES:
            raise InputError(
                f"cannot pack {name}: {problem or f'there are more than {MAX_FILES:,} files'}",
                "pack fewer run folders into one artifact, or copies without the largest files",
            )
        return digest, info.file_size

    def close(self) -> None:
        """Write no more. Without `finish`, the archive has no seal."""
        self._zip.close()

    def finish(self) -> None:
        """Write the directory and the seal."""
        self._zip.comment = bytes(SEAL_BYTES)
        directory = self._zip.start_dir
        self._zip.close()
        length = self._output.seek(0, os.SEEK_END) - SEAL_BYTES
        if length - directory > MAX_DIRECTORY_BYTES:
            raise InputError(
                f"the names of the files need more than {MAX_DIRECTORY_BYTES:,} bytes",
                "pack fewer run folders into one artifact",
            )
        self._output.write(seal(self._output, length))


def size_problem(largest_bytes: int, content_bytes: int, archive_bytes: int) -> str | None:
    """Return the limit that the largest file or the whole content exceeds, or None."""
    if largest_bytes > MAX_FILE_BYTES:
        return f"larger than {MAX_FILE_BYTES >> 30} GiB"
    if content_bytes > MAX_TOTAL_BYTES:
        return f"the content is larger than {MAX_TOTAL_BYTES >> 30} GiB"
    if content_bytes > MAX_FILE_BYTES + MAX_RATIO * archive_bytes:
        return f"the content is more than {MAX_RATIO} times as large as the archive"
    return None


def seal(file: BinaryIO, length: int) -> bytes:
    """Return the seal of the first `length` bytes of a file; the file is then positioned after them."""
    digest = hashlib.sha256()
    file.seek(0)
    while length:
        part = file.read(min(length, CHUNK_BYTES))
        if not part:
            raise Damaged("the file became shorter")
        digest.update(part)
        length -= len(part)
    return _SEAL + digest.hexdigest().encode()


class _BoundedReads:
    """A file for zipfile, which reads a directory at once, whatever size the end of the archive states."""

    def __init__(self, file: BinaryIO) -> None:
        self.seek, self.tell, self.seekable, self._read = file.seek, file.tell, file.seekable, file.read

    def read(self, size: int = -1) -> bytes:
        if size > MAX_DIRECTORY_BYTES:
            raise Damaged(f"more than {MAX_DIRECTORY_BYTES:,} bytes of names")
        return self._read(MAX_DIRECTORY_BYTES if size < 0 else size)


@dataclass(frozen=True)
class Archive:
    """An archive with the headers that the writer writes. The contents are not checked yet."""

    file: BinaryIO
    zip: zipfile.ZipFile
    format: int

    @classmethod
    def open(cls, file: BinaryIO) -> Archive:
        """Read the headers. Raises Damaged: they are not those that the writer writes for these entries."""
        try:
            archive = zipfile.ZipFile(_BoundedReads(file))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise Damaged("not a complete ZIP file") from error
        except (zipfile.BadZipFile, ValueError, OverflowError, struct.error, NotImplementedError) as error:
            raise Damaged(f"not a complete ZIP file: {error}") from error
        sealed = _SEAL_PATTERN.fullmatch(archive.comment) is not None
        if archive.comment and not sealed:
            raise Damaged("its comment is not a seal")
        entries = archive.infolist()
        sizes = [max(entry.file_size, entry.compress_size - CHUNK_BYTES) for entry in entries]
        _check_names(entries)
        problem = size_problem(max(sizes, default=0), sum(sizes), file.seek(0, os.SEEK_END))
        if problem:
            raise Damaged(problem)
        _check_headers(archive, file)
        return cls(file, archive, FORMAT if sealed else UNSEALED_FORMAT)

    def content(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the content of an entry in parts. Raises Damaged if it cannot be unpacked."""
        try:
            with self.zip.open(entry) as content:
                while part := content.read(CHUNK_BYTES):
                    yield part
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise Damaged(f"cannot be unpacked: {error}") from error

    def check_seal(self) -> None:
        """Raise Damaged if any byte of the archive was changed. Format 1 has no seal to check."""
        length = self.file.seek(0, os.SEEK_END) - SEAL_BYTES
        if self.format == FORMAT and seal(self.file, length) != self.file.read():
            raise Damaged("its bytes are not the ones that were packed")


def _written(entry: zipfile.ZipInfo) -> zipfile.ZipInfo:
    """Return the bytes that the writer writes for the name, sizes and position of an entry."""
    info = _info(entry.filename)
    info.CRC, info.compress_size, info.file_size = entry.CRC, entry.compress_size, entry.file_size
    info.header_offset = entry.header_offset
    return info


def _directory(archive: zipfile.ZipFile) -> bytes:
    """Return all bytes that the writer writes after the content of these entries."""
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w") as copy:
            copy.filelist.extend(map(_written, archive.infolist()))
            copy.start_dir = archive.start_dir
            copy.comment = archive.comment
        return _tail(file, archive.start_dir)


def _tail(file: BinaryIO, start: int) -> bytes:
    file.seek(start)
    return file.read(MAX_DIRECTORY_BYTES + CHUNK_BYTES)


def _check_headers(archive: zipfile.ZipFile, file: BinaryIO) -> None:
    """Raise Damaged unless the entries follow each other, with the headers and the directory that the writer writes."""
    position = 0
    for number, entry in enumerate(archive.infolist(), 1):
        header = _written(entry).FileHeader(zip64=False)
        file.seek(position)
        if entry.header_offset != position or file.read(len(header)) != header:
            raise Damaged(f"the header of entry {number}, {entry.filename!a}, was changed, or is elsewhere")
        if entry.is_dir() and (entry.file_size or entry.compress_size):
            raise Damaged(f"entry {number}, {entry.filename!a}: it is a folder with content")
        position += len(header) + entry.compress_size
    if position != archive.start_dir:
        raise Damaged("bytes were added to its entries, or removed")
    if _directory(archive) != _tail(file, archive.start_dir):
        raise Damaged("its directory was changed")


def _check_names(entries: Sequence[zipfile.ZipInfo]) -> None:
    if len(entries) > MAX_FILES:
        raise Damaged(f"more than {MAX_FILES:,} files")
    names: set[str] = set()
    for number, entry in enumerate(entries, 1):
        name = entry.filename
        problem = name_problem(name) or ("it occurs twice" if name in names else None)
        if problem:
            raise Damaged(f"entry {number}, {name!a}: {problem}")
        names.add(name)
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    if both := names & folders:
        raise Damaged(f"{min(both)!a} is both a file and a folder")
