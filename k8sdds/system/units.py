"""Read numbers with a unit, as reports print them (`1 KiB`, `15 Hz`, `33.3 ms`), as the number that a key expects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_TIME = {"us": 1, "µs": 1, "ms": 1000, "s": 10**6, "min": 60 * 10**6}
_RATE = {"Hz": 1, "kHz": 1000, "/s": 1, "samples/s": 1}
_KEYS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "bytes": ("B", {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}),
    "us": ("us", _TIME),
    "ms": ("ms", _TIME),
    "s": ("s", _TIME),
    "min": ("min", _TIME),
    "mbit": ("Mbit/s", {"kbit/s": 1, "Mbit/s": 1000, "Gbit/s": 10**6}),
    "percent": ("%", {"%": 1}),
    "rate": ("Hz", _RATE),
    **dict.fromkeys(("quota", "request"), ("CPUs", {"m": 1, "CPUs": 1000})),
}
"""Last word of a key → the unit of its number, and the units that it may have in a file, each in the smallest one."""
_NUMBER = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([^\d\s.:][^\d]*?)\s*")


def number(key: str, value: Any) -> Any:
    """Return a value of a key, or a list of values, with each number with a unit in the unit of the key.

    Raises ValueError, which names the units of the key.
    """
    if isinstance(value, list):
        return [number(key, item) for item in value]
    if not isinstance(value, str):
        return value
    own, units = _of(key)
    found = _NUMBER.fullmatch(value) if units else None
    if found is None:
        return value
    if found[2] not in units:
        raise ValueError(f"{value!r}: unknown unit {found[2]!r} (units: {', '.join(units)})")
    exact = Fraction(found[1]) * units[found[2]] / units[own]
    return exact.numerator if exact.denominator == 1 else float(exact)


def allow(schema: Any, key: str = "") -> Any:
    """Return a JSON Schema (of this key) in which every number of a key with a unit may have one."""
    if isinstance(schema, list):
        return [allow(part, key) for part in schema]
    if not isinstance(schema, dict):
        return schema
    _, units = _of(key)
    if units and schema.get("type") in ("integer", "number"):
        pattern = rf"^[0-9.]+ ?({'|'.join(units)})$"
        return schema | {"type": [schema["type"], "string"], "pattern": pattern}
    return {
        name: {key: allow(part, key) for key, part in value.items()}
        if name == "properties"
        else allow(value, key)
        for name, value in schema.items()
    }


def _of(key: str) -> tuple[str, Mapping[str, int]]:
    """Return the unit of the number of a key, and the units that it may have in a file; empty if it has none."""
    return _KEYS.get(key.rpartition("_")[2], ("", {}))
