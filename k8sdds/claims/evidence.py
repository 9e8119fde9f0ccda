"""Select the trials that test a part of a claim, by run folder and variant.

A variant is a combination of settings that a claim does not specify and that may differ within a campaign,
such as middleware, layout and link. Trials of different variants are never combined.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from k8sdds import workloads
from k8sdds.analysis import conditions, overhead
from k8sdds.analysis.conditions import COMPARABLE, UNIT
from k8sdds.analysis.statistics import CONFIDENCE, Contrast, confidence_of, one_sample
from k8sdds.claims.model import DEFAULTS, Part, Selector
from k8sdds.model.options import OPTION_COLUMNS
from k8sdds.model.trial import AXES
from k8sdds.results import tidy
from k8sdds.results.metrics import METRICS
from k8sdds.results.record import LOADED_LATENCY_SINCE
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.grouping import Row, grouped
from k8sdds.system.strict import Strict

# Where participants are follows from the transport.
_VARIANT = tuple(name for name in COMPARABLE if name not in (*DEFAULTS, "placement", "test", "payload_bytes"))

_GRAPHS = [name for name, workload in workloads.WORKLOADS.items() if workload.runs_graphs]
"""Tests whose graph states sizes, rates and numbers of participants."""

Variant = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Source:
    """The trials of a run folder."""

    name: str
    rows: list[Row]
    """One valid attempt of each trial."""
    facts: dict[str, Any] = field(default_factory=dict)
    confidence: float = CONFIDENCE
    """Level of its t intervals (`statistics.confidence_of`)."""

    @property
    def imported(self) -> bool:
        """Whether the run folder contains imported data published by others."""
        return any(row["testbed"] == "imported" for row in self.rows)

    @classmethod
    def read(cls, run: RunFolder) -> Source:
        """Read the valid trials of a run folder."""
        rows = tidy.best(tidy.rows(run))
        return cls(run.path.resolve().name, rows, run.facts, confidence_of(run.campaign))


@dataclass(frozen=True)
class PointData:
    """The data of a source, or of several together, for one point of a part."""

    values: dict[str, Any]
    counts: tuple[float, ...] = ()
    """The values of an exact quantity."""
    logs: dict[int, float] = field(default_factory=dict)
    """Natural logarithm of the ratio, by repetition; of several runs, by run."""
    rows: tuple[Row, ...] = ()
    rounding: float = 0.0
    """Standard deviation of the logarithms that rounding alone causes."""
    confidence: float = CONFIDENCE
    """Level of the t interval of these logarithms."""
    runs: int = 1
    """Number of run folders. With several, `contrast.n` is this number."""

    @cached_property
    def contrast(self) -> Contrast | None:
        """The estimated log ratio, or None if no repetition has a trial for every term of the ratio."""
        return one_sample(list(self.logs.values()), self.rounding, self.confidence) if self.logs else None

    @property
    def is_known(self) -> bool:
        """Whether there is an estimate or a count."""
        return bool(self.logs or self.counts)

    @property
    def is_modeled(self) -> bool:
        """Whether its trials include a network that the lab models but does not run."""
        return any(row.get("fidelity") == "modelled" for row in self.rows)


def points(part: Part, source: Source) -> dict[Variant, list[PointData]]:
    """Return the data of a part's points, in order, for every variant that has any trial of the part."""
    selectors = [_selectors(part, values) for values in part.points]
    # Filter a large sweep once by the settings that all selectors share, instead of once per point.
    flat = [selector for point in selectors for selector in point]
    common = {key: value for key, value in flat[0].items() if all(other.get(key) == value for other in flat)}
    rows = grouped(_matching(source.rows, common), lambda row: _variant(part, row))
    return {
        variant: [
            _point(part, values, point_selectors, variant_rows, source.confidence)
            for values, point_selectors in zip(part.points, selectors, strict=True)
        ]
        for variant, variant_rows in rows.items()
        if any(_matching(variant_rows, point_selectors[0]) for point_selectors in selectors)
    }


def describe(variant: Variant, others: Iterable[Variant]) -> str:
    """Describe how a variant differs from the others; empty if it is the only one."""
    others = list(others)
    differing = {
        name: value for name, value in variant if len({dict(other).get(name) for other in others}) > 1
    }
    return conditions.describe(differing)


def _selectors(part: Part, values: Selector) -> list[Selector]:
    """Return the complete selectors of a point: `of`, `to`, and both of `against`."""
    common = DEFAULTS | {"test": workloads.of_metric(part.quantity)}
    if METRICS[part.quantity].exact:
        del common["test"]
    terms = [part.of, part.to, *((part.against.of, part.against.to) if part.against else ())]
    return [_complete(common, part.cells | values | term) for term in terms if term is not None]


def _complete(defaults: Selector, selector: Selector) -> Selector:
    """Return a selector with the defaults of the settings that it does not name, in whole or in part.

    The text of a graph states sizes, rates and numbers of participants, which then have no default.
    """
    named = {key.split(".")[0] for key in selector if "." in key}
    if selector.get("test") in _GRAPHS:
        named |= {"graph", *(axis.name for axis in AXES.values() if axis.graph == "stated")}
    return {key: value for key, value in defaults.items() if key not in named} | selector


def _point(
    part: Part, values: Selector, selectors: list[Selector], rows: list[Row], confidence: float
) -> PointData:
    groups = [_matching(rows, selector) for selector in selectors]
    used = tuple(row for group in groups for row in group)
    if part.exact:
        counts = tuple(row[part.quantity] for row in used if row.get(part.quantity) is not None)
        return PointData(values, counts, rows=used)
    # Delays that were measured by another method have no ratio.
    groups = list(overhead.alike(METRICS[part.quantity], *groups))
    terms = list(zip(groups, part.quantities, strict=False))
    by_repetition = [overhead.by_repetition(group, quantity) for group, quantity in terms]
    logs = {
        repetition: sum(
            sign * math.log(term[repetition])
            for sign, term in zip((1, -1, -1, 1), by_repetition, strict=False)
        )
        for repetition in sorted(set.intersection(*(set(term) for term in by_repetition)))
    }
    rounding = math.hypot(*(overhead.rounding(group, quantity) for group, quantity in terms))
    return PointData(values, (), logs, used, rounding, confidence)


def pooled(part: Part, runs: Sequence[list[PointData]]) -> list[PointData]:
    """Combine what several run folders have measured for the points of a part.

    Each run counts as one value, as a repetition does within a run: runs differ in more than their trials do (days,
    machines), so only several runs show how much. The t test on these values holds whatever the numbers of repetitions
    and spreads of the runs and the difference between them, while Fisher's and Stouffer's combinations of p values
    assume that runs do not differ, and Bonferroni's also loses the power of many runs.

    Source: Ibragimov, Müller, "t-statistic based correlation and heterogeneity robust inference", J. Business &
    Economic Statistics 28(4), 2010.
    """
    if part.over == "mean":
        # The mean requires runs that have all of its points.
        runs = [run for run in runs if all(point.is_known for point in run)] or runs[:1]
    return [_pooled(points) for points in zip(*runs, strict=True)]


def _pooled(points: Sequence[PointData]) -> PointData:
    known = [point for point in points if point.is_known] or points[:1]
    if len(known) == 1:
        return known[0]
    return PointData(
        known[0].values,
        tuple(count for point in known for count in point.counts),
        {run: point.contrast.log for run, point in enumerate(known) if point.contrast},
        tuple(row for point in known for row in point.rows),
        max(point.rounding for point in known),
        runs=len(known),
    )


def mean_of(points: Sequence[PointData]) -> PointData:
    """Return the mean over points, computed within each repetition so that n remains the number of repetitions."""
    logs: dict[int, list[float]] = defaultdict(list)
    for point in points:
        for repetition, value in point.logs.items():
            logs[repetition].append(value)
    return PointData(
        {"mean of points": len(points)},
        (),
        {key: math.fsum(own) / len(own) for key, own in logs.items() if len(own) == len(points)},
        tuple(row for point in points for row in point.rows),
        math.hypot(*(point.rounding for point in points)) / len(points),
        points[0].confidence,
        points[0].runs,
    )


def _matching(rows: list[Row], selector: Selector) -> list[Row]:
    # The network selects the fewest rows. One pass per key is several times as fast as one pass for all keys.
    if "network" in selector:
        rows = [row for row in rows if _has_network(row[UNIT], selector["network"])]
    for key, value in selector.items():
        if "." in key:
            rows = [row for row in rows if _part_of(row, key) == value]
        elif key != "network":
            # Imported data may not have all columns. A missing value counts as the default.
            accepted = (value, None) if DEFAULTS.get(key) == value else (value,)
            rows = [row for row in rows if row.get(key) in accepted]
    return rows


def _part_of(row: Row, key: str) -> Any:
    """Return a part of a setting, such as `link.mtu`; what the record does not contain has its default."""
    setting, *path = key.split(".")
    value: Any = _parts_of(row, setting)
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _parts_of(row: Row, setting: str) -> dict[str, Any] | None:
    parsed = AXES[setting].parsed(row.get(setting))
    return parsed.model_dump(mode="json") if isinstance(parsed, Strict) else None


def _has_network(label: Any, network: Any) -> bool:
    # A label may contain the engine: `flannel-ipsec (kernel ESP)`.
    return bool(label == network or str(label).startswith(f"{network} ("))


def _variant(part: Part, row: Row) -> Variant:
    against = (part.against.of, part.against.to) if part.against else ()
    specified = {
        key for selector in (part.of, part.to or {}, *against, part.cells, part.at) for key in selector
    }
    # The QoS profile depends on the reliability.
    specified |= {"qos"} if "reliability" in specified else set()
    specified |= {f"{name}_sha256" for name in ("middleware_config", "schedule") if name in specified}
    parts = {key for key in specified if "." in key}
    settings = ((name, _unspecified(name, row, parts)) for name in _VARIANT if name not in specified)
    # The parts of a claim may be about several tests, each with options of its own.
    return tuple((name, value) for name, value in settings if value is not None or name not in OPTION_COLUMNS)


def _unspecified(name: str, row: Row, specified: Collection[str]) -> Any:
    """Return a setting of a row, without those of its parts that a claim specifies."""
    named = {key.split(".")[1] for key in specified if key.startswith(f"{name}.")}
    value = _parts_of(row, name) if named else None
    if value is None:
        return _unless_default(name, row)
    return json.dumps({key: part for key, part in value.items() if key not in named}, sort_keys=True)


def _unless_default(name: str, row: Row) -> Any:
    # All trials of these versions were timed, so that nothing is compared across it.
    if name == "loaded_latency" and (row.get("schema") or 1) < LOADED_LATENCY_SINCE:
        return None
    # The default layout depends on the test, and a claim may be about several tests.
    workload = workloads.WORKLOADS.get(row["test"])
    if name == "layout" and workload and row["layout"] == workload.layout:
        return None
    return row.get(name)
