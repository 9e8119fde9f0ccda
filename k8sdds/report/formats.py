"""Numbers as people read them."""

from __future__ import annotations

import math


def number(value: float | None, digits: int = 3) -> str:
    """A measured value to so many significant digits, without exponent: 0.0412, 6.10, 94.0, 1650, 18186."""
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return _plain(value, min(decimals, 6))


def percent(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """`30 [27, 33]`, decimals by the interval's width: what is uncertain is not printed. No `%` sign."""
    if value is None or not math.isfinite(value):
        return "–"
    if low is None or high is None:
        return _plain(value, 0 if abs(value) >= 10 else 1)
    decimals = _decimals((high - low) / 2)
    return f"{_plain(value, decimals)} {interval(low, high)}"


def interval(low: float | None, high: float | None) -> str:
    """`[27, 33]`; empty where there is no interval."""
    if low is None or high is None:
        return ""
    decimals = _decimals((high - low) / 2)
    return f"[{_plain(low, decimals)}, {_plain(high, decimals)}]"


def level(value: float | None, low: float | None, high: float | None) -> str:
    """A level with its interval, decimals by the interval's width: `94.0 [93.1, 94.9]`."""
    if value is None:
        return "–"
    if low is None or high is None or not math.isfinite(high):
        return number(value)
    half = (high - low) / 2
    decimals = max(0, -math.floor(math.log10(half))) if half > 0 else 3
    decimals = min(decimals, max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0)
    return f"{_plain(value, decimals)} [{_plain(low, decimals)}, {_plain(high, decimals)}]"


def detectable(value: float | None) -> str:
    """`±0.8 %`, or `±>100 %` where nothing can be detected."""
    if value is None:
        return ""
    return (
        "±>100\N{NO-BREAK SPACE}%"
        if value > 100
        else f"±{_plain(value, 0 if value >= 10 else 1)}\N{NO-BREAK SPACE}%"
    )


def mebibytes(value: float | None) -> str:
    """Bytes in MiB to three digits."""
    return number(None if value is None else value / 2**20)


def range_of(values: list[int]) -> str:
    """`3`, or `2 to 3`: the n of several cells."""
    found = sorted(set(values))
    if not found:
        return "0"
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def count(n: int, thing: str) -> str:
    """`1 trial`, `3 trials`."""
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def _decimals(half: float) -> int:
    return 0 if half >= 1 else 1 if half >= 0.1 else 2


def _plain(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    # Rounding makes "-0.0" of -0.04.
    return text.lstrip("-") if float(text) == 0 else text
