"""Score the configurations of an application and compare them in pairs.

The score of a configuration in a block (one repetition of a campaign) is the logarithm of what the application
minimizes: the CPU time of all participants of all flows, or the largest delay relative to its limit. Configurations are
compared within blocks, as networks are, so that what a whole block shares does not count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from k8sdds.analysis import tests
from k8sdds.analysis.overhead import Row
from k8sdds.analysis.tests import Contrast
from k8sdds.model.application import Application, Flow, Optimize

BLOCK = "block_key"
"""Key of a trial with its block: trials are compared only within one."""

Scores = Mapping[Any, float]
"""Score of a configuration by block."""
Trials = Mapping[str, Sequence[Row]]
"""Valid trials of a configuration by flow."""

TITLES: dict[Optimize, str] = {
    "cpu": "CPU time of all participants",
    "delay": "largest delay relative to its limit",
}


def scores(application: Application, trials: Trials, optimize: Optimize | None = None) -> dict[Any, float]:
    """Return the score of a configuration in each block in which every flow has a value."""
    per_flow = [
        _by_block(
            trials.get(flow.name, ()),
            lambda row, flow=flow: _cost(flow, row, optimize or application.optimize),
        )
        for flow in application.flows
    ]
    blocks = set.intersection(*(set(values) for values in per_flow))
    total = math.fsum if (optimize or application.optimize) == "cpu" else max
    found = {block: total([values[block] for values in per_flow]) for block in blocks}
    return {block: math.log(value) for block, value in sorted(found.items(), key=str) if value > 0}


def violations(application: Application, trials: Trials) -> dict[Any, float]:
    """Return by block the logarithm of the worst value of a requirement relative to its limit; above 0: beyond it."""
    worst: dict[Any, float] = {}
    for requirement in application.requirements:
        for row in trials.get(requirement.flow, ()):
            value = row.get(requirement.metric)
            if value is None:
                continue
            ratio = max(value, requirement.limit / 100) / requirement.limit
            log = -math.log(ratio) if requirement.at_least else math.log(ratio)
            worst[row[BLOCK]] = max(worst.get(row[BLOCK], -math.inf), log)
    return worst


def contrast(own: Scores, other: Scores) -> Contrast | None:
    """Return own/other as a contrast over the blocks that both have; None if there is none."""
    shared = own.keys() & other.keys()
    return tests.one_sample([own[block] - other[block] for block in shared]) if shared else None


def adjusted(measured: Mapping[Any, Scores], rounds: int = 50) -> dict[Any, float]:
    """Return the mean score of each configuration as if all had been measured in the same blocks.

    Least squares for additive effects of configurations and blocks, by alternation: Gentleman, Wilk, Applied Statistics
    24(2), 1975. With complete blocks, the results are the means.
    """
    means = {key: math.fsum(own.values()) / len(own) for key, own in measured.items() if own}
    members: dict[Any, list[tuple[Any, float]]] = defaultdict(list)
    for key in means:
        for block, score in measured[key].items():
            members[block].append((key, score))
    for _ in range(rounds):
        effects = {
            block: math.fsum(score - means[key] for key, score in rows) / len(rows)
            for block, rows in members.items()
        }
        center = math.fsum(effects.values()) / len(effects) if effects else 0.0
        means = {
            key: math.fsum(score - effects[block] + center for block, score in measured[key].items())
            / len(measured[key])
            for key in means
        }
    return means


def _cost(flow: Flow, row: Row, optimize: Optimize) -> float | None:
    """Return what a trial costs: percent of a core, or the largest delay relative to its limit."""
    if optimize == "cpu":
        publisher, subscriber = row.get("publisher_cpu_percent"), row.get("subscriber_cpu_percent")
        if publisher is None or subscriber is None:
            return None
        return float(flow.publishers * publisher + flow.subscribers * subscriber)
    limits = [(r.metric, r.limit) for r in flow.requirements if r.metric.startswith("delay_")]
    values = [(row.get(metric), limit) for metric, limit in limits or [("delay_p90_us", 1e6 / flow.rate)]]
    known = [value / limit for value, limit in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _by_block(rows: Iterable[Row], value_of: Any) -> dict[Any, float]:
    """Return the geometric mean of a value in each block."""
    logs: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        value = value_of(row)
        if value is not None and value > 0:
            logs[row[BLOCK]].append(math.log(value))
    return {block: math.exp(math.fsum(own) / len(own)) for block, own in logs.items()}
