"""Write and read the ZIP file of an artifact with zipfile, which gives the same entries the same headers.

The reader accepts an entry only if its headers are the ones that the writer writes and the entries follow each
other without a gap, so that every program that unpacks the file finds the same names and contents. Contents are
processed in parts, within the limits below.

Format 2 ends with a seal, the SHA-256 of all other bytes, in the comment of the ZIP file. Format 1, of earlier
versions of k8sdds, has no seal.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO

from k8sdds.system.errors import InputError

FORMAT = 2
UNSEALED_FORMAT = 1
LEVEL = 6
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
    """Writes an archive to an empty file. Use `file` for each entry, and `finish` once."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._zip = zipfile.ZipFile(output, "w", compresslevel=LEVEL)
        self._total_bytes = 0

    def folder(self, name: str) -> None:
        """Add an entry for a folder; its name must end with a slash."""
        self._zip.writestr(_info(name), b"")

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[FileWriter]:
        """Add a file: yield a writer for its content. On an exception, the archive is as it was before.

        Raises:
            InputError: The content exceeds a limit.
        """
        with tempfile.SpooledTemporaryFile(CHUNK_BYTES) as content:
            writer = FileWriter(content, name)
            yield writer
            content.seek(0)
            info = _info(name)
            info.file_size = writer.size_bytes
            with self._zip.open(info, "w") as entry:
                shutil.copyfileobj(content, entry, CHUNK_BYTES)
        self._total_bytes += writer.size_bytes
        problem = size_problem(self._total_bytes, self._output.tell())
        if problem or len(self._zip.infolist()) > MAX_FILES:
            raise InputError(
                f"cannot pack {name}: {problem or f'there are more than {MAX_FILES:,} files'}",
                "pack fewer run folders into one artifact, or copies without the largest files",
            )

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


class FileWriter:
    """Receives the content of one file of an archive."""

    def __init__(self, output: IO[bytes], name: str) -> None:
        self._output = output
        self._name = name
        self._sha256 = hashlib.sha256()
        self.size_bytes = 0

    def write(self, content: bytes) -> None:
        """Add content. Raises InputError."""
        self.size_bytes += len(content)
        if self.size_bytes > MAX_FILE_BYTES:
            raise InputError(
                f"cannot pack {self._name}: larger than {MAX_FILE_BYTES >> 30} GiB",
                "remove it from a copy of the run folder",
            )
        self._sha256.update(content)
        self._output.write(content)

    @property
    def digest(self) -> str:
        """SHA-256 of the content in hexadecimal digits."""
        return self._sha256.hexdigest()


def size_problem(content_bytes: int, archive_bytes: int) -> str | None:
    """Return the limit that the total size of the content exceeds, or None."""
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
    """An archive with a complete directory. The contents are not checked yet."""

    file: BinaryIO
    zip: zipfile.ZipFile
    format: int

    @classmethod
    def open(cls, file: BinaryIO) -> Archive:
        """Read the directory. Raises Damaged: it is not the directory that the writer writes for these entries."""
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
        _check_directory(archive)
        if _directory(archive) != _tail(file, archive.start_dir):
            raise Damaged("its directory was changed")
        problem = size_problem(sum(info.file_size for info in archive.infolist()), file.seek(0, os.SEEK_END))
        if problem:
            raise Damaged(problem)
        return cls(file, archive, FORMAT if sealed else UNSEALED_FORMAT)

    def content(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the content of an entry in parts. Raises Damaged before the end of an entry that was changed."""
        header = _local_header(entry)
        self.file.seek(entry.header_offset)
        if self.file.read(len(header)) != header:
            raise Damaged("its header in the archive was changed")
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
    """Return what the writer writes for the name, sizes and position of an entry."""
    info = _info(entry.filename)
    info.CRC, info.compress_size, info.file_size = entry.CRC, entry.compress_size, entry.file_size
    info.header_offset = entry.header_offset
    return info


def _local_header(entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes in front of an entry's content."""
    return _written(entry).FileHeader(zip64=False)


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


def _check_directory(archive: zipfile.ZipFile) -> None:
    """Raise Damaged unless the entries are named and placed as the writer does it."""
    entries = archive.infolist()
    if len(entries) > MAX_FILES:
        raise Damaged(f"more than {MAX_FILES:,} files")
    names: set[str] = set()
    folders: set[str] = set()
    position = 0
    for number, entry in enumerate(entries, 1):
        problem = name_problem(entry.filename) or (
            "it occurs twice" if entry.filename in names
            else "it is not where it was packed" if entry.header_offset != position
            else "it is a folder with content" if entry.is_dir() and (entry.file_size or entry.compress_size)
            else f"it is larger than {MAX_FILE_BYTES >> 30} GiB"
            if max(entry.file_size, entry.compress_size) > MAX_FILE_BYTES + CHUNK_BYTES
            else None
        )  # fmt: skip
        if problem:
            raise Damaged(f"entry {number}, {entry.filename!a}: {problem}")
        names.add(entry.filename)
        _add_folders(entry.filename, folders)
        position += len(_local_header(entry)) + entry.compress_size
    if position != archive.start_dir:
        raise Damaged("bytes were added to its entries, or removed")
    both = names & folders
    if both:
        raise Damaged(f"{min(both)!a} is both a file and a folder")


def _add_folders(name: str, folders: set[str]) -> None:
    """Add the folders that contain a file."""
    parent = name.rstrip("/").rpartition("/")[0]
    while parent and parent not in folders:
        folders.add(parent)
        parent = parent.rpartition("/")[0]
