"""Latency distributions from the raw HdrHistogram V2 logs of the publishers.

Percentiles of record stand in trials.jsonl and come from one trial each. What is merged here over
repetitions serves only to draw a distribution, never an interval.
"""

from __future__ import annotations

import binascii
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.results.run_folder import RunFolder

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

IDLE, LOADED = "latency", "loaded_latency"
"""Tags of the logs: the latency test, and latency under the load of a throughput test."""

_STEPS = 24
"""Points per factor of ten of 1 - quantile: smooth at the size of a printed page."""


@dataclass(frozen=True)
class Distribution:
    """Latency in µs at each quantile (0 to just below 1), and how many samples and trials stand behind."""

    quantiles: list[float]
    latency_us: list[float]
    samples: int
    trials: int


def trial_histogram(run: RunFolder, trial_id: str, attempt: int, tag: str) -> HdrHistogram | None:
    """The histogram of one attempt in ns, merged over its publishers; None where none was recorded.

    Logs that cannot be decoded (a crash while writing) are passed over like missing ones.
    """
    logs = sorted(run.raw(trial_id, attempt).glob("pub*/latency.hlog"))
    return _merged(histogram for log in logs for histogram in _read(log, tag))


def distribution(run: RunFolder, attempts: Iterable[tuple[str, int]], tag: str) -> Distribution | None:
    """The distribution over the (trial_id, attempt) pairs together; None where no log is readable."""
    found = [trial_histogram(run, trial_id, attempt, tag) for trial_id, attempt in attempts]
    histograms = [histogram for histogram in found if histogram is not None]
    whole = _merged(histograms)
    if whole is None:
        return None
    samples = whole.get_total_count()
    quantiles = []
    # As far as the samples reach: beyond 1 - 1/samples every quantile is the maximum.
    step = 0
    while (rest := 10 ** (-step / _STEPS)) >= 1 / samples:
        quantiles.append(1 - rest)
        step += 1
    by_percentile = whole.get_percentile_to_value_dict([100 * q for q in quantiles])
    values = [by_percentile[100 * q] / 1000 for q in quantiles]
    return Distribution(quantiles, values, samples, len(histograms))


def _read(path: Path, tag: str) -> list[HdrHistogram]:
    # The library's own reader cannot skip tags before decoding, and stops at the first damaged line.
    from hdrh.codec import HdrCookieException, HdrLengthException
    from hdrh.histogram import HdrHistogram

    damaged = (
        HdrCookieException, HdrLengthException, TypeError, ValueError, IndexError,
        binascii.Error, zlib.error, struct.error,
    )  # fmt: skip
    histograms = []
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        fields = line.strip().split(",")
        if len(fields) != 5 or fields[0] != f"Tag={tag}":
            continue
        try:
            histogram = HdrHistogram.decode(fields[4])
        except damaged:
            continue
        if histogram.get_total_count() > 0:
            histograms.append(histogram)
    return histograms


def _merged(histograms: Iterable[HdrHistogram]) -> HdrHistogram | None:
    whole = None
    for histogram in histograms:
        if whole is None:
            whole = histogram
            continue
        # The one that reaches further takes the other.
        if histogram.get_highest_equivalent_value(histogram.get_max_value()) > whole.get_max_value():
            whole, histogram = histogram, whole
        whole.add(histogram)
    return whole
