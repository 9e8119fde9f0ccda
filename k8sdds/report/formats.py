"""Format numbers, intervals and lists as text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from k8sdds import workloads
from k8sdds.analysis import capacities
from k8sdds.analysis.capacity import UNITS
from k8sdds.analysis.conditions import CONDITION, describe
from k8sdds.model.options import MEMBERS, RATE, SUBSCRIBERS
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row, grouped
from k8sdds.system.numbers import count as count
from k8sdds.system.numbers import fixed as fixed
from k8sdds.system.numbers import number as number


def percent(
    value: float | None, low: float | None = None, high: float | None = None, unit: bool = False
) -> str:
    """Return a percentage with its interval: `30 [27, 33]`, or `30 % [27, 33]` with the unit.

    The width of the interval sets the number of decimals, so that uncertain digits are not shown.
    """
    sign = "\N{NO-BREAK SPACE}%" if unit else ""
    if value is None or not math.isfinite(value):
        return "–" + sign
    if low is None or high is None:
        return fixed(value, 0 if abs(value) >= 10 else 1) + sign
    # `interval` may add decimals so that a bound does not look like 0; the value does not need them.
    return f"{fixed(value, _decimals((high - low) / 2))}{sign} {interval(low, high)}"


def overhead(row: Row, unit: bool = False) -> str:
    """Return the overhead of a row with its interval, see `percent`."""
    return percent(row["overhead_percent"], row["ci_low_percent"], row["ci_high_percent"], unit)


MAX_CHANGE = 1000
"""Largest bound of a change that is printed, in percent."""


def change(value: float, low: float | None = None, high: float | None = None) -> str:
    """Return a change in percent with its interval and signs, such as `+30 [+27, +33]`."""
    if low is not None and high is not None and high > MAX_CHANGE:
        # So wide an interval has no upper bound that anyone can use.
        return f"{value:+.0f} [{low:+.0f}, over +{MAX_CHANGE}]"
    return re.sub(r"(?<![\d.-])(?=\d)", "+", percent(value, low, high))


def interval(low: float | None, high: float | None) -> str:
    """Return an interval such as `[27, 33]`, or an empty string without bounds."""
    if low is None or high is None:
        return ""
    decimals = _decimals((high - low) / 2)
    # An interval that excludes 0 must not be shown as [0, 13].
    while decimals < 2 and low * high > 0 and "0" in (fixed(low, decimals), fixed(high, decimals)):
        decimals += 1
    return f"[{fixed(low, decimals)}, {fixed(high, decimals)}]"


def level(value: float | None, low: float | None, high: float | None) -> str:
    """Return a level with its interval: `94.0 [93.1, 94.9]`.

    The width of the interval sets the number of decimals.
    """
    if value is None:
        return "–"
    if low is None or high is None or not math.isfinite(high):
        return number(value)
    half = (high - low) / 2
    decimals = max(0, -math.floor(math.log10(half))) if half > 0 else 3
    decimals = min(decimals, max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0)
    return f"{fixed(value, decimals)} [{fixed(low, decimals)}, {fixed(high, decimals)}]"


def share(ratio: dict[str, Any]) -> str:
    """Return `ratio`, `ratio_low` and `ratio_high` as `72 % [70, 74]`."""
    bounds = (ratio[name] for name in ("ratio", "ratio_low", "ratio_high"))
    value, low, high = (None if bound is None else 100 * bound for bound in bounds)
    return percent(value, low, high, unit=True)


def detectable(value: float | None) -> str:
    """Return the smallest detectable difference: `±0.8 %`, or `over ±100 %`."""
    if value is None:
        return ""
    text = "over ±100" if value > 100 else f"±{fixed(value, 0 if value >= 10 else 1)}"
    return f"{text}\N{NO-BREAK SPACE}%"


def capacity(row: dict[str, Any]) -> str:
    """Return the bracket of a capacity, such as `between 12,400 and 13,000 samples/s`, and its overhead if known."""
    searched, bounds = capacities.searched_by(row), capacities.bounds_of(row)
    ends = ((bounds.low, row["capacity_participants"]), (bounds.high, row["missed_participants"]))
    low, high = (
        with_unit(searched, value) + (f" ({participants:,} participants)" if participants else "")
        for value, participants in ends
    )
    match bounds.low, bounds.high:
        case None, None:
            text = "unknown: the search has no result yet"
        case None, _:
            text = f"not met at {high}, the smallest value with a result"
        case _, None:
            text = f"at least {low}"
        case _ if searched != RATE:
            text = f"{low}, missed with {searched_value(searched, bounds.high)}"
        case _:
            text = f"between {searched_value(searched, bounds.low)} and {high}"
    if not row["decided"] and (bounds.low or bounds.high):
        text += " (the search did not end)"
    if row["overhead_percent"] is None:
        return text
    overhead = percent(row["overhead_percent"], row["bracket_low_percent"], row["bracket_high_percent"])
    return f"{text}, overhead {overhead} % (all ratios of the brackets)"


_ONE = {SUBSCRIBERS: "subscriber", MEMBERS: "member per process"}
"""The units of exactly one."""


def with_unit(searched: str, value: float | None) -> str:
    """Return a value of what a capacity search searches with its unit: `12,340 samples/s`, `1 subscriber`."""
    unit = _ONE.get(searched) if value == 1 else None
    return f"{searched_value(searched, value)} {unit or UNITS[searched]}"


def searched_value(searched: str, value: float | None) -> str:
    """Return a value of what a capacity search searches: a rate, or a whole number."""
    return f"{value:,.0f}" if searched != RATE and value is not None else rate(value)


def rate(value: float | None) -> str:
    """Return a rate with four significant digits and separators: `12,340`."""
    if value is None:
        return "–"
    decimals = max(0, 3 - math.floor(math.log10(value))) if 0 < value < 1000 else 0
    return f"{float(f'{value:.4g}'):,.{decimals}f}"


def range_of(values: list[int]) -> str:
    """Return the range of some integers, such as the n of several cells: `3` or `2 to 3`."""
    ordered = sorted(set(values))
    if not ordered:
        return "0"
    return str(ordered[0]) if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def cell_name(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """Return the text of a row's cell: its network, its metric, its payload, and what differs among the rows."""
    shown = {
        name: row[name]
        for name in CONDITION
        if name in row
        and (
            (name == "payload_bytes" and not row.get("flow"))
            or (name != "test" and len({other.get(name) for other in rows}) > 1)
        )
    }
    metric = METRICS[row["quantity"]]
    # Several tests, such as tcp-stream and udp-stream, have the same main metric.
    usual = workloads.of_metric(metric.name)
    test = row["test"] if row["test"] in workloads.WORKLOADS and row["test"] != usual else ""
    parts = (row["network"], test, row.get("flow"), metric.title, describe(shown))
    return ", ".join(part for part in parts if part)


def join(items: list[str]) -> str:
    """Join items as in a sentence: `a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def kinds(texts: Iterable[str]) -> list[tuple[str, int]]:
    """Return each kind of text with its number, the most frequent first.

    Texts that differ in numbers are of one kind; it states the range of each number.
    """
    found = grouped(texts, lambda text: _NUMBER.sub("0", text))
    return sorted(((_ranges(alike), len(alike)) for alike in found.values()), key=lambda kind: -kind[1])


def _ranges(texts: list[str]) -> str:
    columns = zip(*(_NUMBER.findall(text) for text in texts), strict=True)
    ranges = iter([sorted(set(numbers), key=float) for numbers in columns])
    return _NUMBER.sub(lambda _: " to ".join(dict.fromkeys((one := next(ranges))[:1] + one[-1:])), texts[0])


_NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.])")
"""A number that is not part of a name."""


def by_group(groups: Mapping[str, Mapping[str, str]]) -> str:
    """Return texts by group and label, for those who do not see a figure: `1 KiB: host 94, weavenet 45; 4 KiB: …`."""
    return "; ".join(
        f"{group}: {', '.join(f'{label} {text}' for label, text in texts.items())}"
        for group, texts in groups.items()
    )


def capital(text: str) -> str:
    """Capitalize the first letter, except in `p90 latency`: P90 has another meaning."""
    return text if text[:2].strip("p").isdigit() else text[:1].upper() + text[1:]


def moment(text: object) -> str:
    """Return an ISO 8601 time in UTC as `2026-11-21 10:15 UTC`; return other text unchanged."""
    text = str(text or "")
    return re.sub(r"^(.{10})T(.{5}).*Z$", r"\1 \2 UTC", text)


def _decimals(half_width: float) -> int:
    return 0 if half_width >= 1 else 1 if half_width >= 0.1 else 2


def slug(text: str) -> str:
    """Return a text as a part of a file name: lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
