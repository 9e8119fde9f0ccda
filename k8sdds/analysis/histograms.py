"""Merge latency distributions from the raw HdrHistogram V2 logs of the participants.

Statistics use the percentiles of each trial in trials.jsonl. The distributions in this module are merged over
repetitions. They are used only for figures; no confidence interval is computed from them.

Each log has a tag: `latency` for the latency test, `loaded_latency` for the latency under the load of a
throughput test, `one_way`, `one_way_realtime` and `half_round_trip` for the delays of a paced test.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from k8sdds.results import histograms
from k8sdds.results.run_folder import RunFolder

_STEPS = 24
"""Points per decade of 1 - quantile: enough for a smooth curve on a printed page."""


@dataclass(frozen=True)
class Distribution:
    """Latency in µs at each quantile (from 0 to just below 1), with the number of samples and of trials."""

    quantiles: list[float]
    latency_us: list[float]
    samples: int
    trials: int


def distribution(run: RunFolder, attempts: Iterable[tuple[str, int, Sequence[str]]]) -> Distribution | None:
    """Return the merged distribution of some attempts, or None if no log is readable.

    Args:
        run: The run folder.
        attempts: Trial, number and tags of the latencies of each attempt.
    """
    candidates = [histograms.read(run.raw(trial_id, attempt), tags) for trial_id, attempt, tags in attempts]
    known = [histogram for histogram in candidates if histogram is not None]
    whole = histograms.merged(known)
    if whole is None:
        return None
    samples = whole.total
    quantiles = []
    # Further quantiles have too few values above them.
    step = 0
    while (rest := 10 ** (-step / _STEPS)) >= min(1, histograms.VALUES_BEYOND / samples):
        quantiles.append(1 - rest)
        step += 1
    values = [value / 1000 for value in whole.percentiles([100 * q for q in quantiles])]
    return Distribution(quantiles, values, samples, len(known))
