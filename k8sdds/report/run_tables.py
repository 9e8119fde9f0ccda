"""Build tables with the overheads of each repetition, as the tables of a paper print single runs.

The main tables of a report pair and average all repetitions. A published table is often a single run; these
tables contain the overheads of one repetition each, so that published numbers can be checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from k8sdds.analysis import conditions, overhead
from k8sdds.analysis.conditions import UNIT
from k8sdds.model.axis import payload
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.settings import Row, test_of
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

_TITLE_COLUMNS = ("transport", "reliability", "publishers", "subscribers", "qos", "batch_bytes", "security")


@dataclass(frozen=True)
class RunTable:
    """The overheads of one quantity in one run: networks × payloads, in percent."""

    quantity: str
    repetition: int
    title: str
    setting: str
    text: list[list[str]]
    """The cells, the head first, with one decimal as papers print it."""


def has_run_tables(content: Content) -> bool:
    """Return whether a report contains tables per run: all valid trials are imported. Campaigns plan runs together."""
    return (
        bool(content.baseline)
        and {row["testbed"] for row in content.best} - {None} <= {"imported"}
        and len(content.best) > 0
    )


def tables(content: Content) -> list[RunTable]:
    """Return the tables of the headline metrics per run, for all settings with several payloads."""
    if not has_run_tables(content):
        return []
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in overhead.plain_rows(content.overheads_by_repetition):
        if row["quantity"] in HEADLINES and row["test"] == test_of(row["quantity"], content.tests):
            key = (row["repetition"], *(row[name] for name in _TITLE_COLUMNS), row["quantity"])
            groups.setdefault(key, []).append(row)
    all_tables = [_table(content, rows) for rows in groups.values()]
    several_payloads = [table for table in all_tables if len(table.text[0]) > 2]
    return sorted(
        several_payloads, key=lambda table: (table.repetition, -len(table.text[0]) * len(table.text))
    )


def _table(content: Content, rows: list[Row]) -> RunTable:
    first = rows[0]
    payloads = sorted({row["payload_bytes"] for row in rows})
    cells = {(row[UNIT], row["payload_bytes"]): _one_decimal(row["overhead_percent"]) for row in rows}
    labels = [label for label in content.networks if any(label == measured for measured, _ in cells)]
    setting = {name: first[name] for name in ("transport", "reliability", "subscribers")}
    setting |= {name: first[name] for name in ("batch_bytes", "security") if first[name] not in (0, "none")}
    text = [["network", *map(payload, payloads)]]
    text += [[label, *(cells.get((label, size), "–") for size in payloads)] for label in labels]
    title = f"{METRICS[first['quantity']].title} overhead relative to {content.baseline} in %"
    repetition = first["repetition"]
    return RunTable(
        first["quantity"], repetition, f"Run {repetition + 1}: {title}", conditions.describe(setting), text
    )


def _one_decimal(value: float | None) -> str:
    return "–" if value is None else formats.fixed(value, 1)
