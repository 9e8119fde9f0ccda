"""Simulate trials whose tail consists of stalls, and report how often their 99th percentile is wrong.

A trial has lognormal delays of about 100 µs. Stalls begin at random (a Poisson process), and each delays 50 samples: by
20 ms on average at first, falling to 0, as in a paced test. They delay 2 % of the samples on average, so that those
above the true 99th percentile belong to 1, 2, 3, … stalls, depending on the length of the trial. A reported percentile
is wrong if it differs by more than 50 % from the true one. Each rule is applied to the same trials: at least 10 values
above the percentile, 10 runs of consecutive values, and 10 episodes (docs/explanation/latency.md). `--pairs` is the
number of trials of each length.
"""

from __future__ import annotations

import common
import numpy as np
from numpy.typing import NDArray

from k8sdds.results.histograms import PERCENTILES, VALUES_BEYOND

STALLED = 50
"""Samples that a stall delays."""
SHARE = 0.02
"""Share of the samples that stalls delay."""
ABOVE = 1 - PERCENTILES["p99"] / 100
STALLS = (1, 2, 3, 5, 10, 15, 30, 100)
"""Stalls that the samples above the 99th percentile would fill."""
SIZES = (1, 10, 100, 1000)
WRONG = 0.5


RULES = ("values", "runs", "episodes")


def main() -> int:
    options = common.parse(common.parser(__doc__ or "", common.Defaults(2000, 200, what="trials")))
    report = common.Report("episodes", options)
    random = np.random.default_rng(options.seed)
    for publishers, what in (
        (1, "A stall delays consecutive samples"),
        (3, "A stall delays every third sample"),
    ):
        true = percentile(delays(random, 10_000_000, publishers))
        rows = []
        for stalls in STALLS:
            samples = round(stalls * STALLED / ABOVE)
            trials = [outcome(delays(random, samples, publishers), true) for _ in range(options.pairs)]
            known, wrong = (np.array(each) for each in zip(*trials, strict=True))
            shares = np.stack((known.mean(0), (known & wrong[:, None]).mean(0)), 1)
            report.data[f"{publishers} publishers, {stalls} stalls"] = dict(
                zip(RULES, shares.tolist(), strict=True)
            )
            rows.append((str(stalls), f"{samples:,}", *(f"{share:.0%}" for share in shares.ravel())))
        columns = [text for rule in RULES for text in (f"10 {rule}: reported", "wrong")]
        report.text(f"{what}:\n{common.table(('stalls above p99', 'samples', *columns), rows)}")
    report.show()
    return 0


def outcome(trial: NDArray[np.float64], true: float) -> tuple[list[bool], bool]:
    """Return whether each rule reports the 99th percentile of a trial, and whether the percentile is wrong."""
    found = percentile(trial)
    above = trial > found
    counts = int(above.sum()), runs(above), episodes(above)
    return [count >= VALUES_BEYOND for count in counts], abs(found / true - 1) > WRONG


def delays(random: np.random.Generator, samples: int, publishers: int) -> NDArray[np.float64]:
    """Return the delays of a trial in µs; one of the publishers, whose samples arrive in turn, has stalls."""
    values: NDArray[np.float64] = 100 * np.exp(0.25 * random.standard_normal(samples))
    starts = random.integers(0, samples, random.poisson(samples * SHARE / STALLED))
    longest = random.exponential(20_000, len(starts))
    waits = longest[:, None] * np.linspace(1, 0, STALLED, endpoint=False)
    np.add.at(values, (starts[:, None] + publishers * np.arange(STALLED)) % samples, waits)
    return values


def percentile(values: NDArray[np.float64]) -> float:
    rank = round(len(values) * (1 - ABOVE))
    return float(np.partition(values, rank - 1)[rank - 1])


def episodes(above: NDArray[np.bool_]) -> int:
    """Return the number of runs of groups with a value above a threshold, as `Episodes` in histogram.h counts them."""
    distance = len(above) // max(int(above.sum()), 1)
    size = max(size for size in SIZES if size == 1 or 5 * size <= distance)
    return runs(np.logical_or.reduceat(above, np.arange(0, len(above), size)))


def runs(above: NDArray[np.bool_]) -> int:
    """Return the number of runs of values above a threshold."""
    return int(above[0]) + int((above[1:] & ~above[:-1]).sum())


if __name__ == "__main__":
    common.main(main)
