"""Decide from evidence which configuration an application should use, and what is not decided."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from k8sdds.analysis import race, selection
from k8sdds.analysis.race import Measured, Standing
from k8sdds.analysis.requirements import (
    MET,
    NOT_MET,
    UNDECIDED,
    Judgement,
    Verdict,
    corrected_level,
    judge_flows,
    overall,
)
from k8sdds.analysis.selection import Fit
from k8sdds.analysis.statistics import Contrast
from k8sdds.model.application import Application, Optimize, Requirement
from k8sdds.recommend.evidence import Evidence, Option, describe_choice, of_own_run, own_application
from k8sdds.results.run_folder import RunFolder

_RANK: dict[Verdict, int] = {MET: 0, UNDECIDED: 1, NOT_MET: 2}


@dataclass(frozen=True)
class Ranked:
    """A configuration with its verdict and its place."""

    option: Option
    judgements: tuple[Judgement, ...]
    verdict: Verdict
    delays: tuple[Judgement, ...]
    """Percentiles of the delays that are always stated, whether they are required or not; they are not judged."""
    level: Contrast | None
    """Mean score as if all configurations had been measured in the same blocks; None if it is not known."""
    against: Contrast | None = None
    """Its score relative to that of the recommended configuration."""
    bounds: tuple[float | None, float | None] = (None, None)
    """Interval of `against` at the level of the tests that distinguish configurations."""
    tied: bool = False
    """Whether no test distinguishes it from the recommended configuration."""

    @property
    def cost(self) -> float | None:
        """The score in its own unit: percent of one core, or the delay as a share of its limit."""
        return self.level.ratio if self.level else None

    @property
    def beyond(self) -> tuple[int, float]:
        """How many requirements have no mean within the limit, and the worst of these means relative to its limit."""
        outside = [judgement for judgement in self.judgements if not judgement.mean_is_within]
        values = [(each.requirement, each.value) for each in outside if each.value is not None]
        return len(outside), max((selection.share_of_limit(*each) for each in values), default=0.0)

    @property
    def further(self) -> int:
        """Further repetitions that would decide requirements without longer trials; 0 if none or unknown."""
        return max((j.further or 0 for j in self.judgements if not j.longer_s), default=0)

    @property
    def longer_s(self) -> float:
        """How long trials must be so that requirements without a value probably have one; 0 if all are long enough."""
        return max((judgement.longer_s or 0 for judgement in self.judgements), default=0)


@dataclass(frozen=True)
class Worth:
    """What a choice is worth: the recommended value instead of another one."""

    choice: str
    recommended: Any
    other: Any
    quantity: Optimize
    contrast: Contrast | None
    """Other choices equal, recommended/other; None if no repetitions compare two such configurations."""
    configurations: int = 1
    """Number of pairs of configurations, which differ only in this choice, that the contrast is about."""

    @property
    def what(self) -> str:
        """The two values, such as `multicast instead of unicast`."""
        return f"{describe_choice(self.choice, self.recommended)} instead of {describe_choice(self.choice, self.other)}"


@dataclass(frozen=True)
class Answer:
    """What the evidence shows."""

    evidence: Evidence
    ranked: tuple[Ranked, ...]
    """All measured configurations, the best first."""
    worth: tuple[Worth, ...]
    confidence: float
    """Confidence of each requirement's interval, whose bounds decide about the requirement."""
    comparing: float = 0.95
    """Confidence of the intervals of configurations against the first one, whose bounds decide about ties."""
    fits: Mapping[Optimize, Fit] = field(default_factory=dict)
    """CPU time and delay of all configurations; the objective first."""

    @property
    def verdict(self) -> Verdict:
        """Whether a configuration is known to meet all requirements; undecided if one may."""
        return min((each.verdict for each in self.ranked), key=_RANK.__getitem__, default=UNDECIDED)

    @property
    def role(self) -> str:
        """What the first configuration is: it is recommended only if it is known to meet all requirements."""
        return {MET: "recommended", UNDECIDED: "most promising", NOT_MET: "nearest"}[self.verdict]

    @property
    def recommended(self) -> Ranked | None:
        """The best configuration; None if nothing was measured."""
        return self.ranked[0] if self.ranked else None

    @property
    def runner_up(self) -> Ranked | None:
        """The second best configuration with the same verdict; None if there is none."""
        if len(self.ranked) < 2 or self.ranked[1].verdict != self.ranked[0].verdict:
            return None
        return self.ranked[1]


def of_run(run: RunFolder) -> Answer | None:
    """Return the answer of a run folder; None if it measured no application."""
    experiment = own_application(run)
    return answer(of_own_run(run, experiment)) if experiment else None


def answer(evidence: Evidence) -> Answer:
    """Judge and rank all measured configurations, and estimate what each choice of the best one is worth."""
    application = evidence.application
    level = corrected_level(evidence.family_error, evidence.competing, evidence.rounds)
    quantities: list[Optimize] = [application.optimize, "cpu", "delay"]
    fits = {
        quantity: Fit(
            {each.key: selection.scores(application, each.trials, quantity) for each in evidence.options}
        )
        for quantity in dict.fromkeys(quantities)
    }
    fit = fits[application.optimize]
    standings = _standings(evidence) if evidence.rounds > 1 else {}
    judged = [_judged(application, option, level, fit) for option in evidence.options]
    judged.sort(key=lambda each: _place(each, standings.get(each.option.key)))
    if not judged:
        return Answer(evidence, (), (), 1 - 2 * level)
    best, *others = judged
    against = [fit.contrast((each.option.key, best.option.key)) for each in others]
    tests = evidence.rounds * sum(contrast is not None for contrast in against)
    # Bounds of one-sided tests (`analysis.race`), so that an interval and its verdict never contradict each other.
    comparing = 1 - 2 * corrected_level(evidence.family_error, tests)
    ranked = [best]
    for each, contrast in zip(others, against, strict=True):
        low, high = contrast.interval(comparing) if contrast else (None, None)
        tied = low is None or high is None or low <= 1 <= high
        ranked.append(replace(each, against=contrast, bounds=(low, high), tied=tied))
    worth = tuple(_worth(evidence, best.option, fits))
    return Answer(evidence, tuple(ranked), worth, 1 - 2 * level, comparing, fits)


def _judged(application: Application, option: Option, level: float, fit: Fit) -> Ranked:
    judgements = tuple(judge_flows(application.requirements, option.trials, level))
    delays = tuple(judge_flows(_percentiles(application), option.trials))
    # A flow does not work if no sample arrives, or if it cannot be measured, such as a reliable one that loses samples.
    verdict = NOT_MET if option.failed else overall(judgements)
    # A trial without a valid attempt can be one that lost samples: the others are not all that was measured.
    verdict = UNDECIDED if verdict == MET and option.rejected else verdict
    return Ranked(option, judgements, verdict, delays, fit.level(option.key))


def _percentiles(application: Application) -> list[Requirement]:
    """Return p50 and p90 of the delay of each flow as requirements without a limit; a graph has tables of its own."""
    return [
        Requirement(flow.name, f"delay_{name}_us", math.inf, text=f"{name} delay")
        for flow in (() if application.at_once else application.flows)
        for name in ("p50", "p90")
        if f"delay_{name}_us" not in {requirement.metric for requirement in flow.requirements}
    ]


def _standings(evidence: Evidence) -> dict[tuple[Any, ...], Standing]:
    """Return the predictions of a search for the configurations that it measured, most of them in few trials."""
    application = evidence.application
    measured = [
        Measured(
            selection.scores(application, option.trials),
            selection.violations(application, option.trials),
            failed=bool(option.failed),
        )
        for option in evidence.options
    ]
    designs = [[str(value) for value in option.key] for option in evidence.options]
    found = race.standings(designs, measured) if designs else []
    return {option.key: standing for option, standing in zip(evidence.options, found, strict=True)}


def _place(each: Ranked, standing: Standing | None) -> tuple[Any, ...]:
    """Return the sort key of a configuration.

    The verdict comes first; then how many flows are missing, and how far the means are beyond their limits; last the
    score. A search measures most configurations in few trials, so that it ranks them by what it predicts from all
    trials.
    """
    missing = sum(not rows for rows in each.option.trials.values())
    last = each.level.log if each.level else math.inf
    if standing is not None:
        last = standing.score if each.verdict == MET else -standing.balance
    return _RANK[each.verdict], missing, *each.beyond, last


def _worth(evidence: Evidence, best: Option, fits: Mapping[Optimize, Fit]) -> list[Worth]:
    """Return the benefit of each choice of the best configuration over every other measured value."""
    found = [
        _worth_of(evidence, best, fit, name, other, quantity)
        for quantity, fit in fits.items()
        for name in evidence.varied
        for other in dict.fromkeys(str(option.choices[name]) for option in evidence.options)
        if other != str(best.choices[name])
    ]
    # A choice that was not compared is named once.
    optimize = evidence.application.optimize
    return [worth for worth in found if worth.contrast is not None or worth.quantity == optimize]


def _worth_of(evidence: Evidence, best: Option, fit: Fit, name: str, other: str, quantity: Optimize) -> Worth:
    """Return the benefit of a choice for the best configuration, otherwise on average over others."""
    chosen = best.choices[name]
    with_chosen = {
        _rest(each, name): each for each in evidence.options if str(each.choices[name]) == str(chosen)
    }
    value: Any = other
    pairs = []
    for option in (each for each in evidence.options if str(each.choices[name]) == other):
        value = option.choices[name]
        partner = with_chosen.get(_rest(option, name))
        if partner is None or (contrast := fit.contrast((partner.key, option.key))) is None:
            continue
        if partner is best:
            return Worth(name, chosen, value, quantity, contrast)
        pairs.append((partner.key, option.key))
    return Worth(name, chosen, value, quantity, fit.contrast(*pairs), max(len(pairs), 1))


def _rest(option: Option, name: str) -> tuple[str, ...]:
    return tuple(str(value) for key, value in option.choices.items() if key != name)
