"""The reasons of verdicts in words: which test, which point, ratio, interval and claimed region."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from k8sdds.analysis.conditions import UNIT, payload

if TYPE_CHECKING:
    from k8sdds.claims.evidence import Point
    from k8sdds.claims.judge import Tested
    from k8sdds.claims.model import Part


def named_test(part: Part) -> str:
    """The test that decides the part; docs/analysis.md describes it."""
    if part.exact:
        return "exact count"
    if part.is_ in ("lower", "higher"):
        return "one-sided t test on log ratios"
    return "equivalence (two one-sided t tests on log ratios)"


def why_undecided(one: Tested) -> str:
    """Why this point leaves the claim open."""
    if one.contrast is None:
        return f"{_at(one)}: no repetition has all that is compared"
    if one.contrast.n < 2:
        return f"{_at(one)}: one repetition carries no interval"
    if not one.contrast.testable:
        return f"{_at(one)}: all repetitions give the same number, so their spread is not known"
    return f"{where(one)}: not shown (p = {one.p_inside:.2g}), nor refuted; n = {one.contrast.n}"


def where(one: Tested) -> str:
    """The point, what was found there, and what was claimed."""
    at = _at(one)
    if one.counts:
        counted = " and ".join(f"{count:g}" for count in sorted(set(one.counts)))
        return f"{at}: counted {counted}, claimed {one.published:g}"
    if one.contrast is None:
        return at
    low, high = one.contrast.interval()
    bracket = "" if low is None or high is None else f" [{low:.3g}, {high:.3g}]"
    found = "level" if one.level else "ratio"
    return f"{at}: {found} {one.contrast.ratio:.3g}{bracket}, claimed {describe_region(one.region)}"


def describe_region(region: tuple[float, float]) -> str:
    """`below 1`, `above 1.04`, `0.95 to 1.05`."""
    low, high = region
    if low <= 0:
        return f"below {high:.4g}"
    return f"above {low:.4g}" if math.isinf(high) else f"{low:.4g} to {high:.4g}"


def describe_value(key: str, value: Any) -> str:
    """A value of a point: `16 KiB`, `4 subscribers`, a network's name."""
    match key:
        case "payload_bytes":
            return payload(value)
        case "subscribers":
            return f"{value} subscribers"
        case "mean of points":
            return f"mean of {value} points"
        case _:
            return str(value)


def extent(tested: Sequence[Tested]) -> str:
    """`5 points, n = 3`."""
    ns = sorted({one.contrast.n if one.contrast else len(one.counts) for one in tested})
    points = "1 point" if len(tested) == 1 else f"{len(tested)} points"
    span = "" if not ns else str(ns[0]) if len(ns) == 1 else f"{ns[0]} to {ns[-1]}"
    return f"{points}, n = {span}"


def models(rows: Sequence[dict[str, Any]]) -> str:
    """The networks among the trials that the lab only models."""
    return " and ".join(sorted({row[UNIT] for row in rows if row.get("fidelity") == "modelled"}))


def mixed_versions(points: Sequence[Point]) -> str:
    """What to add where published trials of one repetition were made with several versions of PerfTest."""
    found: set[str] = set()
    for point in points:
        by_repetition: dict[Any, set[str]] = defaultdict(set)
        for row in point.rows:
            if row.get("perftest_version"):
                by_repetition[row["repetition"]].add(str(row["perftest_version"]))
        for versions in by_repetition.values():
            found |= versions if len(versions) > 1 else set()
    return f"; one run compares PerfTest {' with '.join(sorted(found))}" if found else ""


def _at(one: Tested) -> str:
    said = [describe_value(key, value) for key, value in one.values.items()]
    return ", ".join(said) or f"part {one.part + 1}"
