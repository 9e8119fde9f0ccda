"""Parse rows of results in the grammars of PerfTest: CSV (3.1 to 4.x), text (3.0 and `legacy`) and JSON.

Quantities have the same name in all grammars: `mean_us`, `std_us`, `min_us`, `max_us`, `p50_us`, `p90_us`,
`p99_us`, `p9999_us`, `p999999_us`; `samples`, `samples_per_s`, `throughput_mbps`, `lost`, `lost_percent`;
`serialize_us`, `deserialize_us`, `total_us`; `host_cpu_percent` (of all cores of the host).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from k8sdds.model.trial import PUBLISHER, SUBSCRIBER

LATENCY, THROUGHPUT = "latency", "throughput"
"""Kinds of rows, and PerfTest's modes."""


@dataclass(frozen=True)
class Row:
    """A row: the results of an interval, or the summary of a payload."""

    kind: str
    summary: bool
    payload_bytes: int
    values: dict[str, float]


# --- CSV -------------------------------------------------------------------------------------------------

_COLUMNS = {
    "length (bytes)": "length", "sample size (bytes)": "length",
    "latency": "latency_us", "ave": "mean_us", "std": "std_us", "min": "min_us", "max": "max_us",
    "50%": "p50_us", "90%": "p90_us", "99%": "p99_us", "99.99%": "p9999_us", "99.9999%": "p999999_us",
    "serialization": "serialize_us", "deserialization": "deserialize_us", "total": "total_us",
    "total samples": "samples", "samples/s": "now_samples_per_s",
    "ave samples/s": "samples_per_s", "avg samples/s": "samples_per_s",
    "mbps": "now_mbps", "ave mbps": "throughput_mbps", "avg mbps": "throughput_mbps",
    "lost samples": "lost", "lost samples (%)": "lost_percent", "cpu (%)": "host_cpu_percent",
}  # fmt: skip
_UNIT = re.compile(r"\s*\((us|µs|μs|ns)\)$")
_NUMBER = re.compile(r"\s*(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)\s*")
_LENGTH = re.compile(r"\s*([0-9]{1,10})\s*")

_LATENCY_SUMMARY = ("length", "mean_us", "std_us", "min_us", "max_us", "p50_us", "p90_us", "p99_us",
                    "p9999_us", "p999999_us")  # fmt: skip
_THROUGHPUT_SUMMARY = ("length", "samples", "samples_per_s", "throughput_mbps", "lost", "lost_percent")
_LATENCY_INTERVAL = ("length", "latency_us", "mean_us", "std_us", "min_us", "max_us")
_THROUGHPUT_INTERVAL = ("length", "samples", "now_samples_per_s", "samples_per_s", "now_mbps",
                        "throughput_mbps", "lost", "lost_percent")  # fmt: skip
_SERIALIZATION = ("serialize_us", "deserialize_us", "total_us")
_CPU_COLUMN = ("host_cpu_percent",)
_LATENCY_TAILS = ((), _CPU_COLUMN, _SERIALIZATION, _SERIALIZATION + _CPU_COLUMN)
_FORMS = {
    form + tail: (kind, summary)
    for form, kind, summary, tails in (
        (_LATENCY_SUMMARY, LATENCY, True, _LATENCY_TAILS),
        (_THROUGHPUT_SUMMARY, THROUGHPUT, True, ((), _CPU_COLUMN)),
        (_LATENCY_INTERVAL, LATENCY, False, _LATENCY_TAILS),
        (_THROUGHPUT_INTERVAL, THROUGHPUT, False, ((), _CPU_COLUMN)),
    )
    for tail in tails
}
"""The columns of a table, with those that options of PerfTest add: (kind, whether its rows are summaries)."""


@dataclass(frozen=True)
class Header:
    """The header of a CSV table: its columns in order, and the kind of its rows."""

    kind: str
    summary: bool
    columns: tuple[str, ...]
    nanoseconds: frozenset[str] = frozenset()

    def row(self, line: str) -> Row | None:
        """Parse a complete row of this table. Return None if the line is not such a row."""
        fields = line.split(",")
        if len(fields) != len(self.columns):
            return None
        return _row(self.kind, self.summary, dict(zip(self.columns, fields, strict=True)), self.nanoseconds)


def header(line: str) -> Header | None:
    """Parse a header. Return None if the line is not a complete header."""
    if "(Bytes)" not in line:
        return None
    columns, nanoseconds = [], set()
    for title in line.split(","):
        title = title.strip()
        unit = _UNIT.search(title)
        name = _COLUMNS.get(_UNIT.sub("", title).lower())
        if name is None or name.endswith("_us") != bool(unit):
            return None
        columns.append(name)
        if unit and unit[1] == "ns":
            nanoseconds.add(name)
    form = _FORMS.get(tuple(columns))
    return Header(*form, tuple(columns), frozenset(nanoseconds)) if form else None


def headless(line: str, role: str | None) -> Row | None:
    """Parse a CSV row without a header (`-noOutputHeaders`) by its number of fields. Return None if ambiguous."""
    fields = line.split(",")
    if not all(_NUMBER.fullmatch(field) for field in fields):
        return None
    kind = {PUBLISHER: LATENCY, SUBSCRIBER: THROUGHPUT}.get(role or "")
    # A row with seven fields is either a latency with CPU or a throughput; the role distinguishes them.
    fitting = [
        columns
        for columns, (form_kind, _) in _FORMS.items()
        if len(columns) == len(fields) and kind in (form_kind, None)
    ]
    if len(fitting) != 1:
        return None
    return _row(*_FORMS[fitting[0]], dict(zip(fitting[0], fields, strict=True)), frozenset())


def _row(kind: str, summary: bool, fields: dict[str, str], nanoseconds: frozenset[str]) -> Row | None:
    length = _LENGTH.fullmatch(fields["length"])
    if not length:
        return None
    values = {}
    for name, text in fields.items():
        match = _NUMBER.fullmatch(text)
        if not match:
            return None
        if name != "length":
            values[name] = float(match[1]) / (1000 if name in nanoseconds else 1)
    return Row(kind, summary, int(length[1]), values)


# --- text ------------------------------------------------------------------------------------------------

_N = r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)"
_CPU = rf"(?:\s+CPU:?\s*{_N}\s*(?:%|\(%\)))?\s*"


def _latencies(*names: str) -> str:
    return "".join(rf"\s+{re.escape(name)}\s+{_N}\s(us|ns)" for name in names)


_TEXT_LATENCY = re.compile(
    r"Length:\s*([0-9]{1,10})\s+Latency:"
    + _latencies("Ave", "Std", "Min", "Max", "50%", "90%", "99%", "99.99%", "99.9999%") + _CPU
)  # fmt: skip
_TEXT_THROUGHPUT = re.compile(
    rf"Length:\s*([0-9]{{1,10}})\s+Packets:\s*{_N}\s+Packets/s\(ave\):\s*{_N}\s+Mbps\(ave\):\s*{_N}"
    rf"\s+Lost:\s*{_N}\s*\(\s*{_N}%\){_CPU}"
)
_TEXT_INTERVAL = re.compile(
    rf"One[- ][Ww]ay Latency:\s*{_N}\s(?:us|ns)\s+Ave\s.*\s(?:us|ns){_CPU}"
    rf"|Packets:\s*{_N}\s+Packets/s:\s*{_N}\s+Packets/s\(ave\):.*%\){_CPU}"
)
_BEGIN = ("Length:", "Packets:", "One-Way Latency:", "One-way Latency:", "One way Latency:")


def text_row(line: str) -> Row | None:
    """Parse a complete row in the text format (3.0, legacy). Return None if the line is not such a row."""
    if not line.startswith(_BEGIN):
        return None
    if match := _TEXT_LATENCY.fullmatch(line):
        length, *rest = match.groups()
        *pairs, cpu = rest
        values = {
            name: float(number) / (1000 if unit == "ns" else 1)
            for name, number, unit in zip(_LATENCY_SUMMARY[1:], pairs[::2], pairs[1::2], strict=True)
        }
        return Row(LATENCY, True, int(length), values | _cpu(cpu))
    if match := _TEXT_THROUGHPUT.fullmatch(line):
        length, *numbers, cpu = match.groups()
        values = dict(zip(_THROUGHPUT_SUMMARY[1:], map(float, numbers), strict=True))
        return Row(THROUGHPUT, True, int(length), values | _cpu(cpu))
    if _TEXT_INTERVAL.fullmatch(line):
        return Row(LATENCY if line.startswith("One") else THROUGHPUT, False, 0, {})
    return None


def _cpu(text: str | None) -> dict[str, float]:
    return {} if text is None else {"host_cpu_percent": float(text)}


def looks_torn(line: str) -> bool:
    """Return whether a line is an incomplete row, because another process wrote into it."""
    return bool(re.match(r"Length:\s+[0-9]|\s{2,}[0-9]{1,10},\s", line))


# --- JSON ------------------------------------------------------------------------------------------------

_JSON = {
    "latency_ave": "mean_us", "latency_std": "std_us", "latency_min": "min_us", "latency_max": "max_us",
    "latency_50": "p50_us", "latency_90": "p90_us", "latency_99": "p99_us", "latency_99.99": "p9999_us",
    "latency_99.9999": "p999999_us", "serialize": "serialize_us", "deserialize": "deserialize_us",
    "total_s": "total_us", "packets": "samples", "packets/sAve": "samples_per_s",
    "packets/s_ave": "samples_per_s", "mbpsAve": "throughput_mbps", "mbps_ave": "throughput_mbps",
    "lost": "lost", "lostPercent": "lost_percent", "lost_percent": "lost_percent",
    "cpu": "host_cpu_percent", "CPU": "host_cpu_percent",
}  # fmt: skip


def json_row(test: dict[str, Any]) -> Row | None:
    """Return the summary from a parsed JSON object, or None if it is missing or incomplete."""
    length, summary = test.get("length"), test.get("summary")
    if not isinstance(length, int) or not _whole(length) or not isinstance(summary, dict):
        return None
    values = {
        _JSON[key]: float(value) for key, value in summary.items() if key in _JSON and _is_number(value)
    }
    for kind, needed in ((LATENCY, _LATENCY_SUMMARY[1:]), (THROUGHPUT, _THROUGHPUT_SUMMARY[1:])):
        if all(name in values for name in needed):
            return Row(kind, True, length, values)
    return None


def delays(one_way_ns: dict[str, Any]) -> dict[str, float]:
    """Return the one-way delays in the JSON output of k8sdds-perftest as `delay_QUANTITY_us`."""
    return {f"delay_{key}_us": value / 1000 for key, value in one_way_ns.items() if _is_number(value)}


def json_intervals(test: dict[str, Any]) -> int:
    """Return the number of intervals in a parsed JSON object."""
    intervals = test.get("intervals")
    return len(intervals) if isinstance(intervals, list) else 0


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # A very large integer cannot be converted to a float.
    return abs(value) < 1e18 and math.isfinite(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**10


# --- plausibility ----------------------------------------------------------------------------------------

ROUNDING_MBPS = 0.051
"""Tolerance for rates in Mbit/s, which PerfTest prints with one decimal."""


def implausible(kind: str, payload_bytes: int, values: dict[str, float]) -> str | None:
    """Return why the numbers of a summary contradict each other, for example after a damaged digit, or None."""
    if any(value < 0 for value in values.values()):
        return "a negative number"
    if kind == LATENCY:
        order = ("min_us", "p50_us", "p90_us", "p99_us", "p9999_us", "p999999_us", "max_us")
        known = [(name, values[name]) for name in order if name in values]
        for (low, a), (high, b) in pairwise(known):
            if a > b:
                return f"{low} {a:g} is above {high} {b:g}"
        # Minimum and maximum are printed rounded down, the mean may be rounded up.
        if not values["min_us"] - 1 <= values["mean_us"] <= values["max_us"] + 1:
            return f"a mean of {values['mean_us']:g} outside {values['min_us']:g} to {values['max_us']:g}"
        return None
    rate, mbps = values["samples_per_s"], values["throughput_mbps"]
    # The rate is printed without decimals.
    lowest, highest = (8e-6 * payload_bytes * r for r in (max(rate - 1, 0), rate + 1))
    if not lowest - ROUNDING_MBPS <= mbps <= highest + ROUNDING_MBPS:
        return f"{rate:g} samples/s of {payload_bytes} bytes are not {mbps:g} Mbit/s"
    if values["lost_percent"] > 100:
        return f"{values['lost_percent']:g} % lost"
    return None
