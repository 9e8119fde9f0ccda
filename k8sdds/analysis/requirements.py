"""Judge whether a configuration meets the requirements of an application: met, not met, or undecided.

A requirement limits a metric of a flow. It is met if the whole confidence interval of the metric's mean is within the
limit, not met if the whole interval is beyond it, and undecided otherwise. The mean is the geometric mean over
repetitions, as in all tables, or the arithmetic mean of shares, which may be 0.

A true mean is on one side of the limit, so only one verdict about it can be wrong. Each verdict is therefore a
one-sided test at a level, and the interval is two-sided at 1 - 2 · level. `corrected_level` derives the level.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

from k8sdds.analysis import missing
from k8sdds.analysis.flows import of_chain, of_flow
from k8sdds.analysis.statistics import CONFIDENCE, count_bounds, exp, t_interval, t_quantile
from k8sdds.model.application import Application, Requirement
from k8sdds.results import tidy
from k8sdds.results.histograms import RESOLUTION
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row

Verdict = Literal["met", "not met", "undecided"]
MET: Verdict = "met"
NOT_MET: Verdict = "not met"
UNDECIDED: Verdict = "undecided"

LEVEL = 1 - CONFIDENCE
"""Level of a judgement about a single configuration."""
BLOCK = "block_key"
"""Key of a trial with its block: trials are compared only within one."""
GRAPH = "graph"
"""The test whose trials have all flows of an application."""
MAX_FURTHER = 1000
"""Most further repetitions that are worth naming."""


def corrected_level(error: float, configurations: int, rounds: int = 1) -> float:
    """Return the level of each judgement, so that a configuration that is named as meeting all requirements does.

    If the named configuration is beyond a limit, one of the configurations that are truly beyond a limit was judged as
    met. For each of them, this has at most the probability `level`, whatever the number of its requirements (see
    `overall`). Which one is named depends on the same results, so that the probabilities of all add up: at most
    configurations · level (Bonferroni's inequality). A search measures more or ends depending on the results of each
    round, and could have ended after any of them, which gives configurations · rounds · level = error.
    """
    return error / (max(configurations, 1) * rounds)


@dataclass(frozen=True)
class Judgement:
    """The verdict about a requirement of a configuration."""

    requirement: Requirement
    verdict: Verdict
    value: float | None
    """Mean of the metric; None if it is not known."""
    low: float | None
    high: float | None
    n: int
    """Number of repetitions with a value."""
    further: int | None
    """Repetitions that would decide an undecided requirement if the mean and the spread stay as they are; None if it is
    decided, or the number is unknown or above MAX_FURTHER."""
    why: str = ""
    """Why an undecided requirement is undecided, or one is not met without an interval: no sample arrived."""
    longer_s: float | None = None
    """How long trials must be so that they probably have enough samples; None if unknown, or they have enough."""

    @property
    def mean_is_within(self) -> bool:
        """Whether the mean is within the limit, whatever the interval; a value that is not known is not."""
        if self.value is None:
            return False
        limit = self.requirement.limit
        return self.value >= limit if self.requirement.at_least else self.value <= limit


def judge(requirement: Requirement, trials: Sequence[Row], level: float = LEVEL) -> Judgement:
    """Judge a requirement by the valid trials of its flow in one configuration, with one-sided tests at a level."""
    metric = METRICS[requirement.metric]
    known = [(float(row[metric.name]), row) for row in trials if row.get(metric.name) is not None]
    values = [value for value, _ in known]
    if (silent := missing.without_samples(trials)) and not requirement.at_least:
        value = fmean(values) if len(values) == len(trials) else None
        return Judgement(requirement, NOT_MET, value, None, None, len(values), None, silent)
    if not values:
        why = missing.reason(list(trials), metric.name) if trials else "no valid trial"
        longer = missing.extended_s(trials, missing.factor(trials, metric.name))
        return Judgement(requirement, UNDECIDED, None, None, None, 0, None, why or "not measured", longer)
    scale, back = _scale(requirement, values)
    limit, samples = scale(requirement.limit), _samples(requirement, [row for _, row in known])
    center, _, _, spread = t_interval([scale(value) for value in values])
    # Values in the same range of a histogram differ by as much as its width.
    spread = max(spread, RESOLUTION / math.sqrt(12)) if spread is not None and scale is math.log else spread
    mean = _Mean(center, spread, len(values), samples / len(values), level)
    low, high = mean.bounds()
    verdict = _verdict(limit, low, high)
    further: int | None = None
    longer_s: float | None = None
    why = ""
    if verdict == UNDECIDED:
        further, factor = _further(limit, mean), _factor(limit, mean)
        longer_s = missing.extended_s(trials, factor)
        why = "the interval contains the limit"
        why = "one repetition has no interval" if spread is None else why
        why = "too few samples for so small a share" if factor > 1 else why
    bounds = [None if bound is None else back(bound) for bound in (low, high)]
    return Judgement(
        requirement,
        verdict,
        back(mean.center),
        *metric.possible(back(mean.center), *(bounds[::-1] if requirement.at_least else bounds)),
        len(values),
        further,
        why,
        longer_s,
    )


def _scale(
    requirement: Requirement, values: Sequence[float]
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return the scale on which values must stay below a limit, and the way back.

    A share to reach is a limit of what is missing to 100 %.
    """
    if requirement.at_least:
        return _missing_percent, _missing_percent
    if METRICS[requirement.metric].log and min(values) > 0 and requirement.limit > 0:
        return math.log, exp
    return float, lambda value: max(value, 0.0)


def _missing_percent(value: float) -> float:
    return 100 - value


def judge_flows(
    requirements: Iterable[Requirement], trials: Mapping[str, Sequence[Row]], level: float = LEVEL
) -> list[Judgement]:
    """Judge all requirements of a configuration by the valid trials of each flow, which have a BLOCK."""
    return [judge(requirement, rows_of(requirement, trials), level) for requirement in requirements]


def trials_of(
    application: Application, cells: Sequence[str], by_cell: Mapping[str, Sequence[Row]]
) -> dict[str, Sequence[Row]]:
    """Return the trials of each flow and each chain of a configuration with these cells.

    A trial of a graph has all flows: each gets a row in which its own results replace those of all. As in `tidy.best`,
    a percentile that one trial does not have has no mean of the others.
    """
    if not application.at_once:
        names = [flow.name for flow in application.flows]
        return {name: by_cell.get(cell, ()) for name, cell in zip(names, cells, strict=True)}
    whole = by_cell.get(cells[0], ())
    found = {flow.name: [of_flow(row, flow.name) for row in whole] for flow in application.flows}
    found |= {chain.name: [of_chain(row, chain.to) for row in whole] for chain in application.chains}
    return {name: tidy.comparable(rows) for name, rows in found.items()}


def rows_of(requirement: Requirement, trials: Mapping[str, Sequence[Row]]) -> Sequence[Row]:
    """Return the rows that decide a requirement: the trials of its flow, or one for each block with all flows."""
    return trials.get(requirement.flow, ()) if requirement.flow else budget_rows(trials)


def overall(judgements: Iterable[Judgement]) -> Verdict:
    """Return the verdict about a configuration: met if all requirements are, not met if one is not.

    Each requirement is judged at the same level. The verdict that all are met needs no correction for their number,
    because it is wrong only if a judgement of a requirement that is not met is wrong (an intersection-union test:
    Berger, Technometrics 24(4), 1982). The verdict that one is not met is wrong with at most the level times the number
    of requirements.
    """
    verdicts = {judgement.verdict for judgement in judgements}
    return NOT_MET if NOT_MET in verdicts else UNDECIDED if UNDECIDED in verdicts else MET


def _verdict(limit: float, low: float | None, high: float | None) -> Verdict:
    if low is None or high is None:
        return UNDECIDED
    return MET if high <= limit else NOT_MET if low > limit else UNDECIDED


@dataclass(frozen=True)
class _Mean:
    """The mean of a metric over repetitions, on the scale on which it is judged."""

    center: float
    spread: float | None
    """Standard deviation of the repetitions; None if there is only one."""
    n: int
    samples: float
    """Samples of a repetition, of which the mean is a share in percent; 0 for other metrics."""
    level: float

    def bounds(self, further: int = 0) -> tuple[float | None, float | None]:
        """Return the interval, after `further` repetitions if mean and spread stay as they are.

        That of a share also contains the interval of independent samples: a few lost ones can be as many in all
        repetitions by chance. Losses come in groups, so this one alone would be optimistic.
        """
        if self.spread is None:
            return None, None
        n = self.n + further
        half = t_quantile(n - 1, 1 - 2 * self.level) * self.spread / math.sqrt(n) if self.spread else 0.0
        low, high = self.center - half, self.center + half
        if self.samples:
            percent = 100 / (self.samples * n)
            fewest, most = count_bounds(max(self.center, 0.0) / percent, self.level)
            low, high = min(low, fewest * percent), max(high, most * percent)
        return low, high


def _further(limit: float, mean: _Mean) -> int | None:
    """Return how many further repetitions decide if mean and spread stay as they are."""
    candidates = (*range(1, 50), *range(50, MAX_FURTHER + 1, 10))
    decide = (more for more in candidates if _verdict(limit, *mean.bounds(more)) != UNDECIDED)
    return next(decide, None) if mean.spread is not None else None


def _factor(limit: float, mean: _Mean) -> float:
    """Return how many times as many samples decide about a share; 1 if its spread needs further repetitions, too."""
    if mean.spread is not None and _verdict(limit, *replace(mean, samples=0.0).bounds()) == UNDECIDED:
        return 1.0
    factor = 1.0
    while factor < MAX_FURTHER:
        longer = replace(mean, spread=0.0, samples=factor * mean.samples)
        if _verdict(limit, *longer.bounds()) != UNDECIDED:
            return factor
        factor *= 1.05
    return math.inf


def _samples(requirement: Requirement, trials: Sequence[Row]) -> float:
    """Return the number of samples of which a requirement limits a share; 0 if it limits something else.

    Publishers that sent every sample reached their rate: that of a flow with few samples needs no more of them.
    """
    if requirement.at_least:
        counts = [row.get("scheduled") or row.get("sent") or 0 for row in trials]
        return math.fsum(counts) if any(row[requirement.metric] < 100 for row in trials) else 0
    if METRICS[requirement.metric].unit != "%":
        return 0
    return math.fsum(
        (row.get("sent") or 0) * (row.get("subscribers") or 1)
        or (row.get("received") or 0) + (row.get("lost") or 0)
        for row in trials
    )


def zero_share_percent(level: float) -> float:
    """Return the upper bound of a share in percent that was 0, times the number of samples."""
    return 100 * count_bounds(0, level)[1]


# -- the CPU time of nodes ------------------------------------------------------------------------------------


def budget_rows(trials: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return `node_cpu_percent` and `total_cpu_percent` of each block in which all flows have trials; None if unknown.

    Without a graph, flows are measured one at a time, so a sum joins the trials of one block. In a block, the CPU time
    of a node is

        sum over flows of (participants of the flow on the node) + what its machine did for them outside of their pods

    where the latter is the sum over flows too, unless the flows were measured with the others as background: then each
    trial has the packets of all flows, and the largest part counts.
    """
    by_block: dict[Any, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for flow, own in trials.items():
        for row in own:
            by_block[row[BLOCK]][flow].append(row)
    found = {
        # A trial of a graph has all flows.
        block: _by_node(
            [flow for flow in flows.values() if flow[0].get("test") != GRAPH] or [*flows.values()][:1]
        )
        for block, flows in by_block.items()
        if len(flows) == len(trials)
    }
    return [
        {
            BLOCK: block,
            "node_cpu_percent": max(nodes, default=None),
            "total_cpu_percent": math.fsum(nodes) if nodes else None,
        }
        for block, nodes in found.items()
    ]


def _by_node(flows: Sequence[Sequence[Row]]) -> list[float]:
    """Return the CPU time of each node with all flows; empty if it is not known of one of them."""
    participants: dict[str, float] = defaultdict(float)
    shared: dict[str, list[float]] = defaultdict(list)
    for own in flows:
        known = [nodes for row in own if (nodes := row.get("nodes_cpu"))]
        if not known:
            return []
        for node in {node for nodes in known for node in nodes}:
            parts = [nodes[node] for nodes in known if node in nodes]
            participants[node] += fmean(part["participants"] for part in parts)
            shared[node].append(fmean(part["shared"] for part in parts))
    with_background = any((row.get("background") or "none") != "none" for own in flows for row in own)
    total = max if with_background else sum
    return [used + total(shared[node]) for node, used in participants.items()]
