"""Simulate campaigns that stop when their interval is narrow, and report how often the interval contains the truth.

Each campaign has normally distributed log ratios of a known mean and spread. It starts with 3 repetitions and stops as
`k8sdds run --precision` does. `--pairs` is the number of campaigns for each ratio of precision and spread. The worst
coverage over all ratios must be at least 95 % at the level that k8sdds uses.
"""

from __future__ import annotations

from collections.abc import Iterator

import common
import numpy as np
from numpy.typing import NDArray
from scipy import special

from k8sdds.analysis.statistics import CONFIDENCE, STOPPED_CONFIDENCE, t_interval
from k8sdds.campaign.precision import MAX_REPETITIONS, MIN_REPETITIONS

RATIOS = np.geomspace(0.15, 12, 30)
"""Requested half-width of the interval, in standard deviations of a log ratio."""
CHUNK = 2000
"""Campaigns at a time, to limit memory."""


def main() -> int:
    options = common.parse(common.parser(__doc__ or "", common.Defaults(20_000, 2_000, what="campaigns")))
    report = common.Report("precision", options)
    rows = []
    for confidence in (CONFIDENCE, STOPPED_CONFIDENCE):
        random = np.random.default_rng(options.seed)
        found = [coverage(random, ratio, confidence, options.pairs) for ratio in RATIOS]
        worst = min(range(len(RATIOS)), key=lambda index: found[index][0])
        covered, repetitions = found[worst]
        report.data[f"{confidence:g}"] = {"worst_coverage": covered, "ratio": RATIOS[worst]}
        rows.append((f"{confidence:.0%}", f"{covered:.1%}", f"{RATIOS[worst]:.2f}", f"{repetitions:.1f}"))
    report.text(
        common.table(("level of the interval", "worst coverage", "precision / spread", "repetitions"), rows)
    )
    report.show()
    return 0


def coverage(
    random: np.random.Generator, ratio: float, confidence: float, campaigns: int
) -> tuple[float, float]:
    """Return the share of campaigns whose interval contains the truth, and the mean number of repetitions."""
    covered, repetitions = [], []
    for logs in ended(random, ratio, confidence, campaigns):
        _, low, high, _ = t_interval(logs, confidence)
        covered.append(low is not None and high is not None and low <= 0 <= high)
        repetitions.append(len(logs))
    return float(np.mean(covered)), float(np.mean(repetitions))


def ended(
    random: np.random.Generator, ratio: float, confidence: float, campaigns: int
) -> Iterator[list[float]]:
    """Return the log ratios of each campaign, with a mean of 0 and a standard deviation of 1."""
    counts = np.arange(1, MAX_REPETITIONS + 1)
    quantiles = special.stdtrit(np.maximum(counts - 1, 1), 0.5 + confidence / 2)
    for first in range(0, campaigns, CHUNK):
        values = random.standard_normal((min(CHUNK, campaigns - first), MAX_REPETITIONS))
        mean = np.cumsum(values, 1) / counts
        half = quantiles * _spread(values, mean, counts) / np.sqrt(counts)
        narrow = (half <= ratio) & (counts >= MIN_REPETITIONS)
        narrow[:, -1] = True
        yield from (row[: stop + 1].tolist() for row, stop in zip(values, narrow.argmax(1), strict=True))


def _spread(
    values: NDArray[np.float64], mean: NDArray[np.float64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    squares = np.cumsum(values**2, 1) - counts * mean**2
    spread: NDArray[np.float64] = np.sqrt(np.maximum(squares, 0) / np.maximum(counts - 1, 1))
    return spread


if __name__ == "__main__":
    common.main(main)
