"""Test whether the rate of a trial was the same in both halves of its measured interval.

docs/explanation/statistics.md contains the formulas, their sources and the measured rate of false warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from k8sdds.results import student

LEVEL = 0.002
"""Nominal level of the test. More steady trials get a warning, because a few steps show their autocorrelation badly."""
FALSE_WARNINGS = 0.02
"""Largest share of steady trials with a warning, for correlations of consecutive steps of up to 0.6."""
SMALLEST_CHANGE = 0.05
"""Smallest change between the halves that matters: it moves the mean of the trial by half as much, which is less than
the smallest overhead of a network that studies report (some 3 %)."""
FEWEST_STEPS = 20
"""A shorter timeline does not show its own noise."""
STRONGEST = 0.95
"""Largest autocorrelation that is estimated. Beyond it, a series has too few independent values for any test."""


@dataclass(frozen=True)
class Drift:
    """A change of the rate between the halves of a trial that its own noise does not explain."""

    change: float
    """Difference between the rates of the second and the first half, relative to their mean."""
    noise: float
    """Largest change that the noise of the trial explains."""

    def describe(self) -> str:
        """Return both numbers in percent, and what to do."""
        return (
            f"the rate of the second half was {'higher' if self.change > 0 else 'lower'} than that of the first by"
            f" {abs(self.change):.1%} of the mean, more than the {self.noise:.1%} that the noise of the trial explains;"
            " raise warmup_s or duration_s, or find what else used the machine"
        )


def drift(rates: Sequence[float]) -> Drift | None:
    """Return the change between the halves of a timeline, or None if it is small or explained by noise.

    The last step is left out, because it is incomplete: it covers the rest of the interval.
    """
    steps = rates[:-1]
    half = len(steps) // 2
    if 2 * half < FEWEST_STEPS:
        return None
    first, second = steps[:half], steps[-half:]
    before, after = fmean(first), fmean(second)
    mean = (before + after) / 2
    if mean <= 0:
        return None
    change = (after - before) / mean
    noise = _explained(_deviations(first), _deviations(second)) / mean
    return Drift(change, noise) if abs(change) > max(noise, SMALLEST_CHANGE) else None


def _explained(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the largest difference between the means of two halves that noise explains, from their deviations."""
    half = len(first)
    variance = sum(value * value for value in (*first, *second)) / (2 * half - 2)
    independent = half / inflation(autocorrelation(first, second), half)
    freedom = max(2 * independent - 2, 1)
    return student.quantile(1 - LEVEL / 2, freedom) * math.sqrt(2 * variance / independent)


def autocorrelation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the correlation of consecutive steps, from the deviations of both halves, corrected for its bias.

    The estimate from n values with an estimated mean is too low by (1 + 3ρ)/n (Kendall, Biometrika 41, 1954).
    """
    half = len(first)
    square = sum(value * value for value in (*first, *second))
    if not square:
        return 0.0
    products = sum(a * b for part in (first, second) for a, b in pairwise(part))
    return min(max((half * products / square + 1) / (half - 3), 0.0), STRONGEST)


def inflation(correlation: float, count: int) -> float:
    """Return how many times the variance of a mean of `count` values is that of independent values.

    For consecutive values with this correlation, of a first-order process (Bayley, Hammersley, JRSS Suppl. 8(2), 1946).
    """
    return 1 + 2 * sum((1 - lag / count) * correlation**lag for lag in range(1, count))


def _deviations(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]
