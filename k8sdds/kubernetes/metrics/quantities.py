"""Parse numbers as Kubernetes writes them: quantities (`250m`, `12Ki`), durations (`1m0.5s`) and times."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

_SUFFIXES = {
    "": Decimal(1),
    **{suffix: Decimal(1000) ** power for power, suffix in zip(range(-3, 0), "num", strict=True)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}  # fmt: skip
_NUMBER = r"([+-]?(?:\d{1,30}\.?\d{0,30}|\.\d{1,30}))"
_QUANTITY = re.compile(_NUMBER + r"(?:([numkMGTPE]|[KMGTPE]i)?|[eE]([+-]?\d{1,2}))", re.ASCII)
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(h|ms|m|s|us|µs|ns)", re.ASCII)


def parse_quantity(text: str) -> float:
    """Parse a quantity. Raises ValueError if it is not valid."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"{text[:80]!r} is not a quantity")
    number, suffix, exponent = match.groups()
    scale = Decimal(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""]
    return float(Decimal(number) * scale)


def parse_duration_s(text: str) -> float:
    """Parse a duration in Go's notation, in seconds. Raises ValueError if it is not valid."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text[:80]!r} is not a duration")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


def parse_time_s(text: str) -> float:
    """Parse an RFC 3339 time, in seconds since 1970. Raises ValueError if it is not valid."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text[:80]!r} has no time zone")
    return moment.astimezone(UTC).timestamp()
