"""Tables of what protection costs: protected cells × payloads, one for each quantity and link."""

from __future__ import annotations

from typing import Any

from k8sdds.analysis import conditions
from k8sdds.analysis.conditions import UNIT, payload
from k8sdds.analysis.overhead import Row
from k8sdds.report import formats
from k8sdds.report.content import INTERVAL, Content, home
from k8sdds.results.metrics import METRICS

SHOWN = (
    "throughput_mbps", "latency_p90_us", "publisher_cpu_us_per_sample", "machine_cpu_ms_per_mb",
    "wire_bytes_per_payload_byte", "handshake_s",
)  # fmt: skip
SAME = ("link", "subscribers", "publishers", "middleware", "reliability", "transport")
"""What is the same within one table, and within one figure."""


def name_of(row: Row) -> str:
    """The network, with its level of DDS Security where there is one."""
    level = row["security"]
    return row[UNIT] if level in (None, "none") else f"{row[UNIT]} {level}"


def tables(content: Content) -> list[dict[str, Any]]:
    """Each with title, columns, rows of (name, what it is compared with, cells) and caption."""
    made = []
    for quantity in SHOWN:
        groups: dict[tuple, list[Row]] = {}
        for row in content.protections:
            if row["quantity"] == quantity and row["test"] == home(quantity):
                groups.setdefault(tuple(row[name] for name in SAME), []).append(row)
        for key, rows in sorted(groups.items(), key=lambda item: str(item[0])):
            made.append(_table(content, quantity, dict(zip(SAME, key, strict=True)), rows))
    return made


def _table(content: Content, quantity: str, same: dict[str, Any], rows: list[Row]) -> dict[str, Any]:
    sizes = sorted({row["payload_bytes"] for row in rows})
    cells = {(name_of(row), row["payload_bytes"]): row for row in rows}
    names = dict.fromkeys(name_of(row) for row in sorted(rows, key=lambda row: _order(content, row)))
    against = {name_of(row): row["against"] for row in rows}
    counts = formats.range_of([row["n"] for row in rows])
    return {
        "title": f"{formats.capital(METRICS[quantity].title)}: overhead of protection in %",
        "setting": conditions.describe(same),
        "columns": [payload(size) for size in sizes],
        "rows": [(name, against[name], [cells.get((name, size)) for size in sizes]) for name in names],
        "caption": f"{content.testbed} · n = {counts} · against the same network without protection, in the"
        f" same repetition; {INTERVAL}",
    }


def _order(content: Content, row: Row) -> tuple[int, str]:
    return content.networks.index(row[UNIT]), row["security"] or ""
