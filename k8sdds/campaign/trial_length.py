"""Compute how long the trials of an application must be so that its requirements can be decided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from k8sdds.analysis import race
from k8sdds.analysis.requirements import LEVEL, corrected_level, zero_share_percent
from k8sdds.model.application import Application, ApplicationExperiment, Chain, Flow, Requirement
from k8sdds.results import histograms
from k8sdds.results.metrics import METRICS
from k8sdds.system.numbers import count

MIN_S = 3.0
MARGIN = 1.5
"""How much longer than necessary for the required percentiles a trial is: some samples may be lost, and some values
above a percentile are so close together by chance that they count as one episode."""
_PER_S = {"ms": 1e3, "µs": 1e6}
"""Units of time of requirements."""


@dataclass(frozen=True)
class Samples:
    """The number of samples without which a requirement stays undecided, whatever their values are."""

    requirement: Requirement
    needed: int
    per_s: float
    """Samples that count in each second of a trial."""
    owner: str
    """What has the samples, with its verb: `a trial has`, `3 repetitions have`."""

    @property
    def duration_s(self) -> float:
        """Length of a trial with this number of samples."""
        return self.needed / self.per_s

    def describe(self, duration_s: float) -> str:
        """Describe how many samples are needed, and how many trials of this length have."""
        has = math.floor(self.per_s * duration_s)
        return f"{self.requirement.describe()} needs {self.needed:,} samples, {self.owner} {has:,}"


def default_s(application: Application) -> float:
    """Return how long a trial must be at least so that the percentiles that the flows require are known.

    Delays that depend on each other need more time. Outages of the links have their share of it.
    """
    cycles = [outage.cycle_s for outage in application.link.link.outages]
    return max(_long_enough_s(_percentiles(application)), math.ceil(max(cycles, default=0)))


def slowest_percentile(application: Application) -> Samples | None:
    """Return the samples of the required percentile that needs the longest trials."""
    return max(_percentiles(application), key=lambda samples: samples.duration_s, default=None)


def undecidable(experiment: ApplicationExperiment, configurations: int) -> list[Samples]:
    """Return the requirements that trials of this length cannot decide if so many configurations are compared."""
    needed = [*_percentiles(experiment.application), *_shares(experiment, configurations)]
    return [samples for samples in needed if samples.duration_s > experiment.duration_s]


def extended(experiment: ApplicationExperiment, needed: Sequence[Samples]) -> ApplicationExperiment:
    """Return the experiment with trials that are long enough for all of these samples."""
    seconds = _long_enough_s(needed)
    application = experiment.application.model_copy(update={"duration_s": seconds})
    return experiment.model_copy(update={"duration_s": seconds, "application": application})


def _long_enough_s(needed: Sequence[Samples]) -> float:
    longest_s = max((samples.duration_s for samples in needed), default=0.0)
    return max(MIN_S, math.ceil(MARGIN * longest_s))


def _per_s(application: Application) -> list[tuple[Flow | Chain, float, int]]:
    """Return the samples per second of each flow and each chain at a subscriber, and the number of subscribers."""
    known = {flow.name: (flow.rate * flow.publishers, flow.subscribers) for flow in application.flows}
    flows: list[tuple[Flow | Chain, float, int]] = [(flow, *known[flow.name]) for flow in application.flows]
    return flows + [(chain, *known[chain.to]) for chain in application.chains]


def _percentiles(application: Application) -> list[Samples]:
    """Return the samples that the required percentiles, ages and times without a sample need."""
    return [
        Samples(requirement, _needed(requirement, per_s), per_s, "a trial has")
        for part, per_s, _ in _per_s(application)
        for requirement in part.requirements
        if METRICS[requirement.metric].unit in _PER_S
    ]


def _needed(requirement: Requirement, per_s: float) -> int:
    """Return how many samples a trial needs so that a quantity in a unit of time is known.

    The order of all delays is known at each subscriber alone. Of n independent values, n·q·(1 − q) episodes are above
    the quantile q: as many as values for p99, half as many for p50. In a trial that is shorter than the limit, no age
    and no time without a sample is beyond it.
    """
    kind, _, quantity = requirement.metric.partition("_")
    if kind != "delay":
        return math.ceil(per_s * requirement.limit / _PER_S[METRICS[requirement.metric].unit])
    quantity = quantity.removesuffix("_us")
    return math.ceil(histograms.needed(quantity) / (histograms.PERCENTILES.get(quantity, 100) / 100))


def _shares(experiment: ApplicationExperiment, configurations: int) -> list[Samples]:
    """Return the samples that limits of shares need.

    With fewer samples, not even trials without any loss show that the loss is within its limit.
    """
    search, repetitions = experiment.search, experiment.application.repetitions
    rounds = race.rounds(search.max_trials) if search and configurations > 1 else 1
    level = corrected_level(search.family_error if search else LEVEL, configurations, rounds)
    return [
        Samples(
            requirement,
            math.ceil(zero_share_percent(level) / requirement.limit),
            per_s * subscribers * repetitions,
            f"{count(repetitions, 'repetition')} {'has' if repetitions == 1 else 'have'}",
        )
        for part, per_s, subscribers in _per_s(experiment.application)
        for requirement in part.requirements
        if METRICS[requirement.metric].unit == "%" and not requirement.at_least
    ]
