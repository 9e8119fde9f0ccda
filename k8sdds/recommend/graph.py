"""Show the answer about a graph: what fails first and why, tables of its flows and chains, and its figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.analysis import bottleneck, selection
from k8sdds.analysis.bottleneck import Bottleneck
from k8sdds.analysis.requirements import NOT_MET, Judgement, judge_flows
from k8sdds.model.application import Application, Requirement
from k8sdds.recommend import values
from k8sdds.recommend.answer import Answer, Ranked
from k8sdds.report import formats
from k8sdds.report.table import Cell, Table
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row

if TYPE_CHECKING:
    from k8sdds.report.figures import Figure

FLOW = "flow"
_OF_FLOWS = [FLOW, "sent", "lost", "missed", "p50 delay", "p99 delay", "p99 age"]
"""Heads of the table with what was measured of each flow."""
_OF_CHAIN = ("delay_p50_us", "delay_p90_us", "delay_p99_us", "delay_max_us")


def first_to_fail(best: Ranked) -> Judgement | None:
    """Return the requirement that fails first: one that is not met or not known, or the nearest to its limit.

    None without a requirement, or if all values are 0.
    """
    first = max(best.judgements, key=_urgency, default=None)
    return None if first is None or _urgency(first) == (0, 0.0) else first


def _urgency(judged: Judgement) -> tuple[int, float]:
    """Return how soon a requirement fails: its verdict, whether it is known, and its value relative to the limit."""
    share = 0.0 if judged.value is None else selection.share_of_limit(judged.requirement, judged.value)
    return (2 if judged.verdict == NOT_MET else 1 if judged.value is None else 0), share


def limit(application: Application, best: Ranked, judged: Judgement) -> Bottleneck | None:
    """Return what limits a requirement whose mean is not within its limit; None if it is, or no counter shows it."""
    if judged.mean_is_within:
        return None
    trials = _counted(best)
    if not judged.requirement.flow:
        return bottleneck.of_budget(trials)
    graph = application.graph()
    chains = {chain.name: graph.chain(chain.to) for chain in application.chains}
    name = judged.requirement.flow
    return bottleneck.find(graph, chains.get(name, [name]), trials)


def sentences(application: Application, best: Ranked) -> list[str]:
    """State what fails first, why, and what to change."""
    first = first_to_fail(best)
    if first is None:
        return []
    what = first.requirement.describe()
    if first.value is None:
        found = [f"The first to fail is {what}, of which no value is known ({first.why})."]
    else:
        share = selection.share_of_limit(first.requirement, first.value)
        found = [f"The first to fail is {what}, which is at {values.number(100 * share)} % of its limit."]
    full = limit(application, best, first)
    if full is not None:
        found.append(f"{full.limits}: {full.seen}. {full.change}.")
    elif not first.mean_is_within and bottleneck.with_counters(_counted(best)):
        found.append("No counter of its nodes shows what limits it.")
    return found


def tables(answer: Answer, best: Ranked) -> list[Table]:
    """Return what was measured of each flow and each chain."""
    application, trials, role = answer.evidence.application, best.option.trials, answer.role
    repetitions = formats.count(best.option.repetitions, "repetition")
    of_flow = ("delay_p50_us", "delay_p99_us", "age_p99_us")
    flows = [
        [
            Cell(flow.name),
            *(Cell(f"{_count(trials[flow.name], key):,}") for key in ("sent", "lost", "deadline_missed")),
            *_means(application, trials, flow.name, of_flow),
        ]
        for flow in application.flows
    ]
    found = [Table(f"Flows of the {role} configuration, sums and means of {repetitions}", _OF_FLOWS, flows)]
    graph = application.graph()
    chains = [
        [
            Cell(chain.name, " → ".join(graph.chain(chain.to))),
            *_means(application, trials, chain.name, _OF_CHAIN),
        ]
        for chain in application.chains
    ]
    heads = ["chain", *(METRICS[metric].title.replace(" delay", "") for metric in _OF_CHAIN)]
    chained = Table(f"Chains of the {role} configuration, from when the origin was due", heads, chains)
    return [*found, *([chained] if chains else [])]


def _count(rows: Sequence[Row], key: str) -> int:
    return sum(int(row[key] or 0) for row in rows)


def _means(
    application: Application, trials: Mapping[str, Sequence[Row]], name: str, metrics: Sequence[str]
) -> list[Cell]:
    """Return the mean of each metric of a flow or chain over repetitions; `–` if it is not known."""
    wanted = [Requirement(name, metric, math.inf) for metric in metrics]
    return [Cell(values.mean(application, each)) for each in judge_flows(wanted, trials)]


def figure(answer: Answer, best: Ranked, folder: Path) -> list[Figure]:
    """Draw the graph, with the requirements that its flows do not meet; nothing without a valid trial."""
    application, trials = answer.evidence.application, _trials(best)
    if not trials:
        return []
    from k8sdds.report.figures import graph as draw

    last = {chain.name: chain.to for chain in application.chains}
    failing: dict[str, list[str]] = {}
    for judged in best.judgements:
        if judged.verdict == NOT_MET and (name := judged.requirement.flow):
            failing.setdefault(last.get(name, name), []).append(judged.requirement.text)
    named = {name: node.on for name, node in application.nodes.items() if node.on}
    machines = named or draw.machines_of(trials)
    drawn = draw.Drawn(application.graph(), trials, machines, failing, lanes=bool(named))
    title = f"Nodes and flows of the {answer.role} configuration"
    return [draw.draw(drawn, title, "recommendation-graph", "recommendation", folder)]


def _counted(best: Ranked) -> Sequence[Row]:
    """Return the trials of a configuration, or the last attempt that was rejected if none is valid."""
    return _trials(best) or [*best.option.rejected.values()][:1]


def _trials(best: Ranked) -> Sequence[Row]:
    """Return the trials of a configuration, each of which has all flows."""
    return next(iter(best.option.trials.values()), ())
