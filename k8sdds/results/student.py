"""Compute Student's t distribution and the noncentral one.

They are the only special functions that k8sdds needs, and scipy, which has them, takes 143 MB. A unit
test compares both.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import Any

_NORMAL = NormalDist()
_PRECISION = 1e-14
_STEPS = 500


def survival(t: float, df: float) -> float:
    """Return the probability that Student's t exceeds a value.

    Source: Abramowitz, Stegun, "Handbook of Mathematical Functions", 1964, 26.5.27 and 26.7.1.
    """
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    tail = _incomplete_beta(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t)) / 2
    return tail if t > 0 else 1 - tail


@lru_cache(maxsize=1024)
def quantile(p: float, df: float) -> float:
    """Return the value that Student's t does not exceed with probability `p`, above 0.5 and below 1.

    The logarithm of `survival` is a concave function of the logarithm of t, so Newton's method converges from below.
    """
    t = _NORMAL.inv_cdf(p)
    front = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    for _ in range(_STEPS):
        tail = survival(t, df)
        density = math.exp(front - (df + 1) / 2 * math.log1p(t * t / df))
        step = math.log(tail / (1 - p)) * tail / (t * density)
        t *= math.exp(step)
        if abs(step) < _PRECISION:
            break
    return t


@lru_cache(maxsize=1024)
def noncentrality(critical: float, df: float, power: float) -> float:
    """Return the noncentrality with which a noncentral t exceeds a critical value with probability `power`.

    The normal quantile of the power is almost a line, of which the secant method finds the root.
    """
    wanted = _NORMAL.inv_cdf(power)
    before, delta = critical, 1.1 * critical + 1
    missed, miss = (_NORMAL.inv_cdf(_exceeded(critical, df, each)) - wanted for each in (before, delta))
    for _ in range(_STEPS):
        if abs(delta - before) <= _PRECISION * delta or miss == missed:
            break
        before, missed, delta = delta, miss, delta - miss * (delta - before) / (miss - missed)
        miss = _NORMAL.inv_cdf(_exceeded(critical, df, delta)) - wanted
    return delta


def _exceeded(critical: float, df: float, delta: float) -> float:
    """Return the probability that a noncentral t exceeds a positive value t: E[Φ(δ - t·s)], where s² is χ²/df.

    It is integrated over the fourth root of s, which makes the density smooth at 0 for each df of at least 1.
    Source: Owen, "A survey of properties and applications of the noncentral t-distribution", Technometrics 10(3), 1968.
    """
    import numpy as np

    # Outside of these limits, the density of s is negligible; outside of the inner ones, Φ is 0 or 1.
    low, high = max(1 - 10 / math.sqrt(df), 0.0), 1 + 10 / math.sqrt(df)
    inner = (min(max((delta + side) / critical, low), high) for side in (-9, 9))
    edges = sorted({edge**0.25 for edge in (low, *inner)})
    front = math.log(8) + df / 2 * math.log(df / 2) - math.lgamma(df / 2)
    nodes, weights = _nodes()
    total = 0.0
    for left, right in pairwise(edges):
        root = (left + right) / 2 + (right - left) / 2 * nodes
        logs = front + (4 * df - 1) * np.log(root) - df / 2 * root**8
        terms = [math.erfc((critical * s - delta) / math.sqrt(2)) for s in root**4]
        total += (right - left) / 4 * float(weights * np.exp(logs) @ terms)
    return total


@cache
def _nodes() -> Any:
    import numpy as np

    return np.polynomial.legendre.leggauss(100)


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b); `rest` is 1 - x.

    Source: the continued fraction of DLMF 8.17.22, evaluated by Lentz's method, Applied Optics 15(3), 1976.
    """
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, rest, x)
    if x == 0:
        return 0.0
    logs = a * math.log(x) + b * math.log(rest) - math.log(a)
    front = math.exp(logs + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    fraction, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(1, _STEPS):
        half = step // 2
        coefficient = -(a + half) * (a + b + half) if step % 2 else half * (b - half)
        term = coefficient * x / ((a + step - 1) * (a + step))
        numerator, denominator = 1 + term / numerator, 1 / (1 + term * denominator)
        fraction *= numerator * denominator
        if abs(numerator * denominator - 1) < _PRECISION / 100:
            break
    return front / fraction
