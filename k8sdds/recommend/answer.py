"""Decide from evidence which configuration an application should use, and what is not decided."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from k8sdds.analysis.selection import TITLES, Fit
from k8sdds.analysis.tests import Contrast
from k8sdds.model.application import Application, Optimize
from k8sdds.recommend.evidence import Evidence, Option, describe_choice

_RANK: dict[Verdict, int] = {MET: 0, UNDECIDED: 1, NOT_MET: 2}


@dataclass(frozen=True)
class Ranked:
    """A configuration with its verdict and its place."""

    option: Option
    judgements: tuple[Judgement, ...]
    verdict: Verdict
    score: float | None
    """Mean score as if all configurations had been measured in the same blocks; None: it is not known."""
    cost_interval: tuple[float | None, float | None] = (None, None)
    """95 % interval of `cost`."""
    against: Contrast | None = None
    """Its score relative to that of the recommended configuration."""
    tied: bool = False
    """Whether no test distinguishes it from the recommended configuration."""

    @property
    def further(self) -> int | None:
        """Further repetitions that would decide all requirements; None: unknown, or none is undecided."""
        numbers = [judgement.further for judgement in self.judgements if judgement.verdict == UNDECIDED]
        known = [number for number in numbers if number is not None]
        return max(known) if known and len(known) == len(numbers) else None

    @property
    def cost(self) -> float | None:
        """The score in its own unit: percent of one core, or the delay as a share of its limit."""
        return None if self.score is None else math.exp(self.score)


@dataclass(frozen=True)
class Worth:
    """What a choice is worth: the recommended value instead of another one."""

    choice: str
    recommended: Any
    other: Any
    quantity: Optimize
    contrast: Contrast | None
    """Other configurations equal, recommended/other; None: it was not measured."""
    configurations: int = 1
    """Number of pairs of configurations, which differ only in this choice, that the contrast is about."""

    def describe(self) -> str:
        """Describe it as a sentence."""
        what = f"{describe_choice(self.choice, self.recommended)} instead of {describe_choice(self.choice, self.other)}"
        if self.contrast is None:
            return f"{what}: not measured"
        low, high = self.contrast.interval()
        text = f"{what}: {100 * (self.contrast.ratio - 1):+.0f} % {TITLES[self.quantity]}"
        if low is None or high is None:
            return f"{text} (too few trials for an interval)"
        text += f" [{100 * (low - 1):+.0f}, {100 * (high - 1):+.0f}]"
        if self.configurations > 1:
            text += f", on average over {self.configurations} pairs of other configurations"
        return text if low > 1 or high < 1 else f"{text}: no difference seen"


@dataclass(frozen=True)
class Answer:
    """What the evidence shows."""

    evidence: Evidence
    ranked: tuple[Ranked, ...]
    """All measured configurations, the best first."""
    worth: tuple[Worth, ...]
    confidence: float
    """Confidence of each requirement's interval, whose bounds decide about the requirement."""

    @property
    def verdict(self) -> Verdict:
        """Whether a configuration is known to meet all requirements; undecided if one may."""
        return min((each.verdict for each in self.ranked), key=_RANK.__getitem__, default=UNDECIDED)

    @property
    def recommended(self) -> Ranked | None:
        """The best configuration; None: nothing was measured."""
        return self.ranked[0] if self.ranked else None

    @property
    def runner_up(self) -> Ranked | None:
        """The second best configuration with the same verdict; None: there is none."""
        if len(self.ranked) < 2 or self.ranked[1].verdict != self.ranked[0].verdict:
            return None
        return self.ranked[1]

    @property
    def undecided(self) -> list[Ranked]:
        """Configurations that might be better than the recommended one if further repetitions decided about them."""
        best = self.recommended
        if best is None:
            return []
        return [
            each
            for each in self.ranked[1:]
            if each.verdict == UNDECIDED
            and (
                best.verdict != MET
                or each.score is None
                or best.score is None
                or each.score <= best.score
                or each.tied
            )
        ]


def answer(evidence: Evidence) -> Answer:
    """Judge and rank all measured configurations, and estimate what each choice of the best one is worth."""
    application = evidence.application
    level = corrected_level(evidence.family_error, evidence.competing, evidence.rounds)
    confidence = 1 - 2 * level
    fit = Fit({option.key: selection.scores(application, option.trials) for option in evidence.options})
    judged: list[Ranked] = []
    for option in evidence.options:
        judgements = tuple(judge_flows(application.requirements, option.trials, level))
        cost = fit.level(option.key)
        score, interval = (cost.log, cost.interval()) if cost else (None, (None, None))
        judged.append(Ranked(option, judgements, _verdict(option, judgements), score, interval))
    standings = _standings(evidence) if evidence.rounds > 1 else {}
    judged.sort(key=lambda each: _place(application, each, standings.get(each.option.key)))
    if not judged:
        return Answer(evidence, (), (), confidence)
    best = judged[0]
    against = {each.option.key: fit.contrast((each.option.key, best.option.key)) for each in judged[1:]}
    tests = evidence.rounds * sum(contrast is not None for contrast in against.values())
    others = [
        replace(each, against=contrast, tied=_tied(contrast, tests, evidence.family_error))
        for each in judged[1:]
        for contrast in [against[each.option.key]]
    ]
    return Answer(evidence, (best, *others), tuple(_worth(evidence, best.option)), confidence)


def _verdict(option: Option, judgements: Sequence[Judgement]) -> Verdict:
    # A flow that cannot be measured, such as one that loses samples although it is reliable, does not work.
    return NOT_MET if option.failed else overall(judgements)


def _standings(evidence: Evidence) -> dict[tuple[Any, ...], Standing]:
    """Return what a search predicts of the configurations that it measured: most of them in few trials."""
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


def _place(application: Application, each: Ranked, standing: Standing | None) -> tuple[Any, ...]:
    """Return the sort key of a configuration.

    The verdict comes first; then how many flows are missing, and how far it is beyond its limits; last the score. A
    search measures most configurations in few trials, so that it ranks them by what it predicts from all trials.
    """
    missing = sum(not rows for rows in each.option.trials.values())
    score = math.inf if each.score is None else each.score
    if each.verdict == NOT_MET:
        worst = selection.violations(application, each.option.trials)
        beyond = math.fsum(worst.values()) / len(worst) if worst and not each.option.failed else math.inf
        return _RANK[each.verdict], missing, beyond, score
    if each.verdict == MET:
        return _RANK[each.verdict], missing, 0.0, standing.score if standing else score
    if standing is not None:
        return _RANK[each.verdict], missing, 0.0, -standing.balance
    beyond = sum(not judgement.mean_is_within for judgement in each.judgements)
    return _RANK[each.verdict], missing, beyond, score


def _tied(against: Contrast | None, tests: int, family_error: float) -> bool:
    """Return whether no test shows that a configuration is worse than the recommended one (see `analysis.race`)."""
    p = against.p_above(1) if against else None
    return p is None or p * tests > family_error


def _worth(evidence: Evidence, best: Option) -> list[Worth]:
    """Return what each choice of the best configuration is worth against every other measured value."""
    application = evidence.application
    found = []
    for quantity in dict.fromkeys((application.optimize, "cpu", "delay")):
        fit = Fit(
            {
                option.key: selection.scores(application, option.trials, quantity)
                for option in evidence.options
            }
        )
        for name in evidence.varied:
            others = dict.fromkeys(str(option.choices[name]) for option in evidence.options)
            for other in others:
                if other != str(best.choices[name]):
                    found.append(_worth_of(evidence, best, fit, name, other, quantity))
    # The objective first; a choice that was not measured is named once.
    return [worth for worth in found if worth.contrast is not None or worth.quantity == application.optimize]


def _worth_of(evidence: Evidence, best: Option, fit: Fit, name: str, other: str, quantity: Optimize) -> Worth:
    """Return what a choice is worth for the best configuration, otherwise on average over others."""
    chosen = str(best.choices[name])
    value: Any = other
    by_rest = {
        _rest(option, name): option for option in evidence.options if str(option.choices[name]) == chosen
    }
    pairs = []
    for option in evidence.options:
        if str(option.choices[name]) != other:
            continue
        value = option.choices[name]
        partner = by_rest.get(_rest(option, name))
        if partner is None or fit.contrast((partner.key, option.key)) is None:
            continue
        pairs.append((partner.key, option.key))
        if partner is best:
            return Worth(name, best.choices[name], value, quantity, fit.contrast(pairs[-1]))
    return Worth(name, best.choices[name], value, quantity, fit.contrast(*pairs), max(len(pairs), 1))


def _rest(option: Option, name: str) -> tuple[str, ...]:
    return tuple(str(value) for key, value in option.choices.items() if key != name)
