"""Tabulate the attempts of a run folder: one row per attempt, with typed columns."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from k8sdds.model.axis import compact
from k8sdds.model.trial import AXES
from k8sdds.results.columns import Kind, parsed
from k8sdds.results.histograms import NOTHING_ARRIVED, VALUES_BEYOND
from k8sdds.results.metrics import METRICS
from k8sdds.results.record import COLUMNS as RECORD_COLUMNS
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.faults import not_installed
from k8sdds.system.files import replacing
from k8sdds.system.memory import require_address_space

if TYPE_CHECKING:
    import pandas as pd

_KINDS: tuple[Kind, ...] = ("text", "object", "integer", "number", "flag", "list")

COLUMNS = tuple(name for kind in _KINDS for name, column in RECORD_COLUMNS.items() if column.kind == kind)
"""Every key in docs/reference/run-folder.md, grouped by type. An object becomes a column of compact JSON text, so
that rows can be grouped by it. Each number in `link` and `drops` also has a column of its own, such as
`link_rate_mbit`."""

_UNRECORDED = {name: axis.recorded_default for name, axis in AXES.items() if axis.since}
"""Settings that a record does not have if an earlier version wrote it or if they have their defaults, and the values
with which it was measured."""

_FLATTENED = ("link", "drops")
_FLATTENED_PREFIXES = tuple(f"{name}_" for name in _FLATTENED)


def frame(run: RunFolder, parquet: bool = False) -> pd.DataFrame:
    """Return one row per attempt, in the order in which they ended, with at least the columns in COLUMNS.

    Missing keys and values of the wrong type are null, and unknown keys become additional columns. The column
    types are Int64 for integers, float64 for numbers, boolean for flags, and object for everything else. `valid`
    is never null: an attempt that is not marked as valid is not valid. With `parquet`, the table is also written
    to derived/trials.parquet if pyarrow is installed.
    """
    require_address_space()
    import pandas as pd

    rows = [_row(attempt) for attempt in run.attempts()]
    names = [*COLUMNS, *sorted({name for row in rows for name in row} - set(COLUMNS))]
    columns: dict[str, Any] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        match _kind(name):
            case "integer":
                columns[name] = pd.array(values, dtype="Int64")
            case "number":
                numbers = [float("nan") if value is None else value for value in values]
                columns[name] = pd.array(numbers, dtype="float64")
            case "flag" if name == "valid":
                columns[name] = pd.array([value is True for value in values], dtype="bool")
            case "flag":
                columns[name] = pd.array(values, dtype="boolean")
            case _:
                columns[name] = pd.Series(values, dtype="object")
    table = pd.DataFrame(columns)
    if parquet and not_installed("parquet") is None:
        with replacing(run.derived / "trials.parquet") as unfinished:
            table.to_parquet(unfinished, index=False)
    return table


ELSEWHERE = "in another repetition, "
"""Start of the reason why `best` leaves a metric null that a trial has: another trial of its cell does not have it."""
SEARCHES = ("capacity",)
"""Tests whose trials are probes of a search. Their result is that of the search, never a mean of trials."""


def best(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last valid attempt of each trial, for use in statistics. Same columns; the index starts at 0.

    Profiled trials and probes of a search are left out. A percentile that has too few episodes of values above it in
    one trial is null in all trials of its cell: otherwise, repetitions without a stall would count, and those with
    one would not. The same is true of a time that one trial ended before, or in which no sample arrived: the others are
    the fastest.
    """
    trials = _last_valid(table[~table["test"].isin(SEARCHES)])
    few, censored = _few_episodes(trials), _censored(trials)
    for metric in few | censored:
        reasons = few.get(metric, {}) | censored.get(metric, {})
        others = trials["cell_id"].isin(reasons) & trials[metric].notna()
        if not others.any():
            continue
        trials.loc[others, metric] = None
        trials.loc[others, "missing"] = [
            compact({**json.loads(missing or "{}"), metric: f"{ELSEWHERE}{reasons[cell]}"})
            for cell, missing in trials.loc[others, ["cell_id", "missing"]].itertuples(index=False)
        ]
    return trials


def _few_episodes(trials: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return the percentiles that trials with too few episodes have: by metric and cell, the first reason."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    counted = trials.loc[trials["tail_episodes"].notna(), ["cell_id", "tail_episodes", "missing"]]
    for cell, episodes, missing in counted.itertuples(index=False):
        reasons = json.loads(missing or "{}")
        for metric, number in json.loads(episodes).items():
            if number < VALUES_BEYOND and metric in METRICS:
                found[metric].setdefault(cell, reasons.get(metric, f"{number} episodes above it"))
    return found


def is_censored(metric: str, reason: str) -> bool:
    """Return whether a trial without a metric for this reason leaves no mean of the other repetitions."""
    return METRICS[metric].censored or reason == NOTHING_ARRIVED


def _censored(trials: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return the times that trials ended before, or without samples: by metric and cell, the first reason."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    noted = trials.loc[trials["missing"].notna(), ["cell_id", "missing"]]
    for cell, missing in noted.itertuples(index=False):
        for metric, reason in json.loads(missing).items():
            if metric in METRICS and is_censored(metric, reason):
                found[metric].setdefault(cell, reason)
    return found


def probes(table: pd.DataFrame) -> pd.DataFrame:
    """Return the same of the probes of searches."""
    return _last_valid(table[table["test"].isin(SEARCHES)])


def _last_valid(table: pd.DataFrame) -> pd.DataFrame:
    valid = table[table["valid"] & ~profiled(table)]
    # The sort is stable, so unnumbered attempts stay in the order in which they were written.
    valid = valid.sort_values("attempt", kind="stable", na_position="first")
    return valid.drop_duplicates("trial_id", keep="last").sort_index().reset_index(drop=True)


def profiled(table: pd.DataFrame) -> pd.Series[bool]:
    """Return for each attempt whether it belongs to a profiled trial."""
    return table["profiled"].fillna(False).astype(bool)


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
            row[key] = compact(value)
        elif key != "warnings" and kind in ("object", "list") and not isinstance(row[key], str | None):
            # A column has one type, also if a key that k8sdds does not know has values of several types.
            row[key] = json.dumps(value, ensure_ascii=False)
    # Comparisons need a network and a trial id, even in folders that k8sdds did not write.
    row["network_label"] = row.get("network_label") or row.get("network") or "unnamed"
    row["test"] = row.get("test") or "unknown"
    row |= {name: value for name, value in _UNRECORDED.items() if row.get(name) is None}
    row["trial_id"] = row.get("trial_id") or f"{row.get('cell_id')}-r{row.get('repetition')}"
    row["warnings"] = row.get("warnings") or []
    return row
