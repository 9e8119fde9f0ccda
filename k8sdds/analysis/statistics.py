"""Compute the statistics that docs/explanation/statistics.md describes. All functions are pure and cite their source.

The unit of replication is the trial (one complete run of a cell), not the sample: samples within a trial are
not independent, so n is the number of trials. All intervals are two-sided 95 % confidence intervals from
Student's t distribution with n-1 degrees of freedom. With n = 1 there is no interval (None) and no test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k8sdds.results import student

CONFIDENCE = 0.95
STOPPED_CONFIDENCE = 0.98
"""Level of the t intervals of a campaign that stops when they are narrow, after at least 3 repetitions.

The narrow ones are those whose spread was underestimated, so intervals at this level contain the truth in at least 95 %
of the campaigns, and those at 95 % only in 90 % (benchmarks/precision.py; why: Anscombe, "Large-sample theory of
sequential estimation", Math. Proc. Camb. Phil. Soc. 48(4), 1952).
"""
POWER = 0.80


def confidence_of(campaign: Mapping[str, Any]) -> float:
    """Return the level of the t intervals of a campaign, from its campaign.json."""
    return CONFIDENCE if campaign.get("precision_percent") is None else STOPPED_CONFIDENCE


@dataclass(frozen=True)
class Estimate:
    """A mean of n trials with its 95 % interval. `low` and `high` are None if n is 1."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Ratio:
    """A paired ratio x/b: estimate, 95 % interval, number of pairs, and spread of the log ratios.

    `spread` is the standard deviation of ln(x/b) with n-1 in the denominator (None if n is 1).
    """

    value: float
    low: float | None
    high: float | None
    n: int
    spread: float | None

    @property
    def differs(self) -> bool | None:
        """Whether the interval excludes 1, which is a difference at the 5 % level. None if there is no interval."""
        if self.low is None or self.high is None:
            return None
        return self.low > 1 or self.high < 1


@dataclass(frozen=True)
class Overhead:
    """An overhead in percent with its 95 % interval in percent (None if n is 1)."""

    percent: float
    low: float | None
    high: float | None
    n: int


def log_mean(values: Sequence[float]) -> Estimate:
    """Return the geometric mean exp(mean ln x) with a t interval computed on the log scale, in the values' unit.

    Network rates and times vary proportionally, so the distribution of their logarithms is nearly symmetric. The
    interval stays positive, and a change of unit scales it by the same factor.

    Source: Limpert, Stahel, Abbt, "Log-normal distributions across the sciences", BioScience 51(5), 2001;
    t interval: Student, Biometrika 6(1), 1908.

    Raises:
        ValueError: There are no values, or a value is not positive and finite.
    """
    logs = _logs(values)
    center, low, high, _ = t_interval(logs)
    return Estimate(math.exp(center), _exp(low), _exp(high), len(logs))


def linear_mean(values: Sequence[float]) -> Estimate:
    """Return the arithmetic mean with a t interval, for quantities that may be 0, such as losses and idle shares.

    Source: Student, Biometrika 6(1), 1908.

    Raises:
        ValueError: There are no values, or a value is not finite.
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError("a mean requires at least one value, and finite values")
    center, low, high, _ = t_interval(list(values))
    return Estimate(center, low, high, len(values))


def geometric_mean(values: Sequence[float]) -> float:
    """Return exp(mean ln x).

    Source: Fleming, Wallace, "How not to lie with statistics: the correct way to summarize benchmark
    results", CACM 29(3), 1986 (ratios are averaged geometrically).

    Raises:
        ValueError: There are no values, or a value is not positive and finite. A value of 0 would make the mean
            0, and a negative value has no logarithm. Both indicate an error in the data.
    """
    return math.exp(math.fsum(_logs(values)) / len(values))


def paired_ratio(
    values: Sequence[float],
    baselines: Sequence[float],
    rounding: float = 0.0,
    confidence: float = CONFIDENCE,
) -> Ratio:
    """Return the ratio x/b of pairs measured in the same repetition: exp(mean ln(x/b)) with its t interval.

    Pairing removes effects that a whole repetition shares, such as a warm machine or other load.

    Source: t interval on paired log ratios as in Kalibera, Jones, "Rigorous benchmarking in reasonable time",
    ISMM 2013 (ratios with intervals), with Student's paired t instead of Fieller's theorem, which the log
    scale makes unnecessary.

    Args:
        values: The values x.
        baselines: The value b of each pair.
        rounding: Standard deviation of ln(x/b) that rounding alone causes. It is the lower limit of the spread.
        confidence: Level of the t interval.

    Raises:
        ValueError: The lengths differ, there are no pairs, or a value is not positive and finite.
    """
    if len(values) != len(baselines):
        raise ValueError("each value requires a baseline")
    logs = [x - b for x, b in zip(_logs(values), _logs(baselines), strict=True)]
    center, low, high, spread = t_interval(logs, rounding, confidence)
    return Ratio(math.exp(center), _exp(low), _exp(high), len(logs), spread)


def overhead(ratio: Ratio, gain: bool) -> Overhead:
    """Return the loss of a rate, 1 - x/b, or the increase of a time or another cost, x/b - 1, in percent.

    The lower bound of the overhead of a rate is the upper bound of its ratio.
    """

    def percent(value: float) -> float:
        return 100 * (1 - value if gain else value - 1)

    bounds = (ratio.high, ratio.low) if gain else (ratio.low, ratio.high)
    low, high = (None if bound is None else percent(bound) for bound in bounds)
    return Overhead(percent(ratio.value), low, high, ratio.n)


def smallest_detectable(spread: float | None, n: int) -> float | None:
    """Return the smallest true |ln ratio| that a two-sided paired t test at 5 % detects with 80 % power.

    With T' noncentral t of n-1 degrees of freedom and noncentrality d·√n/s, the power is P(T' > t), where t
    is the 97.5 % quantile of Student's t; the equation is solved for d. Significance in the wrong direction,
    P(T' < -t), adds less than 0.0001 here and is neglected. The spread estimated from a few repetitions is
    uncertain, so the result is only an order of magnitude.

    Source: Cohen, "Statistical Power Analysis for the Behavioral Sciences", 2nd ed. 1988, ch. 2; Owen, "The
    power of Student's t-test", JASA 60(309), 1965.

    Returns:
        None if n is 1 or the spread is unknown; 0 if the spread is 0.
    """
    if spread is None or n < 2:
        return None
    return student.noncentrality(t_quantile(n - 1, CONFIDENCE), n - 1, POWER) * spread / math.sqrt(n)


def detectable_percent(spread: float | None, n: int, gain: bool = False) -> float | None:
    """Return the smallest detectable overhead in percent, or None if n is 1.

    It is 100·(exp(d) - 1) for a cost and 100·(1 - exp(-d)) for a gain.
    """
    d = smallest_detectable(spread, n)
    if d is None:
        return None
    # Limited to a factor of 1000. A larger number would only mean that nothing can be detected.
    return -100 * math.expm1(-d) if gain else 100 * math.expm1(min(d, math.log(1000)))


def _logs(values: Sequence[float]) -> list[float]:
    if not values:
        raise ValueError("a mean requires at least one value")
    for value in values:
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"a mean on the log scale requires positive values, not {value}")
    return [math.log(value) for value in values]


def t_interval(
    values: list[float], min_spread: float = 0.0, confidence: float = CONFIDENCE
) -> tuple[float, float | None, float | None, float | None]:
    """Return mean, low, high and standard deviation (at least `min_spread`); the last three None for one value."""
    n = len(values)
    center = math.fsum(values) / n
    if n == 1:
        return center, None, None, None
    spread = max(math.sqrt(math.fsum((value - center) ** 2 for value in values) / (n - 1)), min_spread)
    half = t_quantile(n - 1, confidence) * spread / math.sqrt(n)
    return center, center - half, center + half, spread


def _exp(value: float | None) -> float | None:
    if value is None:
        return None
    # The interval of two very different values can exceed the range of floating-point numbers.
    return math.exp(value) if value < 709 else math.inf


def t_quantile(df: int, confidence: float) -> float:
    """Return the quantile of Student's t distribution that bounds a two-sided interval."""
    return student.quantile(0.5 + confidence / 2, df)
