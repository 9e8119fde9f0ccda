"""Compute the statistics that docs/explanation/statistics.md describes. All functions are pure and cite their source.

The unit of replication is the trial (one complete run of a cell), not the sample: samples within a trial are
not independent, so n is the number of trials. All intervals are two-sided 95 % confidence intervals from
Student's t distribution with n-1 degrees of freedom. With n = 1 there is no interval (None) and no test.

Rates and times are averaged and compared on the log scale. A `Contrast` is the estimated logarithm of a ratio. It comes
from pairs within one campaign (Student) or from two independent campaigns (Welch).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
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
MOST_REPETITIONS = 50
"""Repetitions up to which it is worth naming how many would show a difference."""
NO_SPREAD = 1e-9
"""Standard error of logarithms below which values count as equal. Their spread is then unknown rather than 0."""
LARGEST_LOG = 700
"""The interval of two very different values can exceed the range of floating-point numbers."""


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
class Contrast:
    """The logarithm of a ratio, or of a level: estimate, standard error and degrees of freedom.

    The error and the degrees of freedom are None if n is too small.
    """

    log: float
    error: float | None
    df: float | None
    n: int
    """Number of pairs, or the size of the smaller group if there are two independent groups."""
    confidence: float = CONFIDENCE
    """Level of the t interval that contains the truth in 95 % of such campaigns (`confidence_of`)."""

    @property
    def ratio(self) -> float:
        """The estimated ratio."""
        return exp(self.log)

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The two-sided interval of the ratio, of width 0 if all pairs have the same ratio; (None, None) if n is 1."""
        return self._interval(self.confidence)

    @property
    def differs(self) -> bool | None:
        """Whether the bounds exclude 1, which is a difference at the 5 % level. None if there are none."""
        low, high = self.bounds
        return None if low is None or high is None else low > 1 or high < 1

    @property
    def testable(self) -> bool:
        """Whether a test is possible: the spread is known and is not 0."""
        return self.error is not None and self.error > NO_SPREAD

    def interval(self, confidence: float | None = None) -> tuple[float | None, float | None]:
        """Return the two-sided 95 % interval of the ratio, or (None, None) if it is not testable.

        Another confidence than that of `confidence` is only for campaigns that were not stopped.
        """
        return self._interval(confidence or self.confidence) if self.testable else (None, None)

    def overhead(self, gain: bool) -> tuple[float, float | None, float | None]:
        """Return the loss of a rate, 1 - x/b, or the increase of a cost, x/b - 1, with its bounds, in percent.

        The lower bound of the overhead of a rate is the upper bound of its ratio.
        """

        def percent(ratio: float | None) -> float | None:
            return None if ratio is None else 100 * (1 - ratio if gain else ratio - 1)

        low, high = map(percent, self.bounds)
        return 100 * (1 - self.ratio if gain else self.ratio - 1), *((high, low) if gain else (low, high))

    def p_above(self, ratio: float) -> float | None:
        """Return the one-sided p value of the hypothesis that the true ratio is at most `ratio`."""
        return self._tail(ratio, 1)

    def p_below(self, ratio: float) -> float | None:
        """Return the one-sided p value of the hypothesis that the true ratio is at least `ratio`."""
        return self._tail(ratio, -1)

    @property
    def p_different(self) -> float | None:
        """The two-sided p value of the hypothesis that the ratio is 1."""
        above, below = self.p_above(1), self.p_below(1)
        return None if above is None or below is None else min(1.0, 2 * min(above, below))

    @property
    def exponent(self) -> float:
        """Power of a two-sided p value of Student's t that is a valid p value; 1 unless the campaign was stopped.

        The stopping rule favors small spreads, which inflates small p values more than large ones. This power makes 2 %
        of t into 5 %, as the interval does, and is conservative for all p values (benchmarks/claims.py).
        """
        return math.log(1 - CONFIDENCE) / math.log(1 - self.confidence)

    def _interval(self, confidence: float) -> tuple[float | None, float | None]:
        if self.error is None or self.df is None:
            return None, None
        half = t_quantile(self.df, confidence) * self.error
        return exp(self.log - half), exp(self.log + half)

    def _tail(self, ratio: float, sign: int) -> float | None:
        if not self.testable or self.error is None or self.df is None:
            return None
        if ratio <= 0 or math.isinf(ratio):
            return 0.0 if (ratio <= 0) == (sign > 0) else 1.0
        p = student.survival(sign * (self.log - math.log(ratio)) / self.error, self.df)
        return max(p, float((2 * p) ** self.exponent) / 2)


# -- means -------------------------------------------------------------------------------------------------


def log_mean(values: Sequence[float], rounding: float = 0.0) -> Estimate:
    """Return the geometric mean exp(mean ln x) with a t interval computed on the log scale, in the values' unit.

    `rounding` is as of `one_sample`.

    Network rates and times vary proportionally, so the distribution of their logarithms is nearly symmetric. The
    interval stays positive, and a change of unit scales it by the same factor.

    Source: Limpert, Stahel, Abbt, "Log-normal distributions across the sciences", BioScience 51(5), 2001;
    t interval: Student, Biometrika 6(1), 1908.
    """
    contrast = one_sample(_logs(values), rounding)
    return Estimate(contrast.ratio, *contrast.bounds, contrast.n)


def linear_mean(values: Sequence[float]) -> Estimate:
    """Return the arithmetic mean with a t interval, for quantities that may be 0, such as losses and idle shares.

    Source: Student, Biometrika 6(1), 1908.
    """
    if not values or not all(math.isfinite(value) for value in values):
        raise ValueError("a mean requires at least one value, and finite values")
    center, low, high, _ = t_interval(values)
    return Estimate(center, low, high, len(values))


def geometric_mean(values: Sequence[float]) -> float:
    """Return exp(mean ln x). A value of 0 or below, which has no logarithm, is an error in the data.

    Source: Fleming, Wallace, "How not to lie with statistics: the correct way to summarize benchmark
    results", CACM 29(3), 1986 (ratios are averaged geometrically).
    """
    return math.exp(math.fsum(_logs(values)) / len(values))


def t_interval(
    values: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float | None, float | None, float | None]:
    """Return mean, low, high and standard deviation; the last three are None for one value."""
    center, spread = _moments(values)
    if spread is None:
        return center, None, None, None
    half = t_quantile(len(values) - 1, confidence) * spread / math.sqrt(len(values))
    return center, center - half, center + half, spread


def t_quantile(df: float, confidence: float) -> float:
    """Return the quantile of Student's t distribution that bounds a two-sided interval."""
    return student.quantile(0.5 + confidence / 2, df)


def count_bounds(count: float, level: float) -> tuple[float, float]:
    """Return the lower and the upper one-sided bound of the expected number of independent rare events.

    Source: Byar's approximation of the limits of a Poisson mean, in Breslow, Day, "Statistical Methods in Cancer
    Research II", IARC 1987, section 2.3. Without any event, the upper one is -ln(level), which is the rule of three at
    5 %: Hanley, Lippman-Hand, JAMA 249(13), 1983.
    """
    if not count:
        return 0.0, -math.log(level)
    z = NormalDist().inv_cdf(1 - level) / 3
    fewest = count * max(1 - 1 / (9 * count) - z / math.sqrt(count), 0) ** 3
    return fewest, (count + 1) * (1 - 1 / (9 * (count + 1)) + z / math.sqrt(count + 1)) ** 3


def exp(value: float) -> float:
    """Return e to the power of a bound on the log scale, within the range of floating-point numbers."""
    return math.exp(max(min(value, LARGEST_LOG), -LARGEST_LOG))


# -- contrasts ---------------------------------------------------------------------------------------------


def one_sample(logs: Sequence[float], rounding: float = 0.0, confidence: float = CONFIDENCE) -> Contrast:
    """Return the mean of independent log ratios, or of the logarithms of a level, with the error s/√n.

    `rounding` is the standard deviation of a value that rounding alone causes. It is the lower limit of the
    spread. `confidence` is that of the contrast. Source: Student, Biometrika 6(1), 1908.
    """
    center, spread = _moments(logs, rounding)
    n = len(logs)
    if spread is None:
        return Contrast(center, None, None, n)
    return Contrast(center, spread / math.sqrt(n), n - 1, n, confidence)


def paired_ratio(
    values: Sequence[float],
    baselines: Sequence[float],
    rounding: float = 0.0,
    confidence: float = CONFIDENCE,
) -> Contrast:
    """Return the ratio x/b of pairs measured in the same repetition. See `one_sample` for the other arguments.

    Pairing removes effects that a whole repetition shares, such as a warm machine or other load.

    Source: t interval on paired log ratios as in Kalibera, Jones, "Rigorous benchmarking in reasonable time",
    ISMM 2013 (ratios with intervals), with Student's paired t instead of Fieller's theorem, which the log
    scale makes unnecessary.
    """
    logs = [x - b for x, b in zip(_logs(values), _logs(baselines), strict=True)]
    return one_sample(logs, rounding, confidence)


def independent_logs(
    logs: Sequence[float],
    others: Sequence[float],
    roundings: tuple[float, float] = (0.0, 0.0),
    confidence: float = CONFIDENCE,
) -> Contrast:
    """Return the contrast of logarithms of two campaigns that share no repetition. See `one_sample` for the arguments.

    Source: Welch, "The generalization of Student's problem when several different population variances are
    involved", Biometrika 34, 1947; degrees of freedom by Satterthwaite, Biometrics Bulletin 2(6), 1946.
    Satterthwaite's degrees of freedom rely on the estimated variances. A campaign that stops when they are small has
    the degrees of freedom of the smaller group, which are too few for any variances: Mickey, Brown, "Bounds on the
    distribution functions of the Behrens-Fisher statistic", Annals of Mathematical Statistics 37(3), 1966.
    """
    (a, spread_a), (b, spread_b) = _moments(logs, roundings[0]), _moments(others, roundings[1])
    n = min(len(logs), len(others))
    if spread_a is None or spread_b is None:
        return Contrast(a - b, None, None, n)
    ea, eb = spread_a**2 / len(logs), spread_b**2 / len(others)
    error, df = math.sqrt(ea + eb), float(n - 1)
    if error > NO_SPREAD and confidence == CONFIDENCE:
        df = (ea + eb) ** 2 / (ea**2 / (len(logs) - 1) + eb**2 / (len(others) - 1))
    return Contrast(a - b, error, df, n, confidence)


# -- tests -------------------------------------------------------------------------------------------------


def p_inside(contrast: Contrast, low: float, high: float) -> float | None:
    """Return the p value of the hypothesis that the true ratio lies outside [low, high].

    A small value means that the ratio lies inside. With two closed ends, the result comes from two one-sided
    tests: Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15(6), 1987. With one open end, it comes from a
    one-sided t test. The result is None if the contrast is not testable.
    """
    above, below = contrast.p_above(low), contrast.p_below(high)
    return None if above is None or below is None else max(above, below)


def p_outside(contrast: Contrast, low: float, high: float) -> float | None:
    """Return the p value of the hypothesis that the true ratio lies in [low, high].

    A small value means that the ratio lies outside. The result comes from a one-sided t test against the nearer
    end. It is doubled if both ends are closed, because the ratio may lie beyond either end. The result is None
    if the contrast is not testable.
    """
    above, below = contrast.p_above(high), contrast.p_below(low)
    if above is None or below is None:
        return None
    closed = low > 0 and not math.isinf(high)
    return min(1.0, (2 if closed else 1) * min(above, below))


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p values adjusted for multiple tests, in the given order.

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statistics 6(2), 1979.
    """
    # statsmodels.multipletests is not used because it runs the garbage collector in every call, which takes a
    # thousand times as long as the correction.
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def smallest_detectable(error: float, df: float, level: float = 1 - CONFIDENCE) -> float:
    """Return the smallest true |ln ratio| that a two-sided t test at a level detects with 80 % power.

    With T' noncentral t of df degrees of freedom and noncentrality d/error, the power is P(T' > t), where t
    is the two-sided quantile of Student's t; the equation is solved for d. Significance in the wrong direction,
    P(T' < -t), adds less than 0.0001 here and is neglected. The spread estimated from a few repetitions is
    uncertain, so the result is only an order of magnitude.

    Source: Cohen, "Statistical Power Analysis for the Behavioral Sciences", 2nd ed. 1988, ch. 2; Owen, "The
    power of Student's t-test", JASA 60(309), 1965.
    """
    return student.noncentrality(t_quantile(df, 1 - level), df, POWER) * error


def detectable_percent(contrast: Contrast, gain: bool = False) -> float | None:
    """Return the smallest detectable overhead in percent, or None if n is 1.

    It is 100·(exp(d) - 1) for a cost and 100·(1 - exp(-d)) for a gain.
    """
    if contrast.error is None or contrast.df is None:
        return None
    d = smallest_detectable(contrast.error, contrast.df)
    # Limited to a factor of 1000. A larger number would only mean that nothing can be detected.
    return -100 * math.expm1(-d) if gain else 100 * math.expm1(min(d, math.log(1000)))


def detectable(contrast: Contrast, tests: int = 1, level: float = 1 - CONFIDENCE) -> float | None:
    """Return the smallest ratio above 1 that a test at level/tests detects with 80 % power; None if not testable.

    With several `tests`, the level is the strictest of Holm's levels.
    """
    if not contrast.testable or contrast.error is None or contrast.df is None:
        return None
    d = smallest_detectable(contrast.error, contrast.df, (level / tests) ** (1 / contrast.exponent))
    return math.exp(min(d, math.log(1000)))


def repetitions(contrast: Contrast, tests: int = 1, level: float = 1 - CONFIDENCE) -> int | None:
    """Return how many repetitions make a two-sided test at level/tests significant if mean and spread stay as they are.

    The result is None if the contrast is not testable, or if they are more than MOST_REPETITIONS.
    """
    if not contrast.testable or contrast.error is None:
        return None
    confidence = 1 - (level / tests) ** (1 / contrast.exponent)
    spread = contrast.error * math.sqrt(contrast.n)
    for n in range(2, MOST_REPETITIONS + 1):
        if t_quantile(n - 1, confidence) * spread / math.sqrt(n) <= abs(contrast.log):
            return n
    return None


def _logs(values: Sequence[float]) -> list[float]:
    if not values:
        raise ValueError("a mean requires at least one value")
    for value in values:
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"a mean on the log scale requires positive values, not {value}")
    return [math.log(value) for value in values]


def _moments(values: Sequence[float], min_spread: float = 0.0) -> tuple[float, float | None]:
    """Return mean and standard deviation (at least `min_spread`; None for one value)."""
    n = len(values)
    center = math.fsum(values) / n
    if n < 2:
        return center, None
    return center, max(math.sqrt(math.fsum((x - center) ** 2 for x in values) / (n - 1)), min_spread)
