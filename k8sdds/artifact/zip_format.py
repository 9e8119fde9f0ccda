"""Write and read the ZIP file of an artifact, whose bytes follow from its entries: there is one way to write each.

The writer and the reader build headers with the same functions. The reader accepts a header only if it has these
bytes, so that every program that unpacks the file finds the same names and contents. Both process contents in
parts and apply the limits below, so that memory does not depend on the size of the content.

Format 2 ends with a seal, the SHA-256 of all other bytes, in the comment of the ZIP file. Format 1, of earlier
versions of k8sdds, has no seal.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from k8sdds.system.errors import InputError

FORMAT = 2
UNSEALED_FORMAT = 1
LEVEL = 6
CHUNK_BYTES = 1 << 20

MAX_FILES = 500_000
MAX_DIRECTORY_BYTES = 64 << 20
MAX_NAME_BYTES = 1024
MAX_FILE_BYTES = 1 << 30
MAX_TOTAL_BYTES = 64 << 30
MAX_RATIO = 200
"""Largest ratio of the sizes of content and archive, for content that is larger than MAX_FILE_BYTES."""

_LOCAL = struct.Struct("<4s2B4HL2L2H")
_DIRECTORY = struct.Struct("<4s4B4HL2L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_OFFSET64 = struct.Struct("<2HQ")
_VERSION, _VERSION64, _UNIX = 20, 45, 3
_STORED, _DEFLATED = 0, 8
_UTF8 = 0x800
_EARLIEST = (0, 1 << 5 | 1)
"""MS-DOS time and date of every entry: 1980-01-01, the earliest that the format can express."""
_FILE_MODE = 0o100644 << 16
_FOLDER_MODE = 0o40755 << 16 | 0x10
_MAX_32 = 0x7FFFFFFF
"""Largest offset that is written with 32 bits. Format 1 was written by Python's zipfile, which has this limit."""
_MAX_16 = 0xFFFF

_SEAL = b"k8sdds artifact 2 sha256:"
_SEAL_PATTERN = re.compile(re.escape(_SEAL) + rb"[0-9a-f]{64}")
SEAL_BYTES = len(_SEAL) + 64
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f]")
_FEWER = "pack fewer run folders into one artifact"


class Damaged(Exception):
    """The archive, or the entry that is being read, differs from what the writer writes."""


class Entry(NamedTuple):
    """A file in the archive, or a folder if its name ends with a slash."""

    name: str
    crc: int
    compressed_bytes: int
    size_bytes: int
    offset: int

    @property
    def packed_bytes(self) -> int:
        """Number of bytes in front of the directory."""
        return _LOCAL.size + len(self.name.encode()) + self.compressed_bytes


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


def _encoded(name: str) -> tuple[bytes, int]:
    """Return a name's bytes and the flag of its encoding."""
    return name.encode(), 0 if name.isascii() else _UTF8


def _method(name: str) -> tuple[int, int]:
    """Return the compression method and the mode of an entry."""
    return (_STORED, _FOLDER_MODE) if name.endswith("/") else (_DEFLATED, _FILE_MODE)


def local_header(entry: Entry) -> bytes:
    """Return the bytes in front of an entry's content."""
    name, flags = _encoded(entry.name)
    return _LOCAL.pack(
        b"PK\3\4", _VERSION, 0, flags, _method(entry.name)[0], *_EARLIEST,
        entry.crc, entry.compressed_bytes, entry.size_bytes, len(name), 0,
    ) + name  # fmt: skip


def directory_entry(entry: Entry) -> bytes:
    """Return the bytes of an entry in the directory at the end of the archive."""
    name, flags = _encoded(entry.name)
    method, mode = _method(entry.name)
    far = entry.offset > _MAX_32
    extra = _OFFSET64.pack(1, 8, entry.offset) if far else b""
    version = _VERSION64 if far else _VERSION
    return _DIRECTORY.pack(
        b"PK\1\2", version, _UNIX, version, 0, flags, method, *_EARLIEST,
        entry.crc, entry.compressed_bytes, entry.size_bytes, len(name), len(extra), 0, 0, 0, mode,
        0xFFFFFFFF if far else entry.offset,
    ) + name + extra  # fmt: skip


def end(count: int, size: int, offset: int, comment_bytes: int) -> bytes:
    """Return the bytes after the directory, without the comment: number, size and offset of its entries."""
    records = b""
    if count > _MAX_16 or offset > _MAX_32 or size > _MAX_32:
        records = _END64.pack(b"PK\6\6", 44, _VERSION64, _VERSION64, 0, 0, count, count, size, offset)
        records += _LOCATOR64.pack(b"PK\6\7", 0, offset + size, 1)
    count = min(count, _MAX_16)
    return records + _END.pack(
        b"PK\5\6", 0, 0, count, count, min(size, 0xFFFFFFFF), min(offset, 0xFFFFFFFF), comment_bytes
    )


class Writer:
    """Writes an archive to an empty file. Use `file` for each entry, and `finish` once."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._entries: list[Entry] = []
        self._total_bytes = 0
        self._position = 0

    def folder(self, name: str) -> None:
        """Add an entry for a folder; its name must end with a slash."""
        entry = Entry(name, 0, 0, 0, self._position)
        self._output.seek(self._position)
        self._output.write(local_header(entry))
        self._added(entry)

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[FileWriter]:
        """Add a file: yield a writer for its content. On an exception, the archive is as it was before.

        Raises:
            InputError: The content exceeds a limit.
        """
        start = self._position + _LOCAL.size + len(name.encode())
        self._output.seek(start)
        content = FileWriter(self._output, name, self._total_bytes, start)
        yield content
        content.finish()
        entry = Entry(name, content.crc, content.compressed_bytes, content.size_bytes, self._position)
        self._output.seek(self._position)
        self._output.write(local_header(entry))
        self._total_bytes += content.size_bytes
        self._added(entry)

    def _added(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._position += entry.packed_bytes
        if len(self._entries) > MAX_FILES:
            raise InputError(f"there are more than {MAX_FILES:,} files", _FEWER)

    def finish(self) -> None:
        """Write the directory and the seal."""
        self._output.seek(self._position)
        # An entry that was given up may have written further than this.
        self._output.truncate()
        size = 0
        for entry in self._entries:
            size += self._output.write(directory_entry(entry))
        if size > MAX_DIRECTORY_BYTES:
            raise InputError(f"the names of the files need more than {MAX_DIRECTORY_BYTES:,} bytes", _FEWER)
        self._output.write(end(len(self._entries), size, self._position, SEAL_BYTES))
        length = self._output.tell()
        self._output.write(seal(self._output, length))


class FileWriter:
    """Compresses the content of one file of an archive."""

    def __init__(self, output: BinaryIO, name: str, earlier_bytes: int, position: int) -> None:
        self._output = output
        self._name = name
        self._earlier_bytes = earlier_bytes
        self._position = position
        self._deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._sha256 = hashlib.sha256()
        self.crc = self.size_bytes = self.compressed_bytes = 0

    def write(self, content: bytes) -> None:
        """Add content. Raises InputError."""
        self.size_bytes += len(content)
        total = self._earlier_bytes + self.size_bytes
        problem = (
            f"larger than {MAX_FILE_BYTES >> 30} GiB" if self.size_bytes > MAX_FILE_BYTES
            else size_problem(total, self._position + self.compressed_bytes)
        )  # fmt: skip
        if problem:
            raise InputError(
                f"cannot pack {self._name}: {problem}", "remove it from a copy of the run folder"
            )
        self.crc = zlib.crc32(content, self.crc)
        self._sha256.update(content)
        self.compressed_bytes += self._output.write(self._deflate.compress(content))

    def finish(self) -> None:
        """Write the rest of the compressed content."""
        self.compressed_bytes += self._output.write(self._deflate.flush())

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


@dataclass(frozen=True)
class Archive:
    """An archive with a complete directory. The contents are not checked yet."""

    file: BinaryIO
    entries: list[Entry]
    format: int
    length: int
    """Number of bytes before the seal."""

    @classmethod
    def open(cls, file: BinaryIO) -> Archive:
        """Read the directory. Raises Damaged: it is not the directory that the writer writes for these entries."""
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - SEAL_BYTES - _END.size - _LOCATOR64.size - _END64.size))
        tail = file.read()
        sealed = _SEAL_PATTERN.fullmatch(tail[-SEAL_BYTES:]) is not None
        if sealed:
            tail, length = tail[:-SEAL_BYTES], length - SEAL_BYTES
        count, size, offset, end_bytes = _end(tail, SEAL_BYTES if sealed else 0)
        if offset + size + end_bytes != length:
            raise Damaged("not a complete ZIP file, or bytes were added to it")
        if count > MAX_FILES or size > MAX_DIRECTORY_BYTES:
            raise Damaged(f"more than {MAX_FILES:,} files, or {MAX_DIRECTORY_BYTES:,} bytes of names")
        file.seek(offset)
        entries = _directory(file.read(size), count, offset)
        problem = size_problem(sum(entry.size_bytes for entry in entries), length)
        if problem:
            raise Damaged(problem)
        return cls(file, entries, FORMAT if sealed else UNSEALED_FORMAT, length)

    def content(self, entry: Entry) -> Iterator[bytes]:
        """Yield the content of an entry in parts. Raises Damaged before the end of an entry that was changed."""
        header = local_header(entry)
        self.file.seek(entry.offset)
        if self.file.read(len(header)) != header:
            raise Damaged("its header in the archive was changed")
        if not entry.name.endswith("/"):
            yield from _inflated(self.file, entry)

    def check_seal(self) -> None:
        """Raise Damaged if any byte of the archive was changed. Format 1 has no seal to check."""
        if self.format == FORMAT and seal(self.file, self.length) != self.file.read(SEAL_BYTES):
            raise Damaged("its bytes are not the ones that were packed")


def _end(tail: bytes, comment_bytes: int) -> tuple[int, int, int, int]:
    """Return number, size and offset of the directory's entries, and the size of what follows the directory."""
    if len(tail) < _END.size:
        raise Damaged("not a ZIP file")
    _, _, _, _, count, size, offset, _ = _END.unpack(tail[-_END.size :])
    long = tail[-_END.size - _LOCATOR64.size - _END64.size :]
    if long.startswith(b"PK\6\6") and len(long) == _END.size + _LOCATOR64.size + _END64.size:
        *_, count, size, offset = _END64.unpack(long[: _END64.size])
    expected = end(count, size, offset, comment_bytes) if max(size, offset) < 1 << 62 else b""
    if not expected or not tail.endswith(expected):
        raise Damaged("not a ZIP file that k8sdds wrote, or its end was changed")
    return count, size, offset, len(expected)


def _directory(data: bytes, count: int, end_of_contents: int) -> list[Entry]:
    entries: list[Entry] = []
    names: set[str] = set()
    folders: set[str] = set()
    position = offset = 0
    for number in range(1, count + 1):
        entry = _entry(data, offset)
        if entry is None:
            raise Damaged(f"entry {number} of its directory was changed")
        problem = name_problem(entry.name) or (
            "it occurs twice" if entry.name in names
            else "it is not where it was packed" if entry.offset != position
            else "it is a folder with content" if entry.name.endswith("/") and any(entry[1:4])
            else f"it is larger than {MAX_FILE_BYTES >> 30} GiB" if entry.size_bytes > MAX_FILE_BYTES
            else None
        )  # fmt: skip
        if problem:
            raise Damaged(f"entry {number}, {entry.name!a}: {problem}")
        entries.append(entry)
        names.add(entry.name)
        _add_folders(entry.name, folders)
        offset += len(directory_entry(entry))
        position += entry.packed_bytes
    if offset != len(data) or position != end_of_contents:
        raise Damaged("bytes were added to its entries, or removed")
    both = names & folders
    if both:
        raise Damaged(f"{min(both)!a} is both a file and a folder")
    return entries


def _entry(data: bytes, offset: int) -> Entry | None:
    """Return the entry at this offset of the directory, or None if these are not the bytes of any entry."""
    if len(data) - offset < _DIRECTORY.size:
        return None
    fields = _DIRECTORY.unpack_from(data, offset)
    crc, compressed_bytes, size_bytes, name_bytes = fields[9:13]
    start = fields[-1]
    after = offset + _DIRECTORY.size + name_bytes
    if start == 0xFFFFFFFF and len(data) - after >= _OFFSET64.size:
        start = _OFFSET64.unpack_from(data, after)[2]
    try:
        name = data[offset + _DIRECTORY.size : after].decode()
    except UnicodeDecodeError:
        return None
    entry = Entry(name, crc, compressed_bytes, size_bytes, start)
    return entry if data.startswith(directory_entry(entry), offset) else None


def _add_folders(name: str, folders: set[str]) -> None:
    """Add the folders that contain a file."""
    parent = name.rstrip("/").rpartition("/")[0]
    while parent and parent not in folders:
        folders.add(parent)
        parent = parent.rpartition("/")[0]


def _inflated(file: BinaryIO, entry: Entry) -> Iterator[bytes]:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    left = entry.compressed_bytes
    size = crc = 0
    data = b""
    while not inflate.eof:
        if not data:
            data = file.read(min(left, CHUNK_BYTES))
            left -= len(data)
        try:
            part = inflate.decompress(data, CHUNK_BYTES)
        except zlib.error as error:
            raise Damaged(f"cannot be unpacked: {error}") from error
        if not part and not inflate.eof and not data:
            raise Damaged("cannot be unpacked: its compressed data is incomplete")
        data = inflate.unconsumed_tail
        size += len(part)
        crc = zlib.crc32(part, crc)
        if size > entry.size_bytes:
            break
        yield part
    if size != entry.size_bytes or crc != entry.crc or left or inflate.unused_data:
        raise Damaged("its size or its checksum in the archive was changed")
