"""Score the configurations of an application and compare them in pairs.

The score of a configuration in a block (one repetition of a campaign) is the logarithm of what the application
minimizes: the CPU time of all nodes for all flows, or the largest delay relative to its limit. Configurations are
compared within blocks, as networks are, so that what a whole block shares does not count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from k8sdds.analysis.requirements import BLOCK, budget_rows, rows_of
from k8sdds.analysis.statistics import Contrast, geometric_mean
from k8sdds.model.application import Application, Chain, Flow, Optimize, Requirement
from k8sdds.system.grouping import Row

OWN_SPREAD = 1.0
"""Degrees of freedom from which a configuration has its own spread: those of three repetitions or more."""
Scores = Mapping[Any, float]
"""Score of a configuration by block."""
Trials = Mapping[str, Sequence[Row]]
"""Valid trials of a configuration by flow."""

TITLES: dict[Optimize, str] = {
    "cpu": "CPU time of all nodes",
    "delay": "largest delay relative to its limit",
}


def scores(application: Application, trials: Trials, optimize: Optimize | None = None) -> dict[Any, float]:
    """Return the score of a configuration in each block in which every flow has a value."""
    by_block = _cpu if (optimize or application.optimize) == "cpu" else _delay
    found = by_block(application, trials)
    return {block: math.log(value) for block, value in sorted(found.items(), key=str) if value > 0}


def violations(application: Application, trials: Trials) -> dict[Any, float]:
    """Return by block the logarithm of the worst value of a requirement relative to its limit, above 0 beyond it.

    It is limited to -1 and 1: one disturbed trial must not outweigh all others, and a share of 0 has no logarithm.
    """
    worst: dict[Any, float] = {}
    for requirement in application.requirements:
        for row in rows_of(requirement, trials):
            value = row.get(requirement.metric)
            if value is None:
                continue
            log = max(-1.0, min(1.0, math.log(max(share_of_limit(requirement, value), 1e-9))))
            worst[row[BLOCK]] = max(worst.get(row[BLOCK], -1.0), log)
    return worst


def share_of_limit(requirement: Requirement, value: float) -> float:
    """Return a value relative to its limit; above 1: beyond it.

    A share to reach is a limit of what is missing to 100 %: 99 % of 98 % is half of what may be missing.
    """
    if requirement.at_least:
        return (100 - value) / (100 - requirement.limit)
    return value / requirement.limit


class Fit:
    """Additive effects of configurations and blocks on scores, by least squares.

    Configurations that were never measured in the same block are compared through others, as in the analysis of
    incomplete blocks: Yates, Annals of Eugenics 7(2), 1936. Each configuration has its own spread: with a common one, a
    noisy configuration among quiet ones would be called worse or better too often. The variance of its trials is the
    sum of their squared residuals divided by the sum of 1 - leverage, its degrees of freedom (Horn, Horn, Duncan,
    "Estimating heteroscedastic variances in linear models", JASA 70(350), 1975). The degrees of freedom of a contrast
    follow from those of its configurations (Satterthwaite, Biometrics Bulletin 2(6), 1946). For two configurations this
    is Student's paired t test.

    A configuration with fewer than OWN_SPREAD degrees of freedom is assumed to have the common spread of all. With one
    residual there is no test.
    """

    def __init__(self, measured: Mapping[Any, Scores]) -> None:
        import numpy as np

        known = {key: own for key, own in measured.items() if own}
        self._index = {key: number for number, key in enumerate(known)}
        self._n = {key: len(own) for key, own in known.items()}
        names = dict.fromkeys(block for own in known.values() for block in own)
        blocks = {block: number for number, block in enumerate(names)}
        entries = [
            (self._index[key], blocks[b], score) for key, own in known.items() for b, score in own.items()
        ]
        self._owner = np.array([index for index, _, _ in entries], dtype=int)
        design = np.zeros((len(entries), len(known) + len(blocks)))
        for row, (index, block, _) in enumerate(entries):
            design[row, index] = design[row, len(known) + block] = 1.0
        values = np.array([score for _, _, score in entries])
        inverse = np.linalg.pinv(design.T @ design, hermitian=True)
        self._projection = inverse @ (design.T @ design)
        # Row e has what the score of entry e adds to each effect.
        self._shares = design @ inverse
        self._effects = self._shares.T @ values
        residuals, leverages = values - design @ self._effects, (self._shares * design).sum(1)
        squares, self._dfs = self._sums(residuals**2), self._sums(1 - leverages)
        self._df = len(entries) - round(float(np.trace(self._projection)))
        self._own = self._dfs >= OWN_SPREAD - 1e-9  # a sum of rounded numbers
        self._variances = np.full(len(known), squares.sum() / max(self._df, 1))
        self._variances[self._own] = squares[self._own] / self._dfs[self._own]

    def _sums(self, values: Any) -> Any:
        import numpy as np

        return np.bincount(self._owner, values, len(self._index))

    def level(self, key: Any) -> Contrast | None:
        """Return the mean score as if all had been measured in all blocks; None if it was not measured."""
        import numpy as np

        if key not in self._index:
            return None
        weights = np.zeros(len(self._effects))
        weights[self._index[key]] = 1.0
        weights[len(self._index) :] = 1 / max(len(weights) - len(self._index), 1)
        return self._estimate(weights, self._n[key])

    def contrast(self, *pairs: tuple[Any, Any]) -> Contrast | None:
        """Return the mean of own/other over pairs of configurations; None if blocks do not connect them."""
        import numpy as np

        if not pairs or any(key not in self._index for pair in pairs for key in pair):
            return None
        weights = np.zeros(len(self._effects))
        for own, other in pairs:
            weights[self._index[own]] += 1 / len(pairs)
            weights[self._index[other]] -= 1 / len(pairs)
        if np.abs(self._projection @ weights - weights).max() > 1e-6:
            return None
        return self._estimate(weights, min(self._n[key] for pair in pairs for key in pair))

    def _estimate(self, weights: Any, n: int) -> Contrast:
        log = float(weights @ self._effects)
        if self._df <= 0:
            return Contrast(log, None, None, n)
        # The part of each configuration in the variance; those with the common spread share one estimate.
        parts = self._variances * self._sums((self._shares @ weights) ** 2)
        own, common = parts[self._own], float(parts[~self._own].sum())
        variance = float(parts.sum())
        uncertainty = float((own**2 / self._dfs[self._own]).sum()) + common**2 / self._df
        return Contrast(log, math.sqrt(variance), variance**2 / uncertainty if uncertainty else self._df, n)


def _cpu(application: Application, trials: Trials) -> dict[Any, float]:
    """Return the CPU time of all nodes for all flows by block, in percent of one core."""
    flows = {
        flow.name: [_with_nodes(flow, row) for row in trials.get(flow.name, ())] for flow in application.flows
    }
    totals = {row[BLOCK]: row["total_cpu_percent"] for row in budget_rows(flows)}
    return {block: total for block, total in totals.items() if total is not None}


def _with_nodes(flow: Flow, row: Row) -> Row:
    """Return a trial; one whose record does not have its cost (before schema 4) gets that of its participants alone."""
    publisher, subscriber = row.get("publisher_cpu_percent"), row.get("subscriber_cpu_percent")
    if row.get("total_cpu_percent") is not None or publisher is None or subscriber is None:
        return row
    used = flow.publishers * publisher + flow.subscribers * subscriber
    return row | {"nodes_cpu": {"": {"participants": used, "shared": 0.0}}}


def _delay(application: Application, trials: Trials) -> dict[Any, float]:
    """Return the largest delay of a flow or chain relative to its limit by block."""
    parts: list[Flow | Chain] = [*application.flows, *(chain for chain in application.chains if chain.delay)]
    flows = [_by_block(trials.get(part.name, ()), partial(_share_of_limit, part)) for part in parts]
    blocks = set.intersection(*(set(values) for values in flows))
    return {block: max(values[block] for values in flows) for block in blocks}


def _share_of_limit(part: Flow | Chain, row: Row) -> float | None:
    limits = [(r.metric, r.limit) for r in part.requirements if r.metric.startswith("delay_")]
    if isinstance(part, Flow):
        limits = limits or [("delay_p90_us", 1e6 / part.rate)]
    values = [(row.get(metric), limit) for metric, limit in limits]
    known = [value / limit for value, limit in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _by_block(rows: Iterable[Row], value_of: Callable[[Row], float | None]) -> dict[Any, float]:
    values: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        value = value_of(row)
        if value is not None and value > 0:
            values[row[BLOCK]].append(value)
    return {block: geometric_mean(own) for block, own in values.items()}
