"""Evaluate the capacity searches of a campaign: the capacity of each network, and the delay below it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from k8sdds.analysis import statistics
from k8sdds.analysis.capacity import Bounds, Goal, Probe, Search
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.overhead import Row
from k8sdds.workloads.capacity import Capacity

FIXED = tuple(name for name in CONDITION if name != "rate")
"""What the probes of a search have in common, except the network."""

_NEVER_MATCHED = ("testbed", "nodes")
"""Columns that may differ between compared searches, as in `comparison`."""

PERCENTILES = ("p50", "p90", "p99")


@dataclass(frozen=True)
class Found:
    """The probes of one search: one network under one condition."""

    network: str
    condition: Mapping[str, Any]
    search: Search
    trials: Sequence[Row]
    """Its probes, as rows of the tidy table."""

    @cached_property
    def probes(self) -> list[Probe]:
        """Its probes."""
        return [Probe.of(row) for row in self.trials]

    @cached_property
    def bounds(self) -> dict[Goal, Bounds]:
        """The interval of the capacity by goal, the strictest goal first."""
        return {goal: self.search.bounds(goal, self.probes) for goal in self.search.goals}

    @property
    def delays(self) -> list[Row]:
        """The delay at each share of the capacity: `share_percent`, `rate`, and percentiles with their intervals."""
        rows = []
        for share, rate in self.search.latency_rates(self.probes).items():
            trials = self._full(rate)
            row: Row = {"share_percent": share, "rate": rate, "n": len(trials)}
            for percentile in PERCENTILES:
                known = [value for trial in trials if (value := trial[f"delay_{percentile}_us"])]
                estimate = statistics.log_mean(known) if known else None
                for suffix, name in (("", "value"), ("_low", "low"), ("_high", "high")):
                    row[f"{percentile}{suffix}_us"] = getattr(estimate, name, None)
            rows.append(row)
        return rows

    def _full(self, rate: float) -> list[Row]:
        return [
            row for row in self.trials if row["rate"] == rate and row["duration_s"] == self.search.duration_s
        ]


def found(probes: Sequence[Row], repetitions: Any) -> list[Found]:
    """Return the searches of a campaign, in the order in which they began.

    Args:
        probes: The valid probes, as rows from `overhead.plain_rows`.
        repetitions: Full probes that decide about a rate.
    """
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in probes:
        groups[(row[UNIT], *(row[name] for name in FIXED))].append(row)
    trials = repetitions if isinstance(repetitions, int) and repetitions > 0 else 1
    searches = []
    for (label, *values), rows in groups.items():
        condition = dict(zip(FIXED, values, strict=True))
        options = _options(condition)
        duration_s = max(row["duration_s"] or 0 for row in rows)
        if options is not None and duration_s > 0:
            searches.append(Found(label, condition, Search.of(options, duration_s, trials), rows))
    return searches


def table(searches: Sequence[Found], baseline: str | None) -> list[Row]:
    """Return a row for each search and goal: the capacity, its interval, and the overhead relative to the baseline.

    The capacity is between `capacity_per_s`, the highest rate that met the goal, and `missed_per_s`, the lowest that
    missed it. The interval of the overhead contains all ratios of two such intervals.
    """
    base = {
        (_key(one), goal): bounds
        for one in searches
        if one.network == baseline
        for goal, bounds in one.bounds.items()
    }
    return [
        {
            UNIT: one.network,
            "goal_loss_percent": goal.loss_percent,
            "capacity_per_s": bounds.low,
            "missed_per_s": bounds.high,
            "capacity_mbps": None if bounds.low is None else bounds.low * _payload(one) * 8e-6,
            "decided": one.search.is_decided(goal, one.probes),
            **_overhead(bounds, base.get((_key(one), goal)) if one.network != baseline else None),
            "probes": len(one.probes),
            "contradicting_probes": one.search.contradicting(goal, one.probes),
            **one.condition,
        }
        for one in searches
        for goal, bounds in one.bounds.items()
    ]


def changes(a: Sequence[Row], b: Sequence[Row], match_networks: bool) -> list[Row]:
    """Compare the capacities of two sides, as rows from `table`, for equal conditions and goals.

    `ratio` is that of the middles, and `ratio_low` and `ratio_high` contain all ratios of the two intervals. B is
    `better` or `worse` if they do not contain 1; both are False if a bound is unknown.
    """
    names = (*((UNIT,) if match_networks else ()), *(name for name in FIXED if name not in _NEVER_MATCHED))
    known = {(row["goal_loss_percent"], *(row[name] for name in names)): row for row in a}
    rows = []
    for own in b:
        other = known.get((own["goal_loss_percent"], *(own[name] for name in names)))
        if other is None:
            continue
        mine, base = (Bounds(row["capacity_per_s"], row["missed_per_s"]) for row in (own, other))
        middle, low, high = _ratio(mine, base) or (None, None, None)
        rows.append({
            "network": own[UNIT] if match_networks else "B / A", "goal": goal_of(own), **own,
            "a_low": base.low, "a_high": base.high, "b_low": mine.low, "b_high": mine.high,
            "ratio": middle, "ratio_low": low, "ratio_high": high,
            "better": low is not None and low > 1, "worse": high is not None and high < 1,
        })  # fmt: skip
    return rows


def _ratio(bounds: Bounds, base: Bounds | None) -> tuple[float, float, float] | None:
    """Return the ratio of two capacities, and the smallest and largest ratio of rates in their intervals."""
    if base is None or not (base.low and base.high and bounds.low and bounds.high):
        return None
    return (bounds.middle or 0) / (base.middle or 1), bounds.low / base.high, bounds.high / base.low


def _overhead(bounds: Bounds, base: Bounds | None) -> Row:
    names = ("overhead_percent", "ci_low_percent", "ci_high_percent")
    if (ratios := _ratio(bounds, base)) is None:
        return dict.fromkeys(names)
    middle, low, high = ratios
    return dict(zip(names, (100 * (1 - ratio) for ratio in (middle, high, low)), strict=True))


def _key(one: Found) -> tuple[Any, ...]:
    return tuple(one.condition.values())


def _payload(one: Found) -> float:
    return float(one.condition["payload_bytes"] or 0)


def _options(condition: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of a search, which the tidy table has as text; None: they are damaged."""
    names = Capacity.options.model_fields
    try:
        given = {
            name: json.loads(value) if isinstance(value, str) else value
            for name, value in ((name, condition[name]) for name in names)
        }
        whole = Capacity.options(
            **{name: value for name, value in given.items() if value is not None or name == "p99_ms"}
        )
    except (ValueError, ValidationError):
        return None
    return whole.model_dump()


def goal_of(row: Mapping[str, Any]) -> str:
    """Describe the goal of a row of `table`."""
    return Goal(row["goal_loss_percent"], row["p99_ms"]).describe()
