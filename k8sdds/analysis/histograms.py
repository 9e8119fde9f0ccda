"""Read latency distributions from the raw HdrHistogram V2 logs of the publishers.

Statistics use the percentiles of each trial in trials.jsonl. The distributions in this module are merged over
repetitions. They are used only for figures; no confidence interval is computed from them.

Each log has a tag: `latency` for the latency test, `loaded_latency` for the latency under the load of a
throughput test.
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

_STEPS = 24
"""Points per decade of 1 - quantile: enough for a smooth curve on a printed page."""


@dataclass(frozen=True)
class Distribution:
    """Latency in µs at each quantile (from 0 to just below 1), with the number of samples and of trials."""

    quantiles: list[float]
    latency_us: list[float]
    samples: int
    trials: int


def trial_histogram(run: RunFolder, trial_id: str, attempt: int, tag: str) -> HdrHistogram | None:
    """Return the histogram of one attempt in ns, merged over its publishers, or None if there is none.

    Logs that cannot be decoded, for example after a crash, count as missing.
    """
    logs = sorted(run.raw(trial_id, attempt).glob("pub*/latency.hlog"))
    return _merged(histogram for log in logs for histogram in _read(log, tag))


def distribution(run: RunFolder, attempts: Iterable[tuple[str, int]], tag: str) -> Distribution | None:
    """Return the merged distribution of the given (trial_id, attempt) pairs, or None if no log is readable."""
    candidates = [trial_histogram(run, trial_id, attempt, tag) for trial_id, attempt in attempts]
    histograms = [histogram for histogram in candidates if histogram is not None]
    whole = _merged(histograms)
    if whole is None:
        return None
    samples = whole.get_total_count()
    quantiles = []
    # Beyond 1 - 1/samples every quantile is the maximum.
    step = 0
    while (rest := 10 ** (-step / _STEPS)) >= 1 / samples:
        quantiles.append(1 - rest)
        step += 1
    by_percentile = whole.get_percentile_to_value_dict([100 * q for q in quantiles])
    values = [by_percentile[100 * q] / 1000 for q in quantiles]
    return Distribution(quantiles, values, samples, len(histograms))


def _read(path: Path, tag: str) -> list[HdrHistogram]:
    # The library's log reader is not used: it decodes lines before it checks tags, and stops at a damaged line.
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
        # Add the histogram with the smaller range to the histogram with the larger range.
        if histogram.get_highest_equivalent_value(histogram.get_max_value()) > whole.get_max_value():
            whole, histogram = histogram, whole
        whole.add(histogram)
    return whole
