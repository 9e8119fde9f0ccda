"""Each repetition by itself: what published data say run by run, as the paper's tables print it.

A paper's table is often one run. The main tables of a report pair and average all repetitions; these hold
the overheads of one repetition each, by the same code, so that the published numbers can be found again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from k8sdds.analysis import conditions, overhead
from k8sdds.analysis.conditions import UNIT
from k8sdds.report import formats
from k8sdds.report.content import Content, Row, home
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd

MAIN = ("throughput_mbps", "latency_p90_us")
TESTBEDS = ("imported",)
"""Testbeds whose reports hold these: an own campaign plans its repetitions and is never one run."""

_TITLE_COLUMNS = ("transport", "reliability", "publishers", "subscribers", "qos", "batch_bytes", "security")


@dataclass(frozen=True)
class RunTable:
    """One quantity's overheads in one run: networks × payloads, in percent."""

    quantity: str
    repetition: int
    setting: str
    payloads: list[int]
    rows: list[tuple[str, list[float | None]]]
    baseline: str

    @property
    def title(self) -> str:
        """`Run 1: throughput overhead against host in %`."""
        words = METRICS[self.quantity].title
        return f"Run {self.repetition + 1}: {words} overhead against {self.baseline} in %"


def wanted(content: Content) -> bool:
    """Whether this report has them."""
    return (
        bool(content.baseline)
        and set(content.best["testbed"].dropna()) <= set(TESTBEDS)
        and len(content.best) > 0
    )


def by_repetition(best: pd.DataFrame, baseline: str | None) -> pd.DataFrame:
    """Overheads as `overhead.overheads` gives them, of every repetition alone; column `repetition` first."""
    import pandas as pd

    parts = []
    for repetition, rows in best.groupby("repetition", dropna=True):
        found = overhead.overheads(rows.reset_index(drop=True), baseline)
        found.insert(0, "repetition", int(repetition))
        parts.append(found)
    parts = [part for part in parts if len(part)]
    if not parts:
        return pd.DataFrame(columns=["repetition", *overhead.OVERHEAD_COLUMNS])
    return pd.concat(parts, ignore_index=True)


def tables(content: Content) -> list[RunTable]:
    """Main quantities, run by run, for every setting that was measured at several payloads."""
    if not wanted(content):
        return []
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in overhead.plain_rows(by_repetition(content.best, content.baseline)):
        if row["quantity"] in MAIN and row["test"] == home(row["quantity"]):
            place = (row["repetition"], *(row[name] for name in _TITLE_COLUMNS), row["quantity"])
            groups.setdefault(place, []).append(row)
    found = [_table(content, rows) for rows in groups.values()]
    several = [table for table in found if len(table.payloads) > 1]
    return sorted(several, key=lambda table: (table.repetition, -len(table.payloads) * len(table.rows)))


def _table(content: Content, rows: list[Row]) -> RunTable:
    first = rows[0]
    payloads = sorted({row["payload_bytes"] for row in rows})
    cells = {(row[UNIT], row["payload_bytes"]): row["overhead_percent"] for row in rows}
    labels = [label for label in content.networks if any(label == of for of, _ in cells)]
    shown = {name: first[name] for name in ("transport", "reliability", "subscribers")}
    more = {name: first[name] for name in ("batch_bytes", "security") if first[name] not in (0, "none")}
    return RunTable(
        first["quantity"], first["repetition"], conditions.describe(shown | more), payloads,
        [(label, [cells.get((label, payload)) for payload in payloads]) for label in labels],
        str(content.baseline),
    )  # fmt: skip


def text(table: RunTable) -> list[list[str]]:
    """A table as text, head first, with one decimal as papers print it."""
    head = ["network", *(conditions.payload(payload) for payload in table.payloads)]
    return [head, *([label, *(one_decimal(value) for value in values)] for label, values in table.rows)]


def one_decimal(value: float | None) -> str:
    """`-0.1`, `45.6`; `–` where there is none. Never `-0.0`."""
    return "–" if value is None else formats.plain(value, 1)
