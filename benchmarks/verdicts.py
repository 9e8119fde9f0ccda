"""Simulate answers whose truth is known, and report how often each verdict is wrong.

Each simulated answer is one of k8sdds itself, from trials with log-normal noise. A verdict has a stated error: the
largest probability that it is wrong. The simulated truth is the least favorable one, such as configurations at a limit.
A second table shows how often "meets all requirements" is found if it is true, in a quarter of as many answers.
`--pairs` is the number of answers of each simulation; a search counts as twenty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import common
import numpy as np
import recommend
from numpy.typing import NDArray

from k8sdds.analysis.requirements import BLOCK, MET
from k8sdds.campaign import applications, start
from k8sdds.campaign.expansion import expand
from k8sdds.model.application import Application, ApplicationExperiment, Search
from k8sdds.model.trial import Trial
from k8sdds.recommend import evidence
from k8sdds.recommend.answer import Answer, answer
from k8sdds.recommend.evidence import Evidence, Option
from k8sdds.system.grouping import Row

LIMIT_US = 10_000
ROBOT = Application.model_validate({
    "name": "robot",
    "flows": [{"name": "camera", "payload_bytes": 65536, "rate": 100, "subscribers": 2, "delay": "p90 <= 10 ms"}],
    "choices": {
        "networks": ["flannel-vxlan", "flannel-hostgw", "kube-router", "weavenet"],
        "receive_mode": ["listener", "waitset"],
    },
})  # fmt: skip
SPREAD = 0.1
"""Standard deviation of the logarithms of a trial."""
PER_SEARCH = 20
"""Answers that take as long as a search."""

Values = NDArray[np.float64]
"""Logarithms by configuration and block; NaN: not measured."""


@dataclass(frozen=True)
class Verdict:
    """A verdict, the largest probability with which it may be wrong, and a simulated answer in which it can be."""

    text: str
    case: str
    stated: float
    wrong: Callable[[np.random.Generator], bool]
    cost: int = 1
    """Time of an answer relative to the others."""

    def rate(self, answers: int, seed: int) -> float:
        """Return the share of answers in which the verdict is wrong."""
        random = np.random.default_rng(seed)
        count = max(answers // self.cost, 1)
        return sum(self.wrong(random) for _ in range(count)) / count


# -- answers ----------------------------------------------------------------------------------------------


def answered(delays: Values, costs: Values) -> Answer:
    """Return the answer about configurations with these delays relative to the limit, and CPU times."""
    options = [
        Option(
            {"network": f"network-{index}"},
            {
                "camera": [
                    row(float(delay), float(cost)) | {BLOCK: block}
                    for block, (delay, cost) in enumerate(zip(own, used, strict=True))
                    if not math.isnan(delay)
                ]
            },
        )
        for index, (own, used) in enumerate(zip(delays, costs, strict=True))
    ]
    return answer(Evidence(ROBOT, tuple(options)))


def row(delay: float, cost: float) -> dict[str, Any]:
    """Return the results of a trial."""
    used = 10 * math.exp(cost)
    return {
        "delay_p90_us": LIMIT_US * math.exp(delay), "publisher_cpu_percent": used, "subscriber_cpu_percent": used,
        "achieved_rate_percent": 100.0, "sent": 1000, "subscribers": 2,
    }  # fmt: skip


def searched(random: np.random.Generator, delay: float) -> Answer:
    """Return the answer of a search with a fifth of the trials among configurations that have the same true delay."""
    every = applications.experiment(ROBOT)
    most = len(expand(every).cells) * ROBOT.repetitions // 5
    experiment = every.model_copy(update={"search": Search(max_trials=most)})
    return answer(evidence.of_trials(experiment, trials_of(experiment, random, delay), {}, "search"))


def trials_of(experiment: ApplicationExperiment, random: np.random.Generator, delay: float) -> list[Row]:
    """Return the trials of a search, which the planner of `k8sdds recommend` requests."""
    plan = start.planner_of(expand(experiment))
    assert plan is not None
    rows: list[Row] = []
    attempts = []
    trials: Sequence[Trial] = expand(experiment).trials("lab")
    while trials:
        for trial in trials:
            noise, cost = random.normal(0, SPREAD, 2)
            found = recommend.labeled(trial, row(delay + noise, cost))
            rows.append(found)
            attempts.append(recommend.attempt(trial, found))
        trials = plan.more(attempts)
    return rows


def noise(random: np.random.Generator, configurations: int, repetitions: int) -> Values:
    """Return the noise of all trials."""
    return random.normal(0, SPREAD, (configurations, repetitions))


# -- verdicts ---------------------------------------------------------------------------------------------


def beyond_a_limit(configurations: int) -> Verdict:
    """All configurations are at the limit of their delay in 5 repetitions, so that none is known to meet it."""
    return Verdict(
        "meets all requirements",
        f"{configurations} at a limit",
        0.05,
        lambda random: (
            answered(noise(random, configurations, 5), noise(random, configurations, 5)).verdict == MET
        ),
    )


def beyond_a_limit_in_a_search() -> Verdict:
    """As `beyond_a_limit`, but the search selects what it measures by the results."""
    return Verdict(
        "meets all requirements",
        "a search, all at a limit",
        0.05,
        lambda random: searched(random, 0.0).verdict == MET,
        PER_SEARCH,
    )


def not_the_best(noisy_is_best: bool, ratio: float, share: float = 1.0) -> Verdict:
    """One of 20 configurations with equal costs has a larger spread; the best one is called worse.

    Args:
        noisy_is_best: Whether the noisy configuration is the best one, or one of the others.
        ratio: Spread of the noisy configuration relative to the others.
        share: Share of the configurations that each block measures.
    """

    def wrong(random: np.random.Generator) -> bool:
        configurations, blocks = 20, round(5 / share)
        costs = noise(random, configurations, blocks)
        costs[0] *= ratio
        measured = random.permuted(
            np.tile(np.arange(configurations) < share * configurations, (blocks, 1)), axis=1
        )
        delays = np.where(measured.T, -1 + noise(random, configurations, blocks), np.nan)
        best = f"network-{0 if noisy_is_best else 1}"
        return any(
            each.option.choices["network"] == best and (each.bounds[0] or 0) > 1
            for each in answered(delays, costs).ranked[1:]
        )

    best = (
        f"the best is {'noisy' if noisy_is_best else 'quiet, another noisy'}"
        if ratio > 1
        else "equally noisy"
    )
    blocks = "complete" if share == 1 else "incomplete"
    return Verdict("worse than the recommended one", f"20 in {blocks} blocks, {best}", 0.05, wrong)


VERDICTS = (
    *(beyond_a_limit(configurations) for configurations in (1, 8, 32, 64)),
    beyond_a_limit_in_a_search(),
    not_the_best(noisy_is_best=True, ratio=1),
    not_the_best(noisy_is_best=True, ratio=4),
    not_the_best(noisy_is_best=False, ratio=4),
    not_the_best(noisy_is_best=True, ratio=4, share=0.4),
    not_the_best(noisy_is_best=False, ratio=4, share=0.4),
)


# -- power ------------------------------------------------------------------------------------------------


def found(random: np.random.Generator, configurations: int, margin: float, spread: float) -> bool:
    """Return whether the only configuration within its limits is found, in 5 repetitions.

    Args:
        margin: How far its delay is below the limit, relative to the limit. All others are above it by a factor of 2.
        spread: Standard deviation of the logarithms of a trial.
    """
    truth = np.full((configurations, 1), math.log(2))
    truth[0] = math.log(1 - margin)
    delays = truth + noise(random, configurations, 5) * spread / SPREAD
    return answered(delays, noise(random, configurations, 5)).verdict == MET


def power(answers: int, seed: int) -> list[tuple[str, ...]]:
    """Return rows of a table: by margin and spread, how often the verdict is found."""
    rows = []
    for margin in (0.3, 0.5):
        for spread in (0.05, 0.1, 0.2):
            cells = []
            for configurations in (1, 8, 32, 64):
                random = np.random.default_rng(seed)
                cells.append(
                    sum(found(random, configurations, margin, spread) for _ in range(answers)) / answers
                )
            rows.append((f"{margin:.0%}", f"{spread:.0%}", *(f"{share:.0%}" for share in cells)))
        random = np.random.default_rng(seed)
        searches = max(answers // PER_SEARCH, 1)
        share = sum(searched(random, math.log(1 - margin)).verdict == MET for _ in range(searches)) / searches
        rows.append((f"{margin:.0%}", "10%, a search", "", "", "", f"{share:.0%}"))
    return rows


def main() -> int:
    options = common.parse(common.parser(__doc__ or "", common.Defaults(1_000, 100, what="answers")))
    report = common.Report("verdicts", options)
    rows = []
    for verdict in VERDICTS:
        rate = verdict.rate(options.pairs, options.seed)
        common.progress(f"{verdict.text}, {verdict.case}: {rate:.1%}")
        report.data[f"{verdict.text}, {verdict.case}"] = {"stated": verdict.stated, "simulated": rate}
        rows.append((f"{verdict.text}: {verdict.case}", f"{verdict.stated:.0%}", f"{rate:.1%}"))
    report.text(common.table(("verdict", "stated error", "simulated"), rows))
    report.text(
        'How often "meets all requirements" is found, by distance to the limit, noise, and configurations:\n'
        + common.table(
            ("distance", "noise", "1", "8", "32", "64"), power(max(options.pairs // 4, 1), options.seed)
        )
    )
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
