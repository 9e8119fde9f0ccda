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
from k8sdds.report.table import Cell, Table
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

_TITLE_COLUMNS = ("transport", "reliability", "publishers", "subscribers", "qos", "batch_bytes", "security")


@dataclass(frozen=True)
class RunTable:
    """The overheads of one quantity in one run: networks × payloads, in percent."""

    quantity: str
    repetition: int
    table: Table
    """The overheads with one decimal, as papers print them."""


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
    several_payloads = [one for one in all_tables if len(one.table.heads) > 2]
    return sorted(
        several_payloads, key=lambda one: (one.repetition, -len(one.table.heads) * (1 + len(one.table.rows)))
    )


def _table(content: Content, rows: list[Row]) -> RunTable:
    first = rows[0]
    payloads = sorted({row["payload_bytes"] for row in rows})
    cells = {(row[UNIT], row["payload_bytes"]): _one_decimal(row["overhead_percent"]) for row in rows}
    labels = content.ordered(label for label, _ in cells)
    setting = {name: first[name] for name in ("transport", "reliability", "subscribers")}
    setting |= {name: first[name] for name in ("batch_bytes", "security") if first[name] not in (0, "none")}
    texts = [[label, *(cells.get((label, size), "–") for size in payloads)] for label in labels]
    quantity, repetition = first["quantity"], first["repetition"]
    caption = (
        f"Run {repetition + 1}: {METRICS[quantity].title} overhead relative to {content.baseline} in %:"
        f" {conditions.describe(setting)}"
    )
    table = Table(caption, ["network", *map(payload, payloads)], [[*map(Cell, line)] for line in texts])
    return RunTable(quantity, repetition, table)


def _one_decimal(value: float | None) -> str:
    return "–" if value is None else formats.fixed(value, 1)
