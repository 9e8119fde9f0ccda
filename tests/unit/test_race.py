"""The search among configurations: which are measured, how many trials, and how often it finds the best."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from k8sdds.analysis import race
from k8sdds.analysis.race import Measured
from k8sdds.analysis.requirements import NOT_MET
from k8sdds.campaign import applications, start
from k8sdds.campaign.expansion import Expansion, expand
from k8sdds.campaign.racing import Racing, searched
from k8sdds.model.application import ApplicationExperiment, Search
from k8sdds.model.trial import Trial
from k8sdds.recommend import evidence, results
from k8sdds.recommend.answer import Answer, answer
from k8sdds.results.record import TrialRecord
from k8sdds.system.errors import InputError
from tests.applications import Truth, application, best_of
from tests.unit import memory

CHOICES = {
    "networks": ["flannel-vxlan", "flannel-hostgw", "kube-router", "weavenet"],
    "receive_mode": ["listener", "waitset"],
}


@cache
def search_of(share: float = 0.2) -> Expansion:
    """Return a search with a share of the trials of all configurations."""
    asked = application(choices=CHOICES)
    whole = expand(applications.experiment(asked))
    search = Search(max_trials=max(12, round(share * len(whole.cells) * asked.repetitions)))
    return replace(whole, experiment=whole.experiment.model_copy(update={"search": search}))


def application_of(search: Expansion) -> ApplicationExperiment:
    assert isinstance(search.experiment, ApplicationExperiment)
    return search.experiment


def run(search: Expansion, truth: Truth, seed: int) -> list[TrialRecord]:
    """Return all attempts of a search."""
    chance = random.Random(seed)
    plan = start.planner_of(search)
    assert isinstance(plan, Racing)
    attempts: list[TrialRecord] = []
    trials: Sequence[Trial] = search.trials("lab")
    while trials:
        attempts += [truth.record(trial, chance) for trial in trials]
        trials = plan.more(attempts)
    return attempts


def concluded(search: Expansion, attempts: list[TrialRecord]) -> Answer:
    experiment = application_of(search)
    return answer(evidence.of_trials(experiment, [vars(record) for record in attempts], {}, "search"))


def test_a_search_leaves_trials_for_the_verdict_about_its_leader() -> None:
    """The answer can name another configuration than the search, so a few have fewer repetitions."""
    search = search_of(share=0.13)
    answers = [concluded(search, run(search, Truth(noise=0.2), seed)) for seed in range(8)]
    repetitions = [answer.ranked[0].option.repetitions for answer in answers]
    assert sum(number >= application_of(search).application.repetitions for number in repetitions) >= 7, (
        repetitions
    )


def found_by(search: Expansion, attempts: list[TrialRecord]) -> dict[str, Any]:
    plan, known = start.planner_of(search), search.candidates
    assert isinstance(plan, Racing) and known
    leader = race.next_round(known.designs, plan.measured(attempts))[0][0]
    return dict(known.measurable[leader].choices)


def test_a_search_without_a_valid_trial_has_an_answer() -> None:
    search = search_of()
    invalid = {trial.cell.cell_id: {"reason": "no-match: pub0"} for trial in search.trials("lab")}
    found = answer(evidence.of_trials(application_of(search), [], invalid, "search"))
    assert found.verdict == NOT_MET and found.ranked


def test_a_configuration_with_a_trial_without_a_valid_attempt_is_measured_no_further() -> None:
    """An attempt that was repeated with success does not count, nor one that failed with a part of the testbed."""
    search = search_of()
    plan, chance, known = start.planner_of(search), random.Random(1), search.candidates
    assert isinstance(plan, Racing) and known
    first, *others = search.trials("lab")
    records = [Truth().record(trial, chance) for trial in (first, *others)]
    again = search.trial(first.cell, 1, "lab")
    invalid = Truth().record(again, chance, valid=False, reason="lost-samples: 3")
    part_failed = Truth().record(again, chance, valid=False, reason="part-failed: the pod was killed")
    own = [index for index, each in enumerate(known.measurable) if first.cell.cell_id in each.cell_ids]
    for more, failed in (
        ([invalid], True),
        ([invalid, part_failed], True),
        ([part_failed], False),
        ([invalid, Truth().record(again, chance)], False),
    ):
        attempts = [*records, *more]
        measured = plan.measured(attempts)
        assert [index for index, each in enumerate(measured) if each.failed] == (own if failed else [])
        out = f"{len(own) if failed else 0} of them no further: they fail a requirement, or a trial has no valid"
        assert out in plan.status(attempts)


def test_the_first_round_has_every_value_of_every_choice() -> None:
    search = search_of()
    first = {trial.cell.cell_id for trial in search.trials("lab")}
    known = search.candidates
    assert known
    measured = [each for each in known.measurable if set(each.cell_ids) <= first]
    for axis, values in enumerate(zip(*known.designs, strict=True)):
        assert {str(each.choices[axis][1]) for each in measured} == set(values)


def test_a_search_has_at_most_the_given_trials_each_once() -> None:
    search = search_of()
    assert search.search
    attempts = run(search, Truth(), 1)
    ids = [record.trial_id for record in attempts]
    assert len(ids) == len(set(ids)) <= search.search.max_trials
    rounds = {record.repetition for record in attempts}
    assert rounds == set(range(len(rounds))) and len(rounds) > 3


@pytest.mark.parametrize("flows", [1, 3])
def test_a_search_with_few_trials_uses_all_that_compare_configurations(flows: int) -> None:
    many = [
        {"name": f"flow-{number}", "payload_bytes": 1000 + number, "rate": 100, "delay": "p90 <= 10 ms"}
        for number in range(flows)
    ]
    search = expand(searched(application(flows=many, choices=CHOICES), 10 * flows))
    attempts = run(search, Truth(noise=0.2), 1)
    assert 8 * flows < len(attempts) <= 10 * flows
    plan = start.planner_of(search)
    assert plan is not None
    assert f", {len(attempts)} of at most {10 * flows} trials: " in plan.status(attempts)


def test_a_single_configuration_is_measured_as_often_as_without_a_search() -> None:
    one = {
        "networks": "kube-router",
        "middleware": "cyclonedds",
        "receive_mode": "listener",
        "message_bytes": "auto",
    }
    search = expand(searched(application(choices=one)))
    attempts = run(search, Truth(), 1)
    assert [record.repetition for record in attempts] == list(range(5))
    assert concluded(search, attempts).confidence == pytest.approx(0.9), "one-sided tests at 5 %"


def test_requirements_are_judged_at_a_level_for_all_configurations_and_rounds() -> None:
    search = search_of()
    attempts = run(search, Truth(), 1)
    found = concluded(search, attempts)
    rounds = len({record.repetition for record in attempts})
    assert found.verdict == "met" and rounds > 3
    assert found.confidence == pytest.approx(1 - 0.1 / (len(found.ranked) * rounds))
    note = next(note for note in results.method(found) if "requirement is met if" in note)
    assert f"over {len(found.ranked)} configurations and {rounds} rounds" in note


def test_a_search_needs_trials_of_two_configurations() -> None:
    flows = [{"name": name, "payload_bytes": 64, "rate": 100} for name in "abc"]
    with pytest.raises(InputError, match="5 trials do not suffice") as error:
        searched(application(flows=flows), 5)
    assert "--max-trials 6" in error.value.remedy


def test_the_plan_depends_only_on_the_attempts() -> None:
    search = search_of()
    attempts = run(search, Truth(), 1)
    before = [record for record in attempts if record.repetition in (0, 1)]
    plans = [start.planner_of(search) for _ in range(2)]
    first, second = (plan.more(before) if plan else [] for plan in plans)
    assert [trial.trial_id for trial in first] == [trial.trial_id for trial in second]
    assert {trial.trial_id for trial in first} == {r.trial_id for r in attempts if r.repetition == 2}


def test_a_search_finds_the_best_or_a_tie_with_a_fifth_of_the_trials() -> None:
    search, truth = search_of(), Truth(noise=0.04)
    wanted = best_of(application_of(search), truth)
    found = [found_by(search, run(search, truth, seed)) for seed in range(10)]
    assert sum(each == wanted for each in found) >= 8


def test_a_search_finds_two_choices_that_are_good_only_together() -> None:
    truth = Truth(noise=0.03, pairs={frozenset({"weavenet", "fastdds"}): 0.25})
    search = search_of()
    found = [found_by(search, run(search, truth, seed)) for seed in range(6)]
    assert sum((each["networks"], each["middleware"]) == ("weavenet", "fastdds") for each in found) >= 5


def test_a_search_avoids_configurations_that_do_not_meet_the_requirements() -> None:
    truth = Truth(noise=0.03, delay={"multicast": 30.0, "flannel-hostgw": 30.0})
    search = search_of()
    for seed in range(3):
        found = found_by(search, run(search, truth, seed))
        assert found["networks"] != "flannel-hostgw" and found["transport"] == "unicast"


def test_thousands_of_configurations_need_little_memory() -> None:
    """Only pairs with a measured configuration are held: all 5,000 × 5,000 would need 200 MB for each number."""
    designs = [list(values) for values in itertools.product("abcde", "abcde", "abcde", "abcde", "abcdefgh")]
    chance = random.Random(1)
    with memory.at_most(100_000_000):
        order = list(itertools.islice(race.first_round(designs), 100))
        measured = [Measured() for _ in designs]
        for index in order:
            measured[index] = Measured({0: chance.gauss(0, 1)}, {0: -0.5})
        following, improvement = race.next_round(designs, measured)
    assert len(designs) == 5000 and len(set(order)) == 100
    assert sorted(following) == list(range(5000)) and improvement > 0
