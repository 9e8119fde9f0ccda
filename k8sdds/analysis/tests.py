"""Tests on log ratios: the pure functions behind `compare` and `claims`, each with its source.

A `Contrast` is an estimated log ratio with its standard error and degrees of freedom, from pairs of one
campaign (Student) or from two independent campaigns (Welch). What is asked of it is always the same: does
the true ratio lie in a region, or outside of it?
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from k8sdds.analysis.statistics import CONFIDENCE, POWER

NO_SPREAD = 1e-9
"""A standard error of logs below this is that of equal numbers: their spread is unknown, not nothing."""


@dataclass(frozen=True)
class Contrast:
    """ln of a ratio: estimate, standard error and degrees of freedom (both None where n allows none)."""

    log: float
    error: float | None
    df: float | None
    n: int
    """Pairs; of two independent groups the smaller one's size."""

    @property
    def ratio(self) -> float:
        """The estimated ratio."""
        return math.exp(self.log)

    @property
    def testable(self) -> bool:
        """Whether there is a spread to test with."""
        return self.error is not None and self.error > NO_SPREAD

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float | None, float | None]:
        """Two-sided interval of the ratio; (None, None) where there is no spread."""
        if not self.testable:
            return None, None
        half = _quantile(0.5 + confidence / 2, self.df) * self.error
        return math.exp(max(self.log - half, -700)), math.exp(min(self.log + half, 700))

    def p_above(self, ratio: float) -> float | None:
        """One-sided p of the hypothesis that the true ratio is at most `ratio`."""
        return self._tail(ratio, 1)

    def p_below(self, ratio: float) -> float | None:
        """One-sided p of the hypothesis that the true ratio is at least `ratio`."""
        return self._tail(ratio, -1)

    @property
    def p_different(self) -> float | None:
        """Two-sided p of the hypothesis that the ratio is 1."""
        above, below = self.p_above(1), self.p_below(1)
        return None if above is None or below is None else min(1.0, 2 * min(above, below))

    def _tail(self, ratio: float, sign: int) -> float | None:
        if not self.testable:
            return None
        if ratio <= 0 or math.isinf(ratio):
            return 0.0 if (ratio <= 0) == (sign > 0) else 1.0
        from scipy import special

        # The distribution function itself: scipy.stats wraps it in a hundred times its time.
        return float(special.stdtr(self.df, -sign * (self.log - math.log(ratio)) / self.error))


def paired(values: Sequence[float], others: Sequence[float]) -> Contrast:
    """ln(values/others) from pairs: mean, s/√n, n - 1. Source: Student, Biometrika 6(1), 1908."""
    return one_sample([math.log(x) - math.log(b) for x, b in zip(values, others, strict=True)])


def one_sample(logs: Sequence[float], rounding: float = 0.0) -> Contrast:
    """The mean of log ratios (or of logs of a level) that are independent of each other.

    `rounding` is the standard deviation of one of them that rounding alone gives: the spread is never less.
    """
    centre, variance = _moments(logs, rounding)
    n = len(logs)
    if variance is None:
        return Contrast(centre, None, None, n)
    return Contrast(centre, math.sqrt(variance / n), n - 1, n)


def independent(values: Sequence[float], others: Sequence[float]) -> Contrast:
    """ln(values/others) of two campaigns that share no repetition.

    Source: Welch, "The generalization of Student's problem when several different population variances are
    involved", Biometrika 34, 1947; degrees of freedom by Satterthwaite, Biometrics Bulletin 2(6), 1946.
    """
    return independent_logs([math.log(x) for x in values], [math.log(x) for x in others])


def independent_logs(
    logs: Sequence[float], others: Sequence[float], roundings: tuple[float, float] = (0.0, 0.0)
) -> Contrast:
    """The same from logarithms, such as log overheads of two campaigns; `roundings` as in `one_sample`."""
    (a, va), (b, vb) = _moments(logs, roundings[0]), _moments(others, roundings[1])
    n = min(len(logs), len(others))
    if va is None or vb is None:
        return Contrast(a - b, None, None, n)
    ea, eb = va / len(logs), vb / len(others)
    if math.sqrt(ea + eb) <= NO_SPREAD:
        return Contrast(a - b, math.sqrt(ea + eb), len(logs) + len(others) - 2, n)
    df = (ea + eb) ** 2 / (ea**2 / (len(logs) - 1) + eb**2 / (len(others) - 1))
    return Contrast(a - b, math.sqrt(ea + eb), df, n)


def p_inside(contrast: Contrast, low: float, high: float) -> float | None:
    """p of the hypothesis that the true ratio lies outside [low, high]: small means that it lies inside.

    With both ends the two one-sided tests: Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15(6), 1987.
    With one end open the one-sided t test. None where there is no spread.
    """
    above, below = contrast.p_above(low), contrast.p_below(high)
    return None if above is None or below is None else max(above, below)


def p_outside(contrast: Contrast, low: float, high: float) -> float | None:
    """p of the hypothesis that the true ratio lies in [low, high]: small means that it lies outside.

    The one-sided t test against the nearer end; doubled where both ends are closed, because either could be
    left. None where there is no spread.
    """
    beyond, short = contrast.p_above(high), contrast.p_below(low)
    if beyond is None or short is None:
        return None
    closed = low > 0 and not math.isinf(high)
    return min(1.0, (2 if closed else 1) * min(beyond, short))


def holm(ps: Sequence[float]) -> list[float]:
    """p values adjusted for so many tests at once, in the given order.

    Source: Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statistics 6(2), 1979.
    """
    # Not statsmodels' multipletests: it collects garbage in every call, a thousand times the work itself.
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def detectable(contrast: Contrast, tests: int = 1, level: float = 1 - CONFIDENCE) -> float | None:
    """The smallest true ratio above 1 that a two-sided test at level/tests finds with 80 % power.

    Noncentral t as in `statistics.smallest_detectable`; with `tests` > 1 at the strictest of Holm's levels.
    """
    if not contrast.testable:
        return None
    from scipy import special

    critical = _quantile(1 - level / tests / 2, contrast.df)
    # nctdtrinc gives the noncentrality at which P(T' <= critical) is 1 - power.
    delta = float(special.nctdtrinc(contrast.df, 1 - POWER, critical))
    if not math.isfinite(delta):
        return None
    return math.exp(min(delta * contrast.error, math.log(1000)))


def _moments(logs: Sequence[float], rounding: float) -> tuple[float, float | None]:
    n = len(logs)
    centre = math.fsum(logs) / n
    if n < 2:
        return centre, None
    return centre, max(math.fsum((x - centre) ** 2 for x in logs) / (n - 1), rounding**2)


def _quantile(p: float, df: float | None) -> float:
    from scipy import special

    return float(special.stdtrit(df, p))
