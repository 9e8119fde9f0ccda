"""The trials that speak to a part of a claim, by run folder and variant.

A variant is what a claim says nothing of and what yet may differ within a campaign: middleware, layout, link
and so on. Trials of different variants are never put together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from k8sdds.analysis import conditions, overhead
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.overhead import Row
from k8sdds.analysis.tests import Contrast, one_sample
from k8sdds.claims.model import USUAL, Part, Selector
from k8sdds.results import tidy
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import RunFolder

_FOLLOWS = ("nodes", "placement", "testbed")
"""Columns that follow from others, or from the run folder."""

_VARIANT = tuple(name for name in CONDITION if name not in (*USUAL, *_FOLLOWS, "test", "payload_bytes"))

Variant = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Source:
    """A run folder, read once."""

    name: str
    rows: list[Row]
    """Its valid trials that count."""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def imported(self) -> bool:
        """Whether it holds published data of others."""
        return any(row["testbed"] == "imported" for row in self.rows)

    @classmethod
    def read(cls, run: RunFolder) -> Source:
        """The valid trials of a run folder. InputError where it cannot be read."""
        testbed = run.campaign.get("testbed")
        facts = testbed.get("facts") if isinstance(testbed, dict) else None
        rows = overhead.plain_rows(tidy.best(tidy.frame(run)))
        return cls(run.path.resolve().name, rows, facts if isinstance(facts, dict) else {})


@dataclass(frozen=True)
class Point:
    """What a source says of one point of a part."""

    values: dict[str, Any]
    contrast: Contrast | None
    """None: no repetition has all that is needed."""
    counts: tuple[float, ...] = ()
    """The values themselves where the quantity is an exact count."""
    logs: dict[int, float] = field(default_factory=dict)
    """ln of the ratio by repetition."""
    rows: tuple[Row, ...] = ()
    rounding: float = 0.0
    """Standard deviation of such a logarithm by rounding alone."""


def points(part: Part, source: Source) -> dict[Variant, list[Point]]:
    """Every variant of the source that has anything of the part, with all points of it in their order."""
    selectors = [_selectors(part, values) for values in part.points]
    # Only trials that some end of some point means: a large sweep is looked through once, not for each point.
    ends = [end for chosen in selectors for end in chosen]
    common = {key: value for key, value in ends[0].items() if all(end.get(key) == value for end in ends)}
    rows: dict[Variant, list[Row]] = defaultdict(list)
    for row in _matching(source.rows, common):
        rows[_variant(part, row)].append(row)
    return {
        variant: [
            _point(part, values, chosen, found)
            for values, chosen in zip(part.points, selectors, strict=True)
        ]
        for variant, found in rows.items()
        if any(_matching(found, chosen[0]) for chosen in selectors)
    }


def describe(variant: Variant, others: Iterable[Variant]) -> str:
    """What tells a variant from the others, in words; empty for an only one."""
    others = list(others)
    differing = {
        name: value for name, value in variant if len({dict(other).get(name) for other in others}) > 1
    }
    return conditions.describe(differing)


def _selectors(part: Part, values: Selector) -> list[Selector]:
    """The full selectors of a point: of, to, and those of `against`."""
    home = "latency" if part.quantity.startswith("latency_") else "throughput"
    common = USUAL | {"test": home}
    if METRICS[part.quantity].exact:
        del common["test"]
    ends = [part.of, part.to, *((part.against.of, part.against.to) if part.against else ())]
    return [common | part.cells | values | end for end in ends if end is not None]


def _point(part: Part, values: Selector, selectors: list[Selector], rows: list[Row]) -> Point:
    groups = [_matching(rows, selector) for selector in selectors]
    used = tuple(row for group in groups for row in group)
    if part.exact:
        found = tuple(row[part.quantity] for row in used if row.get(part.quantity) is not None)
        return Point(values, None, found, rows=used)
    by_repetition = [overhead.by_repetition(group, part.quantity) for group in groups]
    shared = set.intersection(*(set(one) for one in by_repetition))
    signs = (1, -1, -1, 1)
    logs = {
        repetition: sum(
            sign * math.log(one[repetition]) for sign, one in zip(signs, by_repetition, strict=False)
        )
        for repetition in sorted(shared)
    }
    rounding = math.hypot(*(overhead.rounding(group, part.quantity) for group in groups))
    contrast = one_sample(list(logs.values()), rounding) if logs else None
    return Point(values, contrast, (), logs, used, rounding)


def mean_of(found: list[Point]) -> Contrast | None:
    """The mean over points, made within each repetition, so that n stays the number of repetitions."""
    logs: dict[int, list[float]] = defaultdict(list)
    for point in found:
        for repetition, value in point.logs.items():
            logs[repetition].append(value)
    whole = [math.fsum(values) / len(values) for values in logs.values() if len(values) == len(found)]
    rounding = math.hypot(*(point.rounding for point in found)) / len(found)
    return one_sample(whole, rounding) if whole else None


def _matching(rows: list[Row], selector: Selector) -> list[Row]:
    return [row for row in rows if all(_fits(row, key, value) for key, value in selector.items())]


def _fits(row: Row, key: str, value: Any) -> bool:
    if key == "network":
        label = row[UNIT]
        # `flannel-ipsec (kernel ESP)` is the network flannel-ipsec with its engine.
        return label == value or str(label).startswith(f"{value} (")
    found = row.get(key)
    # Published data of others may not say everything; what it does not say does not differ.
    return found == value or (found is None and USUAL.get(key) == value)


def _variant(part: Part, row: Row) -> Variant:
    ends = [end for end in (part.of, part.to, part.cells, part.at) if end]
    chosen = {key for end in ends for key in end}
    # A QoS profile goes with the reliability.
    chosen |= {"qos"} if "reliability" in chosen else set()
    return tuple((name, _beyond_default(name, row)) for name in _VARIANT if name not in chosen)


def _beyond_default(name: str, row: Row) -> Any:
    # The default layout follows from the test, and a claim may be about both tests.
    if name == "layout" and row["layout"] == ("same" if row["test"] == "latency" else "split"):
        return None
    return row.get(name)
