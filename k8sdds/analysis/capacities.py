"""Evaluate the capacity searches of a campaign: the capacity of each network, and the delay below it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from k8sdds.analysis import statistics
from k8sdds.analysis.capacity import Bounds, Goal, Probe, Search
from k8sdds.analysis.conditions import COMPARABLE, CONDITION, UNIT, describe
from k8sdds.model.axis import axes
from k8sdds.model.options import MEMBERS, RATE, SEARCHES, SUBSCRIBERS, FleetCapacityOptions, SearchOptions
from k8sdds.results import tidy
from k8sdds.system.grouping import Row, grouped

_VARIED = {RATE: (RATE,), SUBSCRIBERS: (SUBSCRIBERS, "nodes"), MEMBERS: (MEMBERS,)}
"""Columns that differ between the probes of a search: the lab has more nodes for more participants."""

_COLUMNS = {
    RATE: ("capacity_per_s", "missed_per_s"),
    SUBSCRIBERS: ("capacity_subscribers", "missed_subscribers"),
    MEMBERS: ("capacity_members", "missed_members"),
}
"""Columns of `table` with the two ends of an interval, by what was searched."""

_GOAL = ("goal_loss_percent", "goal_matched_s")
"""Columns of `table` with the goal."""
_OF_SAMPLES = ("payload_bytes", "transport", "reliability", SUBSCRIBERS, RATE)
_OF_FLEETS = ("middleware", "discovery", "fleet_processes", "publishers", SUBSCRIBERS)

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

    @cached_property
    def comparable(self) -> list[Row]:
        """Its probes, without the metrics that another one of the same value and length does not have."""
        equal = grouped(self.trials, lambda row: (row[self.searched], row["duration_s"])).values()
        found = {
            row["trial_id"]: one
            for rows in equal
            for row, one in zip(rows, tidy.comparable(rows), strict=True)
        }
        return [found[row["trial_id"]] for row in self.trials]

    @property
    def title(self) -> str:
        """Its condition in short, such as `1 KiB, unicast, best-effort, 1 subscriber`."""
        return describe({name: self.condition[name] for name in title_columns(self.condition)})

    @property
    def searched(self) -> str:
        """The column that is searched: `rate`, `subscribers` or `fleet_members`."""
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
            same = (row for row in self.comparable if row[self.searched] == value)
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
    """Return the column that the search of a row or condition varied."""
    if SEARCHES.get(row["test"]) is FleetCapacityOptions:
        return MEMBERS
    return SUBSCRIBERS if row["max_subscribers"] else RATE


def title_columns(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the conditions that the title of a search always names."""
    return _OF_FLEETS if searched_by(row) == MEMBERS else _OF_SAMPLES


def bounds_of(row: Mapping[str, Any]) -> Bounds:
    """Return the interval of a row of `table`."""
    return Bounds(*(row[column] for column in _COLUMNS[searched_by(row)]))


def table(searches: Sequence[Found], baseline: str | None) -> list[Row]:
    """Return a row for each search and goal: the capacity, its interval, and the overhead relative to the baseline.

    The capacity is between `capacity_per_s`, the highest rate that met the goal, and `missed_per_s`, the lowest that
    missed it; or between `capacity_subscribers` and `missed_subscribers`, or `capacity_members` and `missed_members`,
    with which a fleet has `capacity_participants` and `missed_participants`. The others are None. The overheads of all
    ratios of two such brackets are between `bracket_low_percent` and `bracket_high_percent`.
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
            **dict(zip(_GOAL, (goal.loss_percent, goal.matched_s), strict=True)),
            **dict.fromkeys(itertools.chain(*_COLUMNS.values())),
            **dict(zip(_COLUMNS[one.searched], (bounds.low, bounds.high), strict=True)),
            **_participants(one, bounds),
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
    names = (*_GOAL, *((UNIT,) if match_networks else ()), *COMPARABLE)
    known = {tuple(row[name] for name in names): row for row in a}
    rows = []
    for own in b:
        other = known.get(tuple(own[name] for name in names))
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


def _participants(one: Found, bounds: Bounds) -> Row:
    """Return how many participants the fleets at both ends have; None of other searches."""
    processes = processes_of(one.condition) if one.searched == MEMBERS else None
    return {
        f"{name}_participants": None if end is None or processes is None else int(end) * processes
        for name, end in (("capacity", bounds.low), ("missed", bounds.high))
    }


def processes_of(row: Mapping[str, Any]) -> int | None:
    """Return how many processes the fleet of a row or condition has in all pods; None if that is unknown."""
    publishers, subscribers, in_pod = row["publishers"], row[SUBSCRIBERS], row["fleet_processes"]
    return None if None in (publishers, subscribers, in_pod) else (publishers + subscribers) * in_pod


def _options(condition: Mapping[str, Any]) -> SearchOptions | None:
    """Return the options of a search, which the tidy table has as text; None if they are damaged."""
    model = SEARCHES[condition["test"]]
    try:
        given = {name: _value(condition[axis.column]) for name, axis in axes(model).items()}
        return model(
            **{name: value for name, value in given.items() if value is not None or name == "p99_ms"}
        )
    except ValueError:
        return None


def _value(text: Any) -> Any:
    """Return the value of an option: numbers as they are, lists from JSON, words as they are."""
    with suppress(ValueError):
        return json.loads(text) if isinstance(text, str) else text
    return text


def goal_of(row: Mapping[str, Any]) -> str:
    """Describe the goal of a row of `table`."""
    return Goal(row["goal_loss_percent"], row["p99_ms"], row["goal_matched_s"]).describe()
