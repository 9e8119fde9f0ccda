"""Verdicts about requirements: their error rates, and how many further repetitions decide them."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from k8sdds.analysis.requirements import corrected_level, judge, overall
from k8sdds.model.application import Flow, Requirement
from k8sdds.results.histograms import NOTHING_ARRIVED, RESOLUTION

LIMIT = Requirement("camera", "delay_p90_us", 1000.0, text="p90 delay <= 1 ms")
LOSS = Requirement("camera", "lost_percent", 1.0, text="loss <= 1 %")
RATE = Requirement("camera", "achieved_rate_percent", 98.0, at_least=True)


def rows(metric: str, values: list[float], sent: int = 10_000) -> list[dict[str, object]]:
    return [{metric: value, "sent": sent, "subscribers": 1} for value in values]


def test_an_interval_on_one_side_of_the_limit_decides() -> None:
    assert judge(LIMIT, rows("delay_p90_us", [500, 510, 505])).verdict == "met"
    assert judge(LIMIT, rows("delay_p90_us", [1500, 1510, 1505])).verdict == "not met"
    found = judge(LIMIT, rows("delay_p90_us", [900, 1300, 700]))
    assert found.verdict == "undecided" and found.further and found.low and found.high
    assert found.low < 1000 < found.high
    assert judge(RATE, rows("achieved_rate_percent", [100, 100, 100])).verdict == "met"
    assert judge(RATE, rows("achieved_rate_percent", [60, 61, 60])).verdict == "not met"


def test_the_time_without_a_sample_is_judged_by_its_values_alone() -> None:
    """A single stall in each trial is what it limits, so no number of episodes is required."""
    flow = Flow(name="camera", payload_bytes=64, rate=30, delay=["blind <= 0.5 s", "age p99 <= 50 ms"])
    _, blind, age = flow.requirements
    assert (blind.text, age.text) == ("blind <= 0.5 s", "age p99 <= 50 ms")
    assert judge(blind, rows("blind_ms", [300, 310, 290])).verdict == "met"
    assert judge(blind, rows("blind_ms", [700, 710, 690])).verdict == "not met"
    assert judge(age, rows("age_p99_us", [40_000, 41_000, 40_500])).verdict == "met"
    old = judge(blind, [{"delay_p90_us": 100}])
    assert (old.verdict, old.why) == ("undecided", "not measured")


def test_very_different_values_have_a_wide_interval() -> None:
    found = judge(LIMIT, rows("delay_p90_us", [1, 1e6]), level=0.00005)
    assert found.verdict == "undecided" and found.high is not None and math.isfinite(found.high)


def test_one_repetition_and_missing_values_are_undecided() -> None:
    once = judge(LIMIT, rows("delay_p90_us", [500]))
    assert once.verdict == "undecided" and once.further is None, "its spread is unknown"
    assert judge(LIMIT, []).why == "no valid trial"
    missing = [{"delay_p90_us": None, "missing": {"delay_p90_us": "84 values, 100 are needed"}}]
    assert judge(LIMIT, missing).why == "84 values, 100 are needed"


def test_a_trial_in_which_no_sample_arrives_decides() -> None:
    """One is enough: without it, the delays would be those of the repetitions that lost least."""
    silent = {"sent": 300, "lost_percent": 100, "missing": {"delay_p90_us": NOTHING_ARRIVED}}
    for trials in ([silent], [silent, *rows("delay_p90_us", [500, 510, 505])]):
        for requirement in (LIMIT, LOSS):
            found = judge(requirement, trials)
            assert found.verdict == "not met" and not found.mean_is_within
            assert found.why == f"no sample arrived in 1 of {len(trials)} trials"
    assert judge(LOSS, [silent]).value == 100
    assert judge(RATE, [silent | {"achieved_rate_percent": 100}] * 3).verdict == "met", "they were sent"


def test_no_loss_in_few_samples_is_no_proof() -> None:
    assert judge(LOSS, rows("lost_percent", [0, 0, 0])).verdict == "met"
    few = judge(LOSS, rows("lost_percent", [0, 0, 0], sent=20))
    assert few.verdict == "undecided" and few.further == 12
    assert judge(LOSS, rows("lost_percent", [0, 0, 0] * 5, sent=20)).verdict == "met"
    assert judge(LOSS, rows("lost_percent", [5, 5.1, 4.9])).verdict == "not met"


def test_equal_times_differ_by_as_much_as_their_digits_hide() -> None:
    """Two values near the limit are equal by chance more often than a strict level allows."""
    for values, verdict in (([500, 500, 500], "met"), ([2000, 2000], "not met"), ([995, 995], "met")):
        found = judge(LIMIT, rows("delay_p90_us", values))
        assert found.verdict == verdict and found.low and found.high
        assert found.low < values[0] < found.high < 1.003 * found.low
    for values in ([995, 995], [1005, 1005], [999, 999, 999]):
        found = judge(LIMIT, rows("delay_p90_us", values), level=0.05 / 32)
        assert found.verdict == "undecided" and found.further
        more = values + values[:1] * found.further
        assert judge(LIMIT, rows("delay_p90_us", more), level=0.05 / 32).verdict != "undecided"


@pytest.mark.parametrize("level", [0.05, 0.05 / 32])
@pytest.mark.parametrize("spread", [0.5, 3, 50])
def test_a_wrong_verdict_about_rounded_times_is_rare(level: float, spread: float) -> None:
    """Times with three digits whose spread is so many of their steps, at most one step beyond the limit."""
    chance = np.random.default_rng(5)
    answers, step = 1000, RESOLUTION * 1000
    wrong = 0
    for beyond in chance.uniform(0, step, answers):
        true = 1000 + beyond + chance.normal(0, spread * step, 2)
        wrong += (
            judge(LIMIT, rows("delay_p90_us", list(step * np.round(true / step))), level).verdict == "met"
        )
    assert wrong <= level * answers + 4 * math.sqrt(level * answers)


def test_a_rate_is_judged_by_what_was_not_sent() -> None:
    """With as many missing samples in all repetitions, the t interval has no width."""
    assert judge(RATE, rows("achieved_rate_percent", [100, 100], sent=20)).verdict == "met", "all was sent"
    for value in (97.9, 98.1):
        found = judge(RATE, rows("achieved_rate_percent", [value] * 2, sent=1000))
        assert found.low and found.high and found.low < 98 < found.high
        assert (found.verdict, found.why) == ("undecided", "too few samples for so small a share")
    assert judge(RATE, rows("achieved_rate_percent", [97, 97], sent=10_000)).verdict == "not met"
    assert judge(RATE, rows("achieved_rate_percent", [99, 99], sent=10_000)).verdict == "met"


def test_unequal_losses_need_further_repetitions_not_longer_trials() -> None:
    loss = Requirement("camera", "lost_percent", 0.05)
    trials = [row | {"duration_s": 10} for row in rows("lost_percent", [0, 0.1, 0.05, 0.02, 0.03])]
    found = judge(loss, trials)
    assert (found.verdict, found.further, found.longer_s) == ("undecided", 37, None)
    assert found.why == "the interval contains the limit"
    equal = judge(loss, [row | {"lost_percent": 0.04} for row in trials])
    assert equal.verdict == "undecided" and equal.longer_s and equal.longer_s > 10


def test_losses_without_the_number_of_sent_samples_are_shares_of_what_is_known() -> None:
    known = {"lost_percent": 0.01, "subscribers": 1}
    counted = [known | {"sent": None, "received": 9_999, "lost": 1}] * 3
    sent = [known | {"sent": 10_000}] * 3
    assert judge(LOSS, counted) == judge(LOSS, sent) and judge(LOSS, sent).verdict == "met"


@pytest.mark.parametrize(("limit", "further"), [(0.02, 3), (0.005, 6)])
def test_as_many_lost_samples_in_all_repetitions_are_chance(limit: float, further: int) -> None:
    """3 events of 30,000 samples: the expected number is between 0.8 and 7.8, at 5 % to each side."""
    loss = Requirement("camera", "lost_percent", limit)
    found = judge(loss, rows("lost_percent", [0.01] * 3))
    assert (found.verdict, found.further) == ("undecided", further)
    assert found.low == pytest.approx(0.0027, rel=0.05) and found.high == pytest.approx(0.0258, rel=0.01)
    assert found.why == "too few samples for so small a share"
    assert judge(loss, rows("lost_percent", [0.01] * (3 + further))).verdict != "undecided"


@pytest.mark.parametrize("n", [2, 3])
def test_a_wrong_verdict_about_few_lost_samples_is_rare(n: int) -> None:
    """2 of 10,000 samples are lost in each repetition on average, just beyond the limit."""
    chance = np.random.default_rng(7)
    loss = Requirement("camera", "lost_percent", 0.01999)
    lost = chance.poisson(2, (400, n)) / 100
    wrong = sum(judge(loss, rows("lost_percent", list(own))).verdict == "met" for own in lost)
    assert wrong <= 0.05 * len(lost)


def test_no_loss_is_less_certain_at_a_stricter_level() -> None:
    """The upper bound is 3 / N samples at 5 %, and 6.5 / N at 0.05 / 32: 0.999 % and 2.2 % of 300."""
    trials = rows("lost_percent", [0, 0, 0], sent=100)
    assert judge(LOSS, trials).verdict == "met"
    assert judge(LOSS, trials, level=0.05 / 32).why == "too few samples for so small a share"


def test_the_level_is_divided_among_configurations_and_rounds() -> None:
    assert corrected_level(0.05, 1) == 0.05
    assert corrected_level(0.05, 10, 4) == pytest.approx(0.05 / 40)


def test_further_repetitions_decide_if_nothing_changes() -> None:
    chance = random.Random(3)
    values = [900 * math.exp(chance.gauss(0, 0.15)) for _ in range(4)]
    found = judge(LIMIT, rows("delay_p90_us", values))
    assert found.verdict == "undecided" and found.further is not None
    stricter = judge(LIMIT, rows("delay_p90_us", values), level=0.05 / 32)
    assert stricter.further is not None and stricter.further > found.further
    # The same values repeated have the same mean and nearly the same spread.
    copies = math.ceil((4 + found.further) / 4) + 1
    assert judge(LIMIT, rows("delay_p90_us", values * copies)).verdict == "met"


@pytest.mark.parametrize("verdict", ["met", "not met"])
def test_a_wrong_verdict_is_rare(verdict: str) -> None:
    """At the limit itself, each verdict is wrong, and has the probability of its level."""
    chance = random.Random(11)
    wrong = 0
    for _ in range(2000):
        values = [1000 * math.exp(chance.gauss(0, 0.2)) for _ in range(5)]
        wrong += judge(LIMIT, rows("delay_p90_us", values)).verdict == verdict
    assert 61 <= wrong <= 139, "four standard deviations around 100"


def test_one_failure_decides_about_a_configuration() -> None:
    met, not_met, undecided = (
        judge(LIMIT, rows("delay_p90_us", values)) for values in ([500, 501], [1500, 1501], [500])
    )
    assert overall([met, undecided]) == "undecided"
    assert overall([met, undecided, not_met]) == "not met"
    assert overall([met, met]) == "met"
