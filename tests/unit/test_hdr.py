"""HdrHistograms, compared with the package hdrhistogram."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from k8sdds.results import hdr
from k8sdds.results.histograms import RESOLUTION

RECORDED = Path(__file__).parent / "recorded"
PERCENTS = [0, 1, 50, 90, 99, 99.9, 99.99, 100]
counts = st.dictionaries(st.integers(0, 90_000_000_000), st.integers(1, 10_000_000), min_size=1, max_size=50)


def agree(ours: hdr.Histogram, theirs: HdrHistogram) -> None:
    assert ours.total == theirs.get_total_count()
    if ours.total:
        assert (ours.minimum, ours.maximum) == (theirs.get_min_value(), theirs.get_max_value())
        assert ours.mean == pytest.approx(theirs.get_mean_value(), rel=1e-12)
        values = theirs.get_percentile_to_value_dict(PERCENTS)
        assert ours.percentiles(PERCENTS) == [values[percent] for percent in PERCENTS]


def test_recorded_logs_have_the_values_that_the_package_reads() -> None:
    blobs = [
        line.rpartition(",")[2]
        for log in sorted(RECORDED.glob("*/*/latency.hlog"))
        for line in log.read_text().splitlines()
        if line.startswith("Tag=")
    ]
    assert len(blobs) >= 5
    for blob in blobs:
        agree(hdr.decode(blob), HdrHistogram.decode(blob))


def recorded(counts: dict[int, int], digits: int = 3, lowest: int = 1) -> HdrHistogram:
    histogram = HdrHistogram(lowest, 100_000_000_000, digits)
    for value, count in counts.items():
        histogram.record_value(value, count)
    return histogram


@settings(max_examples=10)
@given(counts, counts, st.integers(1, 3), st.integers(1, 2000))
def test_any_values_agree_in_both_directions(first, second, digits, lowest) -> None:
    one, other = (recorded(values, digits, lowest) for values in (first, second))
    ours = hdr.decode(one.encode().decode()) + hdr.decode(other.encode().decode())
    one.add(other)
    agree(ours, HdrHistogram.decode(one.encode()))
    for value in first:
        assert ours.count(value) == one.get_count_at_value(value)
        assert ours.above(value) == sum(one.counts[one.get_counts_array_index(value) + 1 :])
    agree(hdr.decode(hdr.encode(first)), HdrHistogram.decode(hdr.encode(first)))
    assert HdrHistogram.decode(hdr.encode(first)).get_total_count() == sum(first.values())


def test_ranges_are_as_wide_as_stated() -> None:
    found = hdr.decode(
        hdr.encode(dict.fromkeys((1024, 2047, 2048, 4095, 123_456, 1 << 30, 99_999_999_999), 1))
    )
    assert max(found.widths / found.lows) == RESOLUTION


def encoded(data: bytes, highest: int = 100_000_000_000, digits: int = 3, size: int | None = None) -> str:
    header = struct.pack(
        ">IiiiQQd", 0x1C849313, len(data) if size is None else size, 0, digits, 1, highest, 1
    )
    packed = zlib.compress(header + data)
    return base64.b64encode(struct.pack(">Ii", 0x1C849314, len(packed)) + packed).decode()


@pytest.mark.parametrize(
    "text",
    [
        "", "HIST", "HISTFAAA", "é", encoded(b"\2")[:-8], encoded(b"\2", size=2), encoded(b"\2", digits=9),
        encoded(b"\2", highest=1), encoded(b"\2", highest=2**63),
        encoded(b"\x82"),  # a number without an end
        encoded(b"\xff" * 8 + b"\1"),  # nine bytes
        encoded(b"\xfe" + b"\xff" * 6 + b"\x7f"),  # 2^55 values of one range
        encoded(b"\xff" * 7 + b"\x7f\2"),  # 2^55 empty ranges
        encoded(b"\2" * 60_000),  # more ranges than there are
    ],
    ids=range(14),
)  # fmt: skip
def test_damaged_and_hostile_texts_are_refused(text) -> None:
    with pytest.raises(hdr.FormatError):
        hdr.decode(text)


def test_a_small_text_of_100_mb_is_refused() -> None:
    with pytest.raises(hdr.FormatError):
        hdr.decode(encoded(bytes(100 << 20)))


def test_texts_without_counts_are_empty() -> None:
    assert hdr.decode(encoded(b"")).total == hdr.decode(encoded(b"\0\0")).total == 0
