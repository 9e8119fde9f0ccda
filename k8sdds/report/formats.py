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
    # The value has the interval's decimals, but not those that only keep a bound from looking like 0.
    return f"{_plain(value, _decimals((high - low) / 2))} {interval(low, high)}"


def interval(low: float | None, high: float | None) -> str:
    """`[27, 33]`; empty where there is no interval."""
    if low is None or high is None:
        return ""
    decimals = _decimals((high - low) / 2)
    # [0, 13] must not stand for an interval that excludes 0.
    while decimals < 2 and low * high > 0 and "0" in (_plain(low, decimals), _plain(high, decimals)):
        decimals += 1
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
    """`±0.8 %`, or `over ±100 %` where next to nothing can be detected."""
    if value is None:
        return ""
    text = "over ±100" if value > 100 else f"±{_plain(value, 0 if value >= 10 else 1)}"
    return f"{text}\N{NO-BREAK SPACE}%"


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


def capital(words: str) -> str:
    """`Throughput` for `throughput`; `p90 latency` stays, because P90 is another thing to read."""
    return words if words[:2].strip("p").isdigit() else words[:1].upper() + words[1:]


def moment(text: object) -> str:
    """`2026-11-21 10:15 UTC` for an ISO 8601 time of UTC; other text as it is."""
    text = str(text or "")
    return (
        f"{text[:10]} {text[11:16]} UTC"
        if len(text) >= 17 and text[10] == "T" and text.endswith("Z")
        else text
    )


def plain(value: float, decimals: int) -> str:
    """So many decimals, and never `-0.0`."""
    return _plain(value, decimals)


def _decimals(half: float) -> int:
    return 0 if half >= 1 else 1 if half >= 0.1 else 2


def _plain(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    # Rounding makes "-0.0" of -0.04.
    return text.lstrip("-") if float(text) == 0 else text
