"""Read and write HdrHistograms in the format V2: counts of ranges of values, which are wider the larger the values are.

Sources: http://hdrhistogram.org, and HdrHistogram_c, whose results a unit test compares with these.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_HEADER = struct.Struct(">IiiiQQd")
"""Cookie, length of the counts, offset, significant digits, lowest and highest value, ratio."""
_COOKIE, _COMPRESSED_COOKIE = 0x1C849303, 0x1C849304
_DIGITS, _HIGHEST = 3, 100_000_000_000
_MAX_BYTES = 8 << 20
"""Most bytes of uncompressed counts, which is more than any number of ranges needs with three digits."""


class FormatError(ValueError):
    """A text is not a histogram."""


@dataclass(frozen=True)
class Histogram:
    """Ranges of values, in their order: arrays of the lowest values, the numbers of values, and the counts above 0."""

    lows: Any
    widths: Any
    counts: Any

    @property
    def total(self) -> int:
        """The number of counted values."""
        return int(self.counts.sum())

    @property
    def minimum(self) -> int:
        """The lowest value of the first range."""
        return int(self.lows[0])

    @property
    def maximum(self) -> int:
        """The highest value of the last range."""
        return int(self.lows[-1] + self.widths[-1] - 1)

    @property
    def mean(self) -> float:
        """The mean of the middles of the ranges."""
        return float(self.counts @ (self.lows + self.widths // 2).astype(float)) / self.total

    def count(self, value: int) -> int:
        """Return the count of the range of a value."""
        return int(self.counts[(self.lows <= value) & (value < self.lows + self.widths)].sum())

    def above(self, value: int) -> int:
        """Return the count of the ranges above that of a value."""
        return int(self.counts[self.lows > value].sum())

    def percentiles(self, percents: Sequence[float]) -> list[int]:
        """Return the highest value of the range in which each percentile is; for 0, the lowest value."""
        targets = [max(int(percent * self.total / 100 + 0.5), 1) for percent in percents]
        at = np.searchsorted(np.cumsum(self.counts), targets)
        highest = (self.lows + self.widths - 1)[at].tolist()
        return [high if percent else self.minimum for percent, high in zip(percents, highest, strict=True)]

    def __add__(self, other: Histogram) -> Histogram:
        lows, first, place = np.unique(
            np.concatenate((self.lows, other.lows)), return_index=True, return_inverse=True
        )
        counts = np.zeros(len(lows), dtype=np.int64)
        np.add.at(counts, place, np.concatenate((self.counts, other.counts)))
        return Histogram(lows, np.concatenate((self.widths, other.widths))[first], counts)


def encode(counts: Mapping[int, int]) -> str:
    """Return the histogram of values, each as often as its count, as text with a resolution of three digits."""
    half, found = _half_bits(_DIGITS), Counter[int]()
    for value, count in counts.items():
        shift = max(value.bit_length() - half - 1, 0)
        found[(shift << half) + (value >> shift)] += count
    data, last = bytearray(), -1
    for index, count in sorted(found.items()):
        # A negative word is a number of ranges without values.
        for word in ([2 * (index - last - 1) - 1] if index > last + 1 else []) + [2 * count]:
            while word > 127:
                data.append(word & 127 | 128)
                word >>= 7
            data.append(word)
        last = index
    header = _HEADER.pack(_COOKIE | 0x10, len(data), 0, _DIGITS, 1, max(_HIGHEST, *counts), 1.0)
    packed = zlib.compress(header + data)
    return base64.b64encode(struct.pack(">Ii", _COMPRESSED_COOKIE | 0x10, len(packed)) + packed).decode()


def decode(text: str) -> Histogram:
    """Return the histogram in a text. Raises FormatError if it is damaged, or larger than any histogram of a log."""
    try:
        return _decoded(base64.b64decode(text, validate=True))
    except (ValueError, zlib.error, struct.error) as error:
        raise FormatError(f"not a histogram: {error}") from error


def _decoded(packed: bytes) -> Histogram:
    cookie, length = struct.unpack_from(">Ii", packed)
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed[8:], _HEADER.size + _MAX_BYTES)
    inner, size, offset, digits, lowest, highest, _ = _HEADER.unpack_from(data)
    known = (cookie & ~0xF0, inner & ~0xF0, offset) == (_COMPRESSED_COOKIE, _COOKIE, 0)
    whole = length == len(packed) - 8 and unpacker.eof and size == len(data) - _HEADER.size
    if not (known and whole and 1 <= digits <= 5 and 1 <= lowest <= highest // 2 and highest < 1 << 62):
        raise FormatError("its header is wrong")
    words = _words(np.frombuffer(data, np.uint8, offset=_HEADER.size))
    present, steps = words > 0, np.where(words < 0, -words, 1)
    half, unit = _half_bits(digits), lowest.bit_length() - 1
    most = (max(highest.bit_length() - unit - half - 1, 0) + 2) << half
    if steps.sum(dtype=float) > most or words.sum(where=present, dtype=float) >= 1 << 53:
        raise FormatError("its counts are too many")
    indexes = (np.cumsum(steps) - 1)[present]
    shifts = np.maximum((indexes >> half) - 1, 0)
    lows = (indexes - (shifts << half)) << shifts + unit
    return Histogram(lows, 1 << shifts + unit, words[present])


def _half_bits(digits: int) -> int:
    """Return the bits of the number of ranges for each power of two."""
    return int(2 * 10**digits - 1).bit_length() - 1


def _words(data: Any) -> Any:
    """Return the numbers of a text in ZigZag LEB128. No count needs the longest form, of nine bytes."""
    ends = np.flatnonzero(data < 128)
    starts = np.concatenate(([0], ends[:-1] + 1))[: len(ends)].astype(np.int64)
    lengths = ends - starts + 1
    if lengths.sum() != len(data) or lengths.max(initial=0) > 8:
        raise FormatError("its counts are damaged")
    places = np.arange(len(data)) - np.repeat(starts, lengths)
    bits = (data & 127).astype(np.int64) << 7 * places
    words = np.add.reduceat(bits, starts) if len(data) else bits
    return (words >> 1) ^ -(words & 1)
