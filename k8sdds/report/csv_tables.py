"""Write the CSV files of a report.

The files are UTF-8 with one header line. Column names contain units. An empty cell means null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from k8sdds.analysis import background_cost, flows, missing
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.report import export, fact_tables, profiles
from k8sdds.report.content import Content
from k8sdds.results import tidy
from k8sdds.results.metrics import METRICS
from k8sdds.system.files import write_atomically
from k8sdds.system.grouping import Row
from k8sdds.workloads import HEADLINES, of_metric

_KEY = ("network", "payload_bytes", "overhead_percent", "ci_low_percent", "ci_high_percent", "n", "baseline")
_OTHER_CONDITIONS = tuple(name for name in CONDITION if name != "payload_bytes")
OVERHEAD_COLUMNS = (*_KEY, *_OTHER_CONDITIONS, "smallest_detectable_percent", "includes_scheduling")
"""Columns of every overhead table; `network` contains the label of the network."""

INVALID_COLUMNS = (
    "trial_id", "attempt", "network_label", "test", "payload_bytes", "transport", "reliability",
    "subscribers", "repetition", "started_at", "reason",
)  # fmt: skip
ALWAYS = {*_KEY, UNIT, "ci_low", "ci_high"}
"""Columns that a table has even if they are empty."""


def write(content: Content, folder: Path) -> list[Path]:
    """Write all tables to a folder and return their paths. Tables of an earlier report are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    written = {folder / name: text for name, text in texts(content).items()}
    for path, text in written.items():
        write_atomically(path, text)
    return list(written)


def texts(content: Content) -> dict[str, str]:
    """Return the content of all files by name; docs/reference/report.md lists them."""
    return {f"{name}.csv": export.to_csv(rows) for name, rows in _without_constants(_tables(content)).items()}


def _tables(content: Content) -> dict[str, list[Row]]:
    """Return the rows of every table that has rows, the most important tables first."""
    overheads = content.overheads
    found: dict[str, list[Row]] = {}
    for quantity in METRICS:
        rows = [row for row in overheads if row["quantity"] == quantity]
        if quantity in HEADLINES:
            # A latency test also has a rate of samples, and a throughput test can have latencies; neither
            # is a result of that test.
            tests = (of_metric(quantity, content.tests), "unknown")
            rows = [row for row in rows if row["test"] in tests]
        found[overhead_name(quantity)] = _overheads(content, rows)
    found |= _run_tables(content) | {
        "contrasts": _named(row for quantity in HEADLINES for row in content.contrasts(quantity)),
        "protection_overhead": _named(content.protections),
        "capacity": _named(content.capacities),
        "capacity_delays": [
            {"network": one.network} | row | {k: v for k, v in one.condition.items() if k not in row}
            for one in content.searches
            for row in one.delays
        ],
        "profile": profiles.rows(content),
        "limit_shares": _named(content.limits),
        "flows": flows.table(content.best, content.run.path.resolve().name),
        "levels": [{name: row[name] for name in row if name != "values"} for row in content.levels],
        "missing": _named(missing.by_network(content.best)),
        "trials": [
            tidy.with_text(row) | {"warnings": json.dumps(row["warnings"])} for row in content.attempts
        ],
        "paths": fact_tables.path_rows(content),
        "upkeep": background_cost.by_block(content.run),
        "tops": background_cost.top_readings(content.run),
        "invalid": [{name: row[name] for name in INVALID_COLUMNS} for row in content.invalid],
    }
    return {name: rows for name, rows in found.items() if rows}


def _without_constants(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Return tables without empty columns, and with the conditions that all rows share in the table `conditions`."""
    found, conditions = {}, []
    for name, rows in tables.items():
        columns = dict.fromkeys(column for row in rows for column in row)
        values = {column: {str(row.get(column)) for row in rows} for column in columns}
        empty = {column for column in values if values[column] <= {"None", ""}} - ALWAYS
        shared = {column for column in _OTHER_CONDITIONS if len(values.get(column, ())) == 1} - empty
        conditions.append(
            {"table": name} | {column: rows[0].get(column) for column in columns if column in shared}
        )
        kept = [column for column in columns if column not in empty | shared]
        found[name] = [{column: row.get(column) for column in kept} for row in rows]
    return found | {"conditions": conditions} if found else {}


def overhead_name(quantity: str) -> str:
    """Return the name of a quantity's overhead table: `latency_p90_overhead` for latency_p90_us."""
    return re.sub("_(mbps|us|per_s|percent|bytes|s)$", "", quantity) + "_overhead"


def _run_tables(content: Content) -> dict[str, list[Row]]:
    """Return the headline overheads of every run, if the report contains tables per run."""
    if not content.has_single_runs:
        return {}
    rows = [row | {"run": row["repetition"] + 1} for row in content.overheads_by_repetition]
    tests = {name: of_metric(name, content.tests) for name in HEADLINES}
    return {
        f"{overhead_name(name)}_by_run": _overheads(
            content, [row for row in rows if (row["quantity"], row["test"]) == (name, test)], ("run",)
        )
        for name, test in tests.items()
    }


def _overheads(content: Content, overheads: Iterable[Row], first: tuple[str, ...] = ()) -> list[Row]:
    order = {label: position for position, label in enumerate(content.networks)}

    def place(row: Row) -> tuple[Any, ...]:
        return (
            *(str(row[name]) for name in (*first, *_OTHER_CONDITIONS)),
            order.get(row["network"], len(order)), row["payload_bytes"] or 0,
        )  # fmt: skip

    rows = [row | {"smallest_detectable_percent": row["detectable_percent"]} for row in _named(overheads)]
    return [{name: row[name] for name in (*first, *OVERHEAD_COLUMNS)} for row in sorted(rows, key=place)]


def _named(rows: Iterable[Row]) -> list[Row]:
    """Return rows whose label of the network is called `network`."""
    return [{"network" if name == UNIT else name: value for name, value in row.items()} for row in rows]
