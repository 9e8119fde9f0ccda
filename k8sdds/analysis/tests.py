"""Test hypotheses about log ratios, for `compare` and `claims`. All functions are pure and cite their source.

A `Contrast` is an estimated log ratio with its standard error and degrees of freedom. It comes from pairs within
one campaign (Student) or from two independent campaigns (Welch). Every test determines whether the true ratio
lies inside or outside a region.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from k8sdds.analysis.statistics import CONFIDENCE, POWER
from k8sdds.results import student

MOST_REPETITIONS = 50
"""Repetitions up to which it is worth naming how many would show a difference."""
NO_SPREAD = 1e-9
"""Standard error of logarithms below which values count as equal. Their spread is then unknown rather than 0."""


@dataclass(frozen=True)
class Contrast:
    """The logarithm of a ratio: estimate, standard error and degrees of freedom.

    The error and the degrees of freedom are None if n is too small.
    """

    log: float
    error: float | None
    df: float | None
    n: int
    """Number of pairs, or the size of the smaller group if there are two independent groups."""
    confidence: float = CONFIDENCE
    """Level of the t interval that contains the truth in 95 % of such campaigns (`statistics.confidence_of`)."""

    @property
    def ratio(self) -> float:
        """The estimated ratio."""
        return math.exp(self.log)

    @property
    def testable(self) -> bool:
        """Whether a test is possible: the spread is known and is not 0."""
        return self.error is not None and self.error > NO_SPREAD

    def interval(self, confidence: float | None = None) -> tuple[float | None, float | None]:
        """Return the two-sided 95 % interval of the ratio, or (None, None) if it is not testable.

        Another confidence than that of `confidence` is only for campaigns that were not stopped.
        """
        if not self.testable or self.error is None or self.df is None:
            return None, None
        half = student.quantile(0.5 + (confidence or self.confidence) / 2, self.df) * self.error
        return math.exp(max(self.log - half, -700)), math.exp(min(self.log + half, 700))

    def p_above(self, ratio: float) -> float | None:
        """Return the one-sided p value of the hypothesis that the true ratio is at most `ratio`."""
        return self._tail(ratio, 1)

    def p_below(self, ratio: float) -> float | None:
        """Return the one-sided p value of the hypothesis that the true ratio is at least `ratio`."""
        return self._tail(ratio, -1)

    @property
    def exponent(self) -> float:
        """Power of a two-sided p value of Student's t that is a valid p value; 1 unless the campaign was stopped.

        The stopping rule favors small spreads, which inflates small p values more than large ones. This power makes 2 %
        of t into 5 %, as the interval does, and is conservative for all p values (benchmarks/claims.py).
        """
        return math.log(1 - CONFIDENCE) / math.log(1 - self.confidence)

    @property
    def p_different(self) -> float | None:
        """The two-sided p value of the hypothesis that the ratio is 1."""
        above, below = self.p_above(1), self.p_below(1)
        return None if above is None or below is None else min(1.0, 2 * min(above, below))

    def _tail(self, ratio: float, sign: int) -> float | None:
        if not self.testable or self.error is None or self.df is None:
            return None
        if ratio <= 0 or math.isinf(ratio):
            return 0.0 if (ratio <= 0) == (sign > 0) else 1.0
        p = student.survival(sign * (self.log - math.log(ratio)) / self.error, self.df)
        return max(p, float((2 * p) ** self.exponent) / 2)


def one_sample(logs: Sequence[float], rounding: float = 0.0, confidence: float = CONFIDENCE) -> Contrast:
    """Return the mean of independent log ratios, or of the logarithms of a level, with the error s/√n.

    `rounding` is the standard deviation of a value that rounding alone causes. It is the lower limit of the
    spread. `confidence` is that of the contrast. Source: Student, Biometrika 6(1), 1908.
    """
    center, variance = _moments(logs, rounding)
    n = len(logs)
    if variance is None:
        return Contrast(center, None, None, n)
    return Contrast(center, math.sqrt(variance / n), n - 1, n, confidence)


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
    (a, va), (b, vb) = _moments(logs, roundings[0]), _moments(others, roundings[1])
    n = min(len(logs), len(others))
    if va is None or vb is None:
        return Contrast(a - b, None, None, n)
    ea, eb = va / len(logs), vb / len(others)
    if math.sqrt(ea + eb) <= NO_SPREAD:
        return Contrast(a - b, math.sqrt(ea + eb), len(logs) + len(others) - 2, n)
    if confidence == CONFIDENCE:
        df = (ea + eb) ** 2 / (ea**2 / (len(logs) - 1) + eb**2 / (len(others) - 1))
    else:
        df = n - 1
    return Contrast(a - b, math.sqrt(ea + eb), df, n, confidence)


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


def detectable(contrast: Contrast, tests: int = 1, level: float = 1 - CONFIDENCE) -> float | None:
    """Return the smallest true ratio above 1 that a two-sided test at level/tests detects with 80 % power.

    It uses the noncentral t distribution as in `statistics.smallest_detectable`. With several `tests`, the level
    is the strictest of Holm's levels. The result is None if the contrast is not testable.
    """
    if not contrast.testable or contrast.error is None or contrast.df is None:
        return None
    critical = student.quantile(1 - (level / tests) ** (1 / contrast.exponent) / 2, contrast.df)
    delta = student.noncentrality(critical, contrast.df, POWER)
    return math.exp(min(delta * contrast.error, math.log(1000)))


def repetitions(contrast: Contrast, tests: int = 1, level: float = 1 - CONFIDENCE) -> int | None:
    """Return how many repetitions make a two-sided test at level/tests significant if mean and spread stay as they are.

    The result is None if the contrast is not testable, or if they are more than MOST_REPETITIONS.
    """
    if not contrast.testable or contrast.error is None:
        return None
    quantile = 1 - (level / tests) ** (1 / contrast.exponent) / 2
    spread = contrast.error * math.sqrt(contrast.n)
    return next(
        (
            n
            for n in range(2, MOST_REPETITIONS + 1)
            if student.quantile(quantile, n - 1) * spread / math.sqrt(n) <= abs(contrast.log)
        ),
        None,
    )


def _moments(logs: Sequence[float], rounding: float) -> tuple[float, float | None]:
    n = len(logs)
    center = math.fsum(logs) / n
    if n < 2:
        return center, None
    return center, max(math.fsum((x - center) ** 2 for x in logs) / (n - 1), rounding**2)
