"""Describe tested points and the reasons of verdicts: the test, the ratio and its interval, the claimed region."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.statistics import p_inside, p_outside
from k8sdds.claims.evidence import PointData
from k8sdds.claims.model import Part
from k8sdds.model.axis import payload
from k8sdds.system.numbers import count


@dataclass(frozen=True)
class TestedPoint:
    """A point of a part, or the mean of its points, with the results of its tests."""

    part: int
    """Number of the part in its claim."""
    data: PointData
    region: tuple[float, float]
    published: float | None
    is_level: bool
    """Whether the claim is about a level instead of a ratio."""

    @cached_property
    def p_inside(self) -> float | None:
        """The p value of the hypothesis that the ratio lies outside of the region."""
        return p_inside(self.data.contrast, *self.region) if self.data.contrast else None

    @cached_property
    def p_outside(self) -> float | None:
        """The p value of the hypothesis that the ratio lies in the region."""
        return p_outside(self.data.contrast, *self.region) if self.data.contrast else None


def test_name(part: Part) -> str:
    """Return the name of the test for a part; docs/reference/claims.md describes the tests."""
    if part.exact:
        return "exact count"
    if part.is_ in ("lower", "higher"):
        return "one-sided t test on log ratios"
    return "equivalence (two one-sided t tests on log ratios)"


def undecided_reason(point: TestedPoint) -> str:
    """Return why a point does not decide the claim."""
    contrast = point.data.contrast
    if contrast is None:
        return f"{_values(point)}: no repetition has trials of all compared cells"
    if contrast.n < 2:
        return f"{_values(point)}: one repetition gives no confidence interval"
    if not contrast.testable:
        return f"{_values(point)}: all repetitions have the same result, so their variance is unknown"
    return f"{describe_point(point)}: not shown (p = {point.p_inside:.2g}), nor refuted; {_sizes([point])}"


def describe_point(point: TestedPoint) -> str:
    """Return the point, its result and the claimed region."""
    values, counts, contrast = _values(point), point.data.counts, point.data.contrast
    if counts:
        counted = " and ".join(f"{count:g}" for count in sorted(set(counts)))
        return f"{values}: counted {counted}, claimed {point.published:g}"
    if contrast is None:
        return values
    low, high = contrast.interval()
    interval = "" if low is None or high is None else f" [{low:.3g}, {high:.3g}]"
    quantity = "level" if point.is_level else "ratio"
    return f"{values}: {quantity} {contrast.ratio:.3g}{interval}, claimed {describe_region(point.region)}"


def describe_region(region: tuple[float, float]) -> str:
    """Return a region as text: `below 1`, `above 1.04`, `0.95 to 1.05`."""
    low, high = region
    if low <= 0:
        return f"below {high:.4g}"
    return f"above {low:.4g}" if math.isinf(high) else f"{low:.4g} to {high:.4g}"


def describe_value(key: str, value: Any) -> str:
    """Return a value of a point as text: `16 KiB`, `4 subscribers`, a network's name."""
    match key:
        case "payload_bytes":
            return payload(value)
        case "subscribers":
            return f"{value} subscribers"
        case "mean of points":
            return f"mean of {value} points"
        case _:
            return str(value)


def sample_size(tested: Sequence[TestedPoint]) -> str:
    """Return the number of points, and of repetitions or runs, as text: `5 points, n = 3`."""
    return f"{count(len(tested), 'point')}, {_sizes(tested)}"


def _sizes(tested: Sequence[TestedPoint]) -> str:
    """Return the number of repetitions, or of runs, as text: `n = 3`, `n = 3 to 5`, `n = 2 runs`."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for point in tested:
        contrast = point.data.contrast
        n = contrast.n if contrast else len(point.data.counts)
        sizes[" runs" if contrast and point.data.runs > 1 else ""].add(n)
    spans = (
        f"{min(ns)}{unit}" if len(ns) == 1 else f"{min(ns)} to {max(ns)}{unit}" for unit, ns in sizes.items()
    )
    return "n = " + " and ".join(spans)


def modeled_networks(rows: Sequence[dict[str, Any]]) -> str:
    """Return the networks in these trials that the lab models but does not run."""
    return " and ".join(sorted({row[UNIT] for row in rows if row.get("fidelity") == "modelled"}))


def mixed_versions(points: Sequence[PointData]) -> str:
    """Return a note if imported trials of one repetition used several versions of PerfTest, otherwise empty text."""
    mixed: set[str] = set()
    for point in points:
        by_repetition: dict[Any, set[str]] = defaultdict(set)
        for row in point.rows:
            if row.get("perftest_version"):
                by_repetition[row["repetition"]].add(str(row["perftest_version"]))
        for versions in by_repetition.values():
            mixed |= versions if len(versions) > 1 else set()
    return f"; one run compares PerfTest {' with '.join(sorted(mixed))}" if mixed else ""


def _values(point: TestedPoint) -> str:
    values = [describe_value(key, value) for key, value in point.data.values.items()]
    return ", ".join(values) or f"part {point.part + 1}"
