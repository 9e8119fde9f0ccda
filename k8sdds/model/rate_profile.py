"""Define rate profiles: how the samples of a schedule are distributed over time. Pure."""

from __future__ import annotations

import math

CONSTANT = "constant"
FORMS = f"{CONSTANT}, ramp:FROM, burst:N or on-off:ON:OFF"
MAX_RATE = 1e7
"""Largest rate in samples per second."""
MAX_BURST = 1_000_000
MAX_CYCLE_S = 86_400
_NUMBERS = {CONSTANT: 0, "ramp": 1, "burst": 1, "on-off": 2}
"""The shapes, and how many numbers follow each."""


def parse(text: str) -> tuple[str, tuple[float, ...]]:
    """Return the shape of a profile and its numbers. Raises ValueError."""
    shape, *texts = text.split(":")
    try:
        numbers = tuple(float(part) for part in texts)
    except ValueError:
        numbers = (math.nan,)
    known = _NUMBERS.get(shape) == len(numbers) and all(map(math.isfinite, numbers))
    if not known or not all(_is_plain(part) for part in texts):
        raise ValueError(f"{text!r} is not a rate profile: give {FORMS}")
    match shape, numbers:
        case "ramp", (start,) if start > MAX_RATE:
            raise ValueError(f"{text}: a ramp begins with 0 to {MAX_RATE:,.0f} samples per second")
        case "burst", (samples,) if not (1 <= samples <= MAX_BURST and samples.is_integer()):
            raise ValueError(f"{text}: a burst has 1 to {MAX_BURST:,} samples")
        case "on-off", (on_s, off_s) if not (on_s > 0 and off_s > 0 and on_s + off_s <= MAX_CYCLE_S):
            raise ValueError(f"{text}: both times are above 0 s, and at most {MAX_CYCLE_S:,} s together")
    return shape, numbers


def contradiction(text: str, rate: float) -> str | None:
    """Return why a valid profile cannot be followed at this rate, or None."""
    match parse(text):
        case "ramp", (start,) if start == rate:
            return f"rate_profile {text} begins with the rate that it leads to"
        case "on-off", (on_s, _) if on_s * rate < 1:
            return f"rate_profile {text} has no sample in {on_s:g} s at {rate:g} samples/s"
        case _:
            return None


def mean_rate(text: str, rate: float) -> float:
    """Return the mean rate of a valid profile; of `on-off` over whole cycles."""
    match parse(text):
        case "ramp", (start,):
            return (start + rate) / 2
        case "on-off", (on_s, off_s):
            return rate * on_s / (on_s + off_s)
        case _:
            return rate


def _is_plain(number: str) -> bool:
    """Whether k8sdds-perftest reads the number: digits, perhaps with a decimal point."""
    return number.replace(".", "", 1).isdecimal() and number.isascii()
