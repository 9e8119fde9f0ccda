"""Evaluate the capacity searches of a campaign: the capacity of each network, and the delay below it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from k8sdds.analysis import statistics
from k8sdds.analysis.capacity import Bounds, Goal, Probe, Search
from k8sdds.analysis.conditions import COMPARABLE, CONDITION, UNIT, describe
from k8sdds.system.grouping import Row, grouped
from k8sdds.workloads.capacity import RATE, SUBSCRIBERS, CapacityOptions

_VARIED = {RATE: (RATE,), SUBSCRIBERS: (SUBSCRIBERS, "nodes")}
"""Columns that differ between the probes of a search: the lab has more nodes for more participants."""

_COLUMNS = {
    RATE: ("capacity_per_s", "missed_per_s"),
    SUBSCRIBERS: ("capacity_subscribers", "missed_subscribers"),
}
"""Columns of `table` with the two ends of an interval, by what was searched."""

_TITLE = ("payload_bytes", "transport", "reliability", SUBSCRIBERS, RATE)

PERCENTILES = ("p50", "p90", "p99")


@dataclass(frozen=True)
class Found:
    """The probes of one search: one network under one condition."""

    network: str
    condition: Mapping[str, Any]
    """Its values of `CONDITION`; None for those that differ between its probes."""
    search: Search
    trials: Sequence[Row]
    """Its probes, as rows of the tidy table."""

    @cached_property
    def probes(self) -> list[Probe]:
        """Its probes."""
        return [Probe.of(row, self.searched) for row in self.trials]

    @property
    def title(self) -> str:
        """Its condition in short, such as `1 KiB, unicast, best-effort, 1 subscriber`."""
        return describe({name: self.condition[name] for name in _TITLE})

    @property
    def searched(self) -> str:
        """The column that is searched: `rate` or `subscribers`."""
        return searched_by(self.condition)

    @cached_property
    def bounds(self) -> dict[Goal, Bounds]:
        """The interval of the capacity by goal, the strictest goal first."""
        return {goal: self.search.bounds(goal, self.probes) for goal in self.search.goals}

    @property
    def delays(self) -> list[Row]:
        """The delay at each share of the capacity: `share_percent`, what was searched, and percentiles."""
        rows = []
        for share, value in self.search.latency_values(self.probes).items():
            same = (row for row in self.trials if row[self.searched] == value)
            trials = [row for row in same if row["duration_s"] == self.search.duration_s]
            row: Row = {"share_percent": share, self.searched: value, "n": len(trials)}
            for percentile in PERCENTILES:
                known = [delay for trial in trials if (delay := trial[f"delay_{percentile}_us"])]
                estimate = statistics.log_mean(known) if known else None
                for suffix, name in (("", "value"), ("_low", "low"), ("_high", "high")):
                    row[f"{percentile}{suffix}_us"] = getattr(estimate, name, None)
            rows.append(row)
        return rows


def found(probes: Sequence[Row], repetitions: Any) -> list[Found]:
    """Return the searches of a campaign, in the order in which they began.

    `probes` are the valid ones; `repetitions` of them decide about a value.
    """

    def key_of(row: Row) -> tuple[Any, ...]:
        varied = _VARIED[searched_by(row)]
        return row[UNIT], *(None if name in varied else row[name] for name in CONDITION)

    trials = repetitions if isinstance(repetitions, int) and repetitions > 0 else 1
    searches = []
    for (label, *values), rows in grouped(probes, key_of).items():
        condition = dict(zip(CONDITION, values, strict=True))
        options = _options(condition)
        duration_s = max(row["duration_s"] or 0 for row in rows)
        if options is not None and duration_s > 0:
            search = Search.of(options, duration_s, trials, condition[RATE] or 0)
            searches.append(Found(label, condition, search, rows))
    return searches


def searched_by(row: Mapping[str, Any]) -> str:
    """Return the column that the search of a row or condition varied: `rate` or `subscribers`."""
    return SUBSCRIBERS if row["max_subscribers"] else RATE


def bounds_of(row: Mapping[str, Any]) -> Bounds:
    """Return the interval of a row of `table`."""
    return Bounds(*(row[column] for column in _COLUMNS[searched_by(row)]))


def table(searches: Sequence[Found], baseline: str | None) -> list[Row]:
    """Return a row for each search and goal: the capacity, its interval, and the overhead relative to the baseline.

    The capacity is between `capacity_per_s`, the highest rate that met the goal, and `missed_per_s`, the lowest that
    missed it; or between `capacity_subscribers` and `missed_subscribers`. The other two are None. The overheads of
    all ratios of two such brackets are between `bracket_low_percent` and `bracket_high_percent`.
    """
    base = {
        (*one.condition.values(), goal): bounds
        for one in searches
        if one.network == baseline
        for goal, bounds in one.bounds.items()
    }
    return [
        {
            UNIT: one.network,
            "goal_loss_percent": goal.loss_percent,
            **dict.fromkeys(itertools.chain(*_COLUMNS.values())),
            **dict(zip(_COLUMNS[one.searched], (bounds.low, bounds.high), strict=True)),
            "capacity_mbps": _mbps(one, bounds),
            "decided": one.search.is_decided(goal, one.probes),
            **_overhead(
                bounds, base.get((*one.condition.values(), goal)) if one.network != baseline else None
            ),
            "probes": len(one.probes),
            "contradicting_probes": one.search.contradicting(goal, one.probes),
            **one.condition,
        }
        for one in searches
        for goal, bounds in one.bounds.items()
    ]


def changes(a: Sequence[Row], b: Sequence[Row], match_networks: bool) -> list[Row]:
    """Compare the capacities of two sides, as rows from `table`, for equal conditions and goals.

    `ratio` is that of the middles, and all ratios of the two brackets are between `bracket_ratio_low` and
    `bracket_ratio_high`. `overlapping` states whether they contain 1; None if an end of a bracket is unknown. It is no
    verdict, because a bracket contains the capacity with unknown probability.
    """
    names = (UNIT, *COMPARABLE) if match_networks else COMPARABLE
    known = {(row["goal_loss_percent"], *(row[name] for name in names)): row for row in a}
    rows = []
    for own in b:
        other = known.get((own["goal_loss_percent"], *(own[name] for name in names)))
        if other is None:
            continue
        mine, base = bounds_of(own), bounds_of(other)
        middle, low, high = _ratio(mine, base) or (None, None, None)
        rows.append({
            "network": own[UNIT] if match_networks else "B / A", "goal": goal_of(own), **own,
            "bracket_a_low": base.low, "bracket_a_high": base.high,
            "bracket_b_low": mine.low, "bracket_b_high": mine.high,
            "ratio": middle, "bracket_ratio_low": low, "bracket_ratio_high": high,
            "overlapping": None if low is None or high is None else low <= 1 <= high,
        })  # fmt: skip
    return rows


def _ratio(bounds: Bounds, base: Bounds | None) -> tuple[float, float, float] | None:
    """Return the ratio of two capacities, and the smallest and largest ratio of rates in their intervals."""
    if base is None or not (base.low and base.high and bounds.low and bounds.high):
        return None
    return (bounds.middle or 0) / (base.middle or 1), bounds.low / base.high, bounds.high / base.low


def _overhead(bounds: Bounds, base: Bounds | None) -> Row:
    names = ("overhead_percent", "bracket_low_percent", "bracket_high_percent")
    if (ratios := _ratio(bounds, base)) is None:
        return dict.fromkeys(names)
    middle, low, high = ratios
    return dict(zip(names, (100 * (1 - ratio) for ratio in (middle, high, low)), strict=True))


def _mbps(one: Found, bounds: Bounds) -> float | None:
    """Return the payload that one publisher sends at the capacity; None if its rate is fixed or unknown."""
    if bounds.low is None or one.searched != RATE:
        return None
    return bounds.low * float(one.condition["payload_bytes"] or 0) * 8e-6


def _options(condition: Mapping[str, Any]) -> CapacityOptions | None:
    """Return the options of a search, which the tidy table has as text; None if they are damaged."""
    names = CapacityOptions.model_fields
    try:
        given = {
            name: json.loads(value) if isinstance(value, str) else value
            for name, value in ((name, condition[name]) for name in names)
        }
        return CapacityOptions(
            **{name: value for name, value in given.items() if value is not None or name == "p99_ms"}
        )
    except ValueError:
        return None


def goal_of(row: Mapping[str, Any]) -> str:
    """Describe the goal of a row of `table`."""
    return Goal(row["goal_loss_percent"], row["p99_ms"]).describe()
