"""Test the warning of a rate that changes within a trial: how often it is false, what it finds, and recorded trials."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import pytest

from k8sdds.results import steadiness, timeline
from k8sdds.results.steadiness import FALSE_WARNINGS, FEWEST_STEPS, SMALLEST_CHANGE, drift
from tests.sampling import sampled

RECORDED = Path(__file__).parent / "recorded" / "timelines"
SIMULATED = 1500


def steady(
    random_: random.Random, steps: int, correlation: float, spread: float, heavy: bool = False
) -> list[float]:
    """Return rates around 100 of a first-order process; `heavy`: every tenth innovation is five times as large."""
    innovation = spread * math.sqrt(1 - correlation**2)
    value = random_.gauss(0, spread)
    rates = []
    for _ in range(steps + 1):
        value = correlation * value + innovation * random_.gauss(
            0, 5 if heavy and random_.random() < 0.1 else 1
        )
        rates.append(100 + value)
    return rates


@pytest.mark.parametrize(
    ("steps", "correlation", "heavy"),
    sampled(list(itertools.product([20, 30, 50], [0.0, 0.3, 0.6], [False, True])), every_run=5),
)
def test_few_steady_trials_get_a_warning(steps: int, correlation: float, heavy: bool) -> None:
    """The noise is large enough for means of halves to differ by more than the smallest change."""
    random_ = random.Random(f"{steps} {correlation} {heavy}")
    spread = 2 * SMALLEST_CHANGE * 100 * math.sqrt(steps / 4)
    false = sum(
        drift(steady(random_, steps, correlation, spread / 4, heavy)) is not None for _ in range(SIMULATED)
    )
    # The bound is three standard deviations above the stated share.
    assert false <= SIMULATED * FALSE_WARNINGS + 3 * math.sqrt(SIMULATED * FALSE_WARNINGS)


@pytest.mark.parametrize(("change", "found"), [(0.1, 0.9), (0.2, 0.99)])
def test_most_changes_that_exceed_the_noise_are_found(change: float, found: float) -> None:
    random_ = random.Random(1)
    trials = [steady(random_, 50, 0.2, 4) for _ in range(200)]
    changed = [[*rates[:25], *(rate * (1 + change) for rate in rates[25:])] for rates in trials]
    assert sum(drift(rates) is not None for rates in changed) >= found * len(changed)


def test_a_change_that_does_not_matter_gets_no_warning() -> None:
    half = 100 * SMALLEST_CHANGE / 2
    assert drift([100 - half + 0.1] * 20 + [100 + half - 0.1] * 21) is None
    larger = drift([100 - half - 0.1] * 20 + [100 + half + 0.1] * 21)
    assert larger is not None and larger.change == pytest.approx(0.052) and larger.noise == 0


def test_a_half_without_samples_gets_a_warning() -> None:
    first_empty = drift([0.0] * 50 + [5.0] * 51)
    assert first_empty is not None and first_empty.change == 2


def test_the_warning_does_not_depend_on_the_unit_and_sees_both_directions() -> None:
    random_ = random.Random(2)
    rates = [rate * (1 if index < 25 else 0.7) for index, rate in enumerate(steady(random_, 50, 0.3, 4))]
    found = drift(rates)
    assert found is not None and found.change == pytest.approx(-0.3 / 0.85, abs=0.05)
    scaled = drift([rate * 1e-3 for rate in rates])
    assert scaled is not None
    assert (scaled.change, scaled.noise) == (pytest.approx(found.change), pytest.approx(found.noise))
    back = drift([*rates[-2::-1], 0.0])
    assert back is not None and back.change > 0
    assert "lower than that of the first by 3" in found.describe() and "higher" in back.describe()


@pytest.mark.parametrize("rates", [[], [1.0], [1.0] * FEWEST_STEPS, [0.0] * 100])
def test_too_short_or_empty_timelines_are_not_judged(rates: list[float]) -> None:
    assert drift(rates) is None


def test_the_last_step_does_not_count() -> None:
    rates = [100.0, 101.0] * 20
    assert drift([*rates, 0.0]) is None and drift([*rates, 1e9]) is None


@pytest.mark.parametrize("correlation", [0.0, 0.4, 0.8])
def test_the_autocorrelation_is_estimated_without_bias(correlation: float) -> None:
    random_ = random.Random(3)
    estimates = []
    for _ in range(400):
        rates = steady(random_, 80, correlation, 1)
        halves = [rates[:40], rates[40:80]]
        deviations = [[rate - sum(half) / 40 for rate in half] for half in halves]
        estimates.append(steadiness.autocorrelation(*deviations))
    # Estimates below 0 count as 0, so that the mean of those around 0 is larger.
    assert sum(estimates) / len(estimates) == pytest.approx(correlation, abs=0.06)


@pytest.mark.parametrize(("name", "unsteady"), [("steady", False), ("unsteady", True)])
def test_recorded_trials(name: str, unsteady: bool) -> None:
    """Trials of 5 s on a virtual machine; `disturbed`: a busy process shared the subscriber's core from 3 s on."""
    for folder in sorted((RECORDED / name).iterdir()):
        steps = timeline.received(folder)
        assert len(steps) >= FEWEST_STEPS and all(a.end_s < b.end_s for a, b in itertools.pairwise(steps))
        found = drift([step.mbps for step in steps])
        assert (found is not None) is unsteady, (folder.name, found)
