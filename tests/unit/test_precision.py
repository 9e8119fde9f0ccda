"""Campaigns that repeat until their overheads are precise."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from k8sdds.analysis.statistics import STOPPED_CONFIDENCE, one_sample
from k8sdds.campaign import experiments, preflight, start
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.experiments import Changes
from k8sdds.campaign.precision import MIN_REPETITIONS, Precision
from k8sdds.model.experiment import Experiment
from k8sdds.model.trial import Trial
from k8sdds.results.record import TrialRecord
from k8sdds.system.errors import InputError
from tests.unit import builders

WALL_S = 10.0


def experiment(**keys: Any) -> Experiment:
    sweep = {
        "networks": keys.pop("networks", ["host", "flannel-vxlan"]),
        "test": "throughput",
        "payload_bytes": 1024,
    }
    return builders.experiment(sweep, **{"repetitions": 3, "precision_percent": 5} | keys)


def measured(trials: Sequence[Trial], spread: float, chance: random.Random) -> list[TrialRecord]:
    """Return a valid attempt for each trial, with a log-normal throughput."""
    return [
        TrialRecord(
            trial_id=trial.trial_id,
            cell_id=trial.cell.cell_id,
            repetition=trial.repetition,
            testbed="lab",
            valid=True,
            wall_s=WALL_S,
            throughput_mbps=100 * chance.lognormvariate(0, spread),
        )
        for trial in trials
    ]


def run(asked: Experiment, spread: float, seed: int = 1) -> tuple[Precision, list[TrialRecord]]:
    planned = start.planner_of(expand(asked))
    assert isinstance(planned, Precision)
    chance = random.Random(seed)
    attempts = measured(expand(asked).trials("lab"), spread, chance)
    while added := planned.more(attempts):
        assert {trial.repetition for trial in added} == {len(attempts) // 2} and len(added) == 2
        attempts += measured(added, spread, chance)
    return planned, attempts


def test_repetitions_are_added_until_the_interval_is_narrow() -> None:
    planned, attempts = run(experiment(), spread=0.05)
    (interval,) = planned.intervals(attempts)
    assert interval.n == len(attempts) / 2 > MIN_REPETITIONS
    assert interval.half_percent is not None and interval.half_percent <= 5
    (before,) = planned.intervals(attempts[:-2])
    assert before.half_percent is not None and before.half_percent > 5
    assert planned.status(attempts).endswith("the interval of every overhead is within ±5 percentage points")
    assert planned.more(attempts[:-2]) == [*planned.more(attempts[:-2])] != []


def test_at_least_three_repetitions_are_measured() -> None:
    _, attempts = run(experiment(repetitions=1), spread=1e-6)
    assert len(attempts) == 2 * MIN_REPETITIONS


def test_the_time_is_limited() -> None:
    planned, attempts = run(experiment(max_time_min=3), spread=0.5)
    assert len(attempts) * WALL_S == 180
    assert "The time is over: 3 min" in planned.status(attempts)
    (left,) = [word for word in planned.status(attempts[:-2]).split("; ") if word.startswith("about")]
    assert "more repetitions" in left or "The time is over" in planned.status(attempts[:-2])


def test_a_network_without_a_valid_trial_does_not_end_the_campaign_early() -> None:
    planned, attempts = run(experiment(max_time_min=2), spread=1e-6)
    for attempt in attempts:
        attempt.valid = attempt.cell_id == expand(experiment()).cells[0].cell_id
    assert planned.more(attempts[:6]) != ()
    assert "the widest interval: unknown" in planned.status(attempts[:6])


def test_only_metrics_that_no_trial_of_the_cell_or_its_baseline_misses_are_compared() -> None:
    """The repetitions in which the baseline recovered are its fastest ones."""
    sweep = {"networks": ["host", "flannel-vxlan"], "test": "outage", "payload_bytes": 1024, "rate": 100}
    asked = expand(experiment(sweeps=[sweep], duration_s=6))
    planned, trials = start.planner_of(asked), asked.trials("lab")
    assert isinstance(planned, Precision)
    attempts = measured(trials, 0.1, random.Random(1))
    for number, attempt in enumerate(attempts):
        attempt.recovery_full_ms, attempt.outage_blind_ms = 100.0, 1000.0 + number**2
    (interval,) = planned.intervals(attempts)
    assert (interval.n, interval.half_percent) == (3, pytest.approx(0))

    pairs = zip(trials, attempts, strict=True)
    ended = next(attempt for trial, attempt in pairs if trial.cell.network == "host")
    ended.recovery_full_ms, ended.missing = None, {"recovery_full_ms": "not recovered within 2000 ms"}
    (interval,) = planned.intervals(attempts)
    assert interval.n == 3 and interval.half_percent and interval.half_percent > 0.1, "of outage_blind_ms"
    assert planned.more(attempts) == ()

    ended.outage_blind_ms, ended.missing = None, ended.missing | {"outage_blind_ms": "no fresh sample"}
    (interval,) = planned.intervals(attempts)
    assert interval.half_percent is None and interval.stays_unknown
    assert planned.more(attempts) == (), "no further repetition makes it known"
    assert (
        "every other overhead is within ±5 percentage points; unknown overheads: 1, because trials ended"
        in planned.status(attempts)
    )


def test_an_interval_of_a_campaign_that_stops_when_it_is_narrow_contains_the_truth() -> None:
    """The worst case of the calibration: a precision of 0.6 standard deviations (benchmarks/precision.py)."""
    chance, covered, campaigns = random.Random(1), 0, 3000
    for _ in range(campaigns):
        logs = [chance.gauss(0, 0.01) for _ in range(MIN_REPETITIONS)]
        while True:
            low, high = one_sample(logs, 0, STOPPED_CONFIDENCE).bounds
            assert low is not None and high is not None
            if (high - low) / 2 <= 0.006:
                break
            logs.append(chance.gauss(0, 0.01))
        covered += low <= 1 <= high
    # 95.4 % in 20,000 campaigns; the standard error is 0.4 %. Plain 95 % intervals cover 90 %.
    assert covered / campaigns > 0.94


def test_precision_needs_an_overhead() -> None:
    (problem,) = preflight.contradictions(expand(experiment(networks=["host"])))
    assert problem.what == "precision_percent: there is no overhead, because the only network is the baseline"
    with pytest.raises(ValidationError, match="has no effect without precision_percent"):
        experiment(precision_percent=None, max_time_min=3)


def test_the_command_line_sets_it() -> None:
    plain = experiment(precision_percent=None)
    changed = experiments.changed(plain, Changes(precision_percent=2.5, max_time_min=10))
    assert (changed.precision_percent, changed.max_time_min) == (2.5, 10)
    with pytest.raises(InputError, match="--precision -1%"):
        experiments.changed(plain, Changes(precision_percent=-1))
