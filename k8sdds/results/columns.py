"""Declare columns of trials.jsonl as fields of a model, and check values that are read for them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from k8sdds.system.shapes import LIMIT
from k8sdds.system.strict import MAX_RATE_MBIT

Kind = Literal["text", "integer", "number", "flag", "object", "list"]
Better = Literal["higher", "lower"]
Scale = Literal["log", "linear", "exact"]

GROUPS = (
    "identity", "cell", "attempt", "validity", "throughput", "latency", "delay", "buffer delay", "CPU",
    "cost", "pod start",
    "memory", "discovery", "samples", "evidence",
)  # fmt: skip
"""Groups of columns, in the order in which the documentation and reports show them."""

MAX_TEXT = 2000
"""Most characters of a text in a record that is read. Reasons contain the last line of a log at most."""

BOUNDS = {
    "Mbit/s": MAX_RATE_MBIT, "samples/s": 1e9, "s": 1e7, "ms": 1e10, "µs": 1e13, "%": 101, "% of all cores": 200,
    "% of one core": 100 * 4096, "% of the offered rate": 1e4, "bytes": 2.0**50,
}  # fmt: skip
"""Largest value that is physically possible, by unit: there are at most 4096 cores; 10^7 s are 115 days; shares can
exceed 100 % because the kernel counts CPU time in ticks. No value of a record is negative."""
LARGEST = 1e15
"""Largest value of a number in any other unit."""
SHARES = ("%", "% of all cores", "% of the offered rate")
"""Units of shares."""


@dataclass(frozen=True)
class Column:
    """One key of trials.jsonl."""

    name: str
    kind: Kind
    group: str
    description: str
    source: str
    """The component that provides the value, such as the supervisor."""
    only: str = ""
    """The kind of trials that have this key; empty if all trials have it."""


@dataclass(frozen=True)
class Metric(Column):
    """A measured quantity that reports show and `k8sdds compare` compares."""

    title: str = ""
    """Short name for table headers and figure titles."""
    unit: str = ""
    better: Better = "lower"
    scale: Scale = "log"
    """How values are averaged: `log` (geometric mean), `linear` (shares and counts that may be 0), or `exact`
    (counts without spread: compared directly, without statistics)."""
    since: int = 1
    """The schema of the record with which the definition last changed. `k8sdds compare` compares no value of an
    older definition with one of a newer."""
    censored: bool = False
    """Whether a trial can end before it has the value, which is then longer than what was measured: `missing` has the
    reason. No mean is computed of the other repetitions, because it would be that of the fastest."""

    @property
    def log(self) -> bool:
        """Whether values are averaged and compared on the log scale."""
        return self.scale == "log"

    @property
    def gain(self) -> bool:
        """Whether higher values are better: the overhead is then 1 - x/b, otherwise x/b - 1."""
        return self.better == "higher"

    def possible(
        self, value: float, low: float | None, high: float | None
    ) -> tuple[float | None, float | None]:
        """Return the interval of a mean within what is possible: a share is from 0 to 100 %."""
        if low is None or high is None or self.unit not in SHARES:
            return low, high
        return max(low, 0.0), min(high, max(value, 100.0))

    @property
    def exact(self) -> bool:
        """Whether this is a count without spread."""
        return self.scale == "exact"


def column(group: str, source: str, description: str, only: str = "") -> Any:
    """Declare a column that is not compared between networks. The arguments are the fields of `Column`."""
    return _field(description, {"group": group, "source": source, "only": only})


def metric(
    title: str,
    unit: str,
    group: str,
    source: str,
    description: str,
    better: Better = "lower",
    scale: Scale = "log",
    only: str = "",
    since: int = 1,
    censored: bool = False,
) -> Any:
    """Declare a metric. The arguments are the fields of `Metric`."""
    shown = {
        "title": title, "unit": unit, "better": better, "scale": scale, "since": since, "censored": censored,
    }  # fmt: skip
    return _field(description, {"group": group, "source": source, "only": only, **shown})


def _field(description: str, extra: dict[str, Any]) -> Any:
    return Field(default=None, description=description, json_schema_extra=extra)


def impossible(column: Column, value: Any) -> str | None:
    """Return why a value that was read from a file cannot be that of a column, or None."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        if column.kind not in ("number", "integer"):
            return f"{_shown(value)} is not a {column.kind}"
        largest = BOUNDS.get(column.unit, LARGEST) if isinstance(column, Metric) else LIMIT - 1
        if not 0 <= value <= largest:
            return f"{_shown(value)} is not possible: expected 0 to {largest:g}"
    if column.kind == "text" and isinstance(value, str):
        return None
    if column.kind == "object":
        return None if isinstance(value, str | dict) else f"{_shown(value)} is not an object"
    return f"{_shown(value)} is not a {column.kind}" if parsed(column.kind, value) is None else None


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < LIMIT else f"{Decimal(value):.3g}"
    return text if len(text) <= 40 else f"{text[:40]}…"


def parsed(kind: Kind, value: Any) -> Any:
    """Return a value read from a file, converted to a column's type, or None if it is of another type or too large."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LIMIT
    match kind:
        case "text":
            return None if value is None else str(value)[:MAX_TEXT]
        case "number":
            return float(value) if number else None
        case "integer":
            return int(value) if number and float(value).is_integer() else None
        case "flag":
            return value if isinstance(value, bool) else None
        case "list":
            return [str(item)[:MAX_TEXT] for item in value] if isinstance(value, list) else None
        case _:
            return value


def columns_of(model: type[BaseModel]) -> dict[str, Column]:
    """Return the columns that a model declares, by key, in the order of its fields."""
    columns = (_column(field.alias or name, field) for name, field in model.model_fields.items())
    return {column.name: column for column in columns}


def _column(name: str, field: FieldInfo) -> Column:
    extra = field.json_schema_extra
    assert isinstance(extra, dict) and field.description
    values: dict[str, Any] = {
        "name": name, "kind": _kind(field.annotation), "description": field.description, **extra
    }  # fmt: skip
    return Metric(**values) if "unit" in extra else Column(**values)


def _kind(annotation: Any) -> Kind:
    types = {get_origin(part) or part for part in get_args(annotation) or (annotation,)} - {NoneType}
    if get_origin(annotation) in (list, dict):
        types = {get_origin(annotation)}
    kinds: dict[frozenset[Any], Kind] = {
        frozenset({str}): "text", frozenset({int}): "integer", frozenset({float}): "number",
        frozenset({bool}): "flag", frozenset({list}): "list",
    }  # fmt: skip
    return kinds.get(frozenset(types), "object")
