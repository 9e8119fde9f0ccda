"""Sum and average values, some of which may be missing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean
from typing import TypeVar

T = TypeVar("T")
N = TypeVar("N", int, float)


def total(values: Iterable[N | None]) -> N | None:
    """Return the sum of the known values, or None if no value is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def complete_total(values: Iterable[float | None]) -> float | None:
    """Return the sum of all values, or None if any is missing, because a partial cost would look too low."""
    return total(_complete(values))


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values, or None if no value is known or the mean is not finite."""
    known = [value for value in values if value is not None]
    return finite(fmean(known)) if known else None


def complete_max(values: Iterable[float | None]) -> float | None:
    """Return the largest value, or None if any value is missing."""
    return max(_complete(values), default=None)


def complete_min(values: Iterable[int | None]) -> int | None:
    """Return the smallest count, or None if any count is missing."""
    return min(_complete(values), default=None)


def ratio(part: float | None, whole: float | None, scale: float = 1) -> float | None:
    """Return part / whole × scale, or None if a value is missing or the whole is 0."""
    return part / whole * scale if part is not None and whole else None


def finite(value: float | None) -> float | None:
    """Return the value, or None if it is infinite or not a number."""
    return value if value is not None and math.isfinite(value) else None


def _complete(values: Iterable[T | None]) -> list[T]:
    given = list(values)
    known = [value for value in given if value is not None]
    return known if len(known) == len(given) else []
