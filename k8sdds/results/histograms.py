"""Read the latencies that participants logged in HdrHistogram's format V2, and take percentiles of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.system import reading
from k8sdds.system.files import replacing

if TYPE_CHECKING:
    from k8sdds.results.hdr import Histogram

LOG = "latency.hlog"
"""Name of the log in the folder of a participant."""

VALUES_BEYOND = 10
"""A percentile is known if at least this many episodes of values are above it, or values where their order is unknown;
otherwise it would be the value of a few stalls or outliers. k8sdds-perftest uses the same number."""

RESOLUTION = 1 / 1024
"""Largest width of a range of values above 1 µs, relative to its values: the ranges have three digits."""

NOTHING_ARRIVED = "no sample arrived"
"""Why times are null if a subscriber got no sample: the mean of the others would be too low."""

EACH_FLOW = "each flow and chain has its own, in by_flow"
"""Why times of a graph are null: flows with many samples would hide those with few."""

EPISODES = "_episodes"
"""Suffix of the tag of a line with episodes: the count of a value is the number of episodes above it."""

PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p999": 99.9, "p9999": 99.99}
"""Percentiles in the record, by the part of the key that names them."""

QUANTITIES = ("mean", *PERCENTILES, "max")
"""Quantities of latencies in the record, by the same part of the key."""


def read(folder: Path, tags: Sequence[str]) -> Histogram | None:
    """Return the latencies of an attempt with these tags in ns, merged over its participants; None if there are none.

    `folder` has one folder for each participant. Logs that cannot be decoded, such as after a crash, count as missing.
    """
    return merged(histogram for _, histogram in _decoded(folder, tags))


def logged(folder: Path) -> dict[str, list[Histogram]]:
    """Return the histograms of an attempt by tag, one of each participant that logged it."""
    parts: dict[str, list[Histogram]] = {}
    for tag, histogram in _decoded(folder):
        parts.setdefault(tag, []).append(histogram)
    return parts


def latencies(logged: Mapping[str, Sequence[Histogram]]) -> dict[str, Histogram]:
    """Return the latencies in ns by tag, each merged over its participants, without the lines with episodes."""
    return {
        tag: whole
        for tag, parts in logged.items()
        if not tag.endswith(EPISODES) and (whole := merged(parts)) is not None
    }


def episodes(folder: Path, tags: Sequence[str], thresholds_us: Mapping[str, float]) -> dict[str, int] | None:
    """Return the number of episodes of latencies above each threshold by name, or None if no log has it."""
    return episodes_above(
        [one for _, one in _decoded(folder, [tag + EPISODES for tag in tags])], thresholds_us
    )


def episodes_above(
    histograms: Sequence[Histogram], thresholds_us: Mapping[str, float]
) -> dict[str, int] | None:
    """Return the number of episodes above each threshold by name, or None without any histogram of episodes.

    A stall of the publisher delays samples of all subscribers, so the numbers of several participants are not added:
    the largest one is a lower bound.
    """
    if not histograms:
        return None
    values = {name: round(threshold * 1000) for name, threshold in thresholds_us.items()}
    return {name: max(one.count(value) for one in histograms) for name, value in values.items()}


def needed(quantity: str) -> int:
    """Return the number of values without which a quantity is not known, such as 1000 for `p99`.

    This is a lower bound: values that depend on each other have fewer episodes above a percentile.
    """
    percent = PERCENTILES.get(quantity)
    return 1 if percent is None else math.ceil(VALUES_BEYOND / (1 - percent / 100) - 1e-6)


def quantities_us(latencies: Histogram) -> dict[str, float]:
    """Return mean, percentiles and maximum in µs by name, whether enough values are above them or not."""
    percentiles = zip(PERCENTILES, latencies.percentiles(list(PERCENTILES.values())), strict=True)
    return {
        "mean": latencies.mean / 1000,
        **{name: value / 1000 for name, value in percentiles},
        "max": latencies.maximum / 1000,
    }


def _decoded(folder: Path, tags: Sequence[str] | None = None) -> list[tuple[str, Histogram]]:
    """Return the tag and the content of each histogram that the participants logged, of all tags by default."""
    from k8sdds.results import hdr

    histograms = []
    for line in itertools.chain.from_iterable(map(_lines, sorted(folder.glob(f"*/{LOG}")))):
        fields = line.strip().split(",")
        tag = fields[0].removeprefix("Tag=")
        if len(fields) != 5 or tag == fields[0] or (tags is not None and tag not in tags):
            continue
        try:
            histogram = hdr.decode(fields[4])
        except hdr.FormatError:
            continue
        if histogram.total > 0:
            histograms.append((tag, histogram))
    return histograms


def _lines(log: Path) -> list[str]:
    try:
        return reading.data(log).decode("ascii", "replace").splitlines()
    except (FileNotFoundError, reading.UnreadableError):
        return []


def write(folder: Path, tag: str, counts: Mapping[int, int], length_s: float) -> None:
    """Write a log of one interval: how many latencies had each value in ns, which other programs than ours printed."""
    from k8sdds.results import hdr

    lines = [
        "#[Histogram log format version 1.3]",
        f"Tag={tag},0.000,{length_s:.3f},{max(counts, default=0) / 1e9:.3f},{hdr.encode(counts)}",
    ]
    with replacing(folder / LOG) as unfinished:
        unfinished.write_text("\n".join(lines) + "\n", encoding="ascii")


def merged(histograms: Iterable[Histogram]) -> Histogram | None:
    """Return a new histogram with the values of all these histograms, or None if there are none."""
    parts = list(histograms)
    return sum(parts[1:], parts[0]) if parts else None
