"""Tabulate the attempts of a run folder: one row per attempt, with typed columns."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from k8sdds.model.axis import compact
from k8sdds.model.options import SEARCHES
from k8sdds.model.reason import Reason
from k8sdds.model.trial import AXES
from k8sdds.results.columns import Kind, parsed
from k8sdds.results.histograms import NOTHING_ARRIVED
from k8sdds.results.metrics import METRICS
from k8sdds.results.record import COLUMNS as RECORD_COLUMNS
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.faults import not_installed
from k8sdds.system.files import replacing
from k8sdds.system.grouping import Row
from k8sdds.system.memory import require_address_space

_KINDS: tuple[Kind, ...] = ("text", "object", "integer", "number", "flag", "list")

COLUMNS = tuple(name for kind in _KINDS for name, column in RECORD_COLUMNS.items() if column.kind == kind)
"""Every key in docs/reference/run-folder.md, grouped by type. An object that is a setting becomes compact JSON text, so
that rows can be grouped by it. Each number in `link` and `drops` also has a column of its own, such as
`link_rate_mbit`."""

_UNRECORDED = {name: axis.recorded_default for name, axis in AXES.items() if axis.since}
"""Settings that a record does not have if an earlier version wrote it or if they have their defaults, and the values
with which it was measured."""

_FLATTENED = ("link", "drops")
_FLATTENED_PREFIXES = tuple(f"{name}_" for name in _FLATTENED)


def rows(run: RunFolder) -> list[Row]:
    """Return one row per attempt, in the order in which they ended, with at least the columns in COLUMNS.

    Missing keys and values of the wrong type are None, and unknown keys become additional columns. `valid` is never
    None: an attempt that is not marked as valid is not valid.
    """
    require_address_space()
    return of(run.attempts())


def of(attempts: Iterable[dict[str, Any]]) -> list[Row]:
    """Return the rows of some records, see `rows`."""
    found = [_row(attempt) for attempt in attempts]
    names = [*COLUMNS, *sorted({name for row in found for name in row} - set(COLUMNS))]
    return [{name: row.get(name) for name in names} for row in found]


def write_parquet(run: RunFolder, rows: Sequence[Row]) -> None:
    """Write the rows to derived/trials.parquet if pyarrow is installed; a column has one type, and objects are JSON."""
    if not_installed("parquet") is not None:
        return
    import pandas as pd

    types = {"integer": "Int64", "number": "float64", "flag": "boolean"}
    names = rows[0] if rows else COLUMNS
    plain = [with_text(row) for row in rows]
    table = pd.DataFrame({
        name: pd.Series([row[name] for row in plain], dtype=types.get(_kind(name), "object")) for name in names
    })  # fmt: skip
    with replacing(run.derived / "trials.parquet") as unfinished:
        table.to_parquet(unfinished, index=False)


def with_text(row: Row) -> Row:
    """Return a row in which objects are compact JSON."""
    return {name: compact(value) if isinstance(value, dict) else value for name, value in row.items()}


ELSEWHERE = "in another repetition, "
"""Start of the reason why `best` leaves a metric null that a trial has: another trial of its cell does not have it."""


def best(rows: Sequence[Row]) -> list[Row]:
    """Return the last valid attempt of each trial, for use in statistics, in the order of the rows.

    Profiled trials and probes of a search are left out. A metric that is null in one trial, with a reason in `missing`,
    is None in all trials of its cell: the others are those without a stall, with less loss, or the fastest ones.
    """
    return comparable(_last_valid(row for row in rows if row["test"] not in SEARCHES))


def comparable(trials: Sequence[Row]) -> list[Row]:
    """Return trials, or what each has of one flow, without the metrics that another one of its cell does not have."""
    reasons = _reasons_of_cells(trials)
    return [_without(row, reasons.get(row["cell_id"], {})) for row in trials]


def _reasons_of_cells(trials: Sequence[Row]) -> dict[str | None, dict[str, str]]:
    """Return why metrics of a cell have no mean, by cell and metric: the reason of the first trial without a value."""
    found: dict[str | None, dict[str, str]] = defaultdict(dict)
    for row in trials:
        for metric, reason in (row["missing"] or {}).items():
            if metric in METRICS:
                found[row["cell_id"]].setdefault(metric, reason)
    return found


def _without(row: Row, reasons: Mapping[str, str]) -> Row:
    """Return a trial without metrics that other trials of its cell do not have."""
    found = {metric: reason for metric, reason in reasons.items() if row[metric] is not None}
    if not found:
        return row
    noted = {metric: f"{ELSEWHERE}{reason}" for metric, reason in found.items()}
    return row | dict.fromkeys(found) | {"missing": (row["missing"] or {}) | noted}


def without_valid(rows: Iterable[Row]) -> list[Row]:
    """Return the last attempt of each trial that has no valid one, of those whose reason counts (`Reason.counts`).

    They show that a trial does not work. The other attempts show nothing about it.
    """
    measured = [row for row in rows if not row["profiled"]]
    valid = {row["trial_id"] for row in measured if row["valid"]}
    invalid = (row for row in measured if row["trial_id"] not in valid)
    return list({row["trial_id"]: row for row in invalid if Reason.read(row["reason"]).counts}.values())


def is_unfinished_or_silent(metric: str, reason: str) -> bool:
    """Return whether a trial without a metric for this reason ended before the metric's event, or received no sample.

    Reports name these trials apart from those with too few values. Each of them leaves its cell without the metric,
    see `best`.
    """
    return METRICS[metric].censored or reason == NOTHING_ARRIVED


def probes(rows: Iterable[Row]) -> list[Row]:
    """Return the same of the probes of searches."""
    return _last_valid(row for row in rows if row["test"] in SEARCHES)


def _last_valid(rows: Iterable[Row]) -> list[Row]:
    valid = [row for row in rows if row["valid"] and not row["profiled"]]
    # The sort is stable, so unnumbered attempts stay in the order in which they were written.
    numbered = sorted(valid, key=lambda row: -1 if row["attempt"] is None else row["attempt"])
    last = {row["trial_id"]: row for row in numbered}
    return [row for row in valid if last[row["trial_id"]] is row]


def _kind(name: str) -> Kind:
    if name in RECORD_COLUMNS:
        return RECORD_COLUMNS[name].kind
    return "number" if name.startswith(_FLATTENED_PREFIXES) else "object"


def _row(attempt: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, value in attempt.items():
        if value is None:
            row[key] = None
            continue
        if key in _FLATTENED and isinstance(value, dict):
            row |= {
                f"{key}_{name}": parsed("number", item)
                for name, item in value.items()
                if isinstance(item, int | float | None)
            }
        kind = _kind(key)
        row[key] = parsed(kind, value)
        if isinstance(row[key], dict):
            is_observed = key in RECORD_COLUMNS and RECORD_COLUMNS[key].group != "cell"
            row[key] = value if is_observed else compact(value)
        elif key != "warnings" and kind in ("object", "list") and not isinstance(row[key], str | None):
            # A column has one type, also if a key that k8sdds does not know has values of several types.
            row[key] = json.dumps(value, ensure_ascii=False)
    # Comparisons need a network and a trial id, even in folders that k8sdds did not write.
    row["network_label"] = row.get("network_label") or row.get("network") or "unnamed"
    row["test"] = row.get("test") or "unknown"
    row |= {name: value for name, value in _UNRECORDED.items() if row.get(name) is None}
    row["trial_id"] = row.get("trial_id") or f"{row.get('cell_id')}-r{row.get('repetition')}"
    row["warnings"] = row.get("warnings") or []
    row["valid"] = row.get("valid") is True
    return row
