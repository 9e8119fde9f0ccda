"""Format numbers and durations in the same way in progress, tables, reports and JSON."""

from __future__ import annotations

import math
from typing import Any


def number(value: float | None, digits: int = 3) -> str:
    """Return a value with some significant digits and no exponent: 0.0412, 6.10, 94.0, 1650, 18186."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return fixed(value, min(decimals, 6))


def fixed(value: float, decimals: int) -> str:
    """Return a value with a fixed number of decimals; never `-0.0`."""
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text


def count(n: int, noun: str) -> str:
    """Return a count with its noun: `1 trial`, `3 trials`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def format_duration(seconds: float) -> str:
    """Return a rounded duration, such as `45 s`, `3 min` or `1 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def finite(value: Any) -> Any:
    """Return data for JSON: with null in place of infinities and NaN, and lists in place of tuples."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
