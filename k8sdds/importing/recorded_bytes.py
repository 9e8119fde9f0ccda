"""Read the bytes of a recording once and forward: parts with a length, and what is compressed."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any, Protocol

import lz4.frame
import zstandard

MAX_TEXT_BYTES = 1 << 20
"""Longest text of a record."""
MAX_WINDOW_BYTES = 1 << 27
"""Most memory of a decompressor."""
STEP_BYTES = 1 << 20
"""Most bytes that are read at once of what is skipped or copied."""


class DamagedError(Exception):
    """A file contradicts its format."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Part:
    """A part of a stream, which is read once and forward."""

    def __init__(self, source: _Source, size: int) -> None:
        self._source = source
        self.left = size

    def read(self, size: int) -> bytes:
        """Return this number of bytes, or fewer at the end of the part."""
        size = min(size, self.left)
        data = self._source.read(size)
        if len(data) < size:
            raise DamagedError("it ends within a record: it is incomplete")
        self.left -= size
        return data

    def take(self, size: int) -> bytes:
        """Return exactly this number of bytes."""
        if size > self.left:
            raise DamagedError(f"{size:,} bytes should follow, but {self.left:,} do")
        return self.read(size)

    def integer(self, size: int) -> int:
        """Read an integer without sign."""
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        """Read a text after its length."""
        if (size := self.integer(4)) > MAX_TEXT_BYTES:
            raise DamagedError(f"a text has {size:,} bytes")
        return self.take(size).decode(errors="replace")

    def records(self) -> Iterator[tuple[int, Part]]:
        """Yield the kind and the content of each record of MCAP."""
        while self.left:
            kind, size = struct.unpack("<BQ", self.take(9))
            if size > self.left:
                raise DamagedError(f"a record of {size:,} bytes should follow, but {self.left:,} bytes do")
            record = Part(self, size)
            yield kind, record
            while record.left:
                record.read(STEP_BYTES)


class Lz4:
    """The content of a frame of LZ4."""

    def __init__(self, source: Part) -> None:
        self._content: Any = lz4.frame.open(source)

    def read(self, size: int, /) -> bytes:
        """Return at most this number of bytes."""
        try:
            data: bytes = self._content.read(size)
        except (RuntimeError, EOFError) as error:
            raise DamagedError(str(error)) from error
        return data


def zstd(source: Any) -> io.BufferedReader:
    """Return the content of a stream of Zstandard."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    content: Any = decompressor.stream_reader(source, read_across_frames=True, closefd=False)
    return io.BufferedReader(content)
