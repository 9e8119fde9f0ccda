"""The verdicts of simulated answers whose truth is known are wrong as rarely as stated."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

# At the end: benchmarks/zenoh.py has the name of a package.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import verdicts

ANSWERS = 120


@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param(verdicts.beyond_a_limit(32), marks=pytest.mark.long),
        verdicts.not_the_best(noisy_is_best=True, ratio=4),
        pytest.param(verdicts.not_the_best(noisy_is_best=True, ratio=4, share=0.4), marks=pytest.mark.long),
    ],
    ids=lambda verdict: f"{verdict.text}: {verdict.case}",
)
def test_a_verdict_is_as_rarely_wrong_as_stated(verdict: verdicts.Verdict) -> None:
    """With one level for all configurations, or one spread, 13 to 56 % are wrong."""
    assert ANSWERS * verdict.rate(ANSWERS, seed=1) <= 13, "three standard deviations above 6"


def test_a_configuration_far_within_its_limits_is_found_among_many() -> None:
    random = np.random.default_rng(1)
    assert sum(verdicts.found(random, 32, margin=0.5, spread=0.1) for _ in range(20)) >= 18
