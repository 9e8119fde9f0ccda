"""The CSV files of report/tables: plain, UTF-8, one header line, units in the names, empty for null."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.analysis import background_cost, kubectl_top
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.report import runs
from k8sdds.report.content import Content, home
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    import pandas as pd

_KEY = ("network", "payload_bytes", "overhead_percent", "ci_low_percent", "ci_high_percent", "n", "baseline")
_FURTHER = tuple(name for name in CONDITION if name != "payload_bytes")
OVERHEAD_COLUMNS = (*_KEY, *_FURTHER, "smallest_detectable_percent", "includes_scheduling")
"""Columns of every overhead table; `network` holds the network's label."""

MAIN = ("throughput_mbps", "latency_p90_us")
"""Quantities whose overhead tables always exist, each from its own test only."""

INVALID_COLUMNS = (
    "trial_id", "attempt", "network_label", "test", "payload_bytes", "transport", "reliability",
    "subscribers", "repetition", "started_at", "reason",
)  # fmt: skip


def write(content: Content, folder: Path) -> list[Path]:
    """Write all tables into `folder`; returns their paths, the main ones first.

    throughput_overhead.csv, latency_p90_overhead.csv and one such table for every other quantity that was
    compared, the main ones of imported data also run by run (…_by_run.csv); contrasts.csv where settings
    differ within networks; protection_overhead.csv where something protects; levels.csv; trials.csv (every
    attempt); invalid.csv; upkeep.csv and tops.csv where a cluster's nodes were read. The main tables exist
    even when empty; tables of an earlier report are removed.
    """
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    files = []
    for quantity in METRICS:
        rows = content.overheads[content.overheads["quantity"] == quantity]
        if quantity in MAIN:
            # A latency test also moves samples, and a throughput test may time some: not what these mean.
            rows = rows[rows["test"].isin([home(quantity), "unknown"])]
        if len(rows) or quantity in MAIN:
            files.append(_csv(_overheads(content, rows), folder / f"{overhead_name(quantity)}.csv"))
    files += _by_run(content, folder)
    contrasts = pd.DataFrame([row for quantity in MAIN for row in content.contrasts(quantity)])
    if len(contrasts):
        files.append(_csv(contrasts.rename(columns={UNIT: "network"}), folder / "contrasts.csv"))
    if content.protections:
        protected = pd.DataFrame(content.protections)
        files.append(_csv(protected.rename(columns={UNIT: "network"}), folder / "protection_overhead.csv"))
    files.append(_csv(content.levels.drop(columns="values"), folder / "levels.csv"))
    trials = content.table.assign(warnings=[json.dumps(texts) for texts in content.table["warnings"]])
    files.append(_csv(trials, folder / "trials.csv"))
    blocks = background_cost.by_block(content.run)
    if blocks:
        columns = ["network", "block", *background_cost.COLUMNS[2:]]
        files.append(_csv(pd.DataFrame(blocks)[columns], folder / "upkeep.csv"))
    shown = kubectl_top.readings(content.run)
    if shown:
        files.append(_csv(pd.DataFrame(shown), folder / "tops.csv"))
    invalid = content.table.loc[~content.table["valid"], list(INVALID_COLUMNS)]
    files.append(_csv(invalid, folder / "invalid.csv"))
    return files


def _by_run(content: Content, folder: Path) -> list[Path]:
    """One overhead table more for each main quantity: every repetition by itself."""
    if not runs.wanted(content):
        return []
    overheads = runs.by_repetition(content.best, content.baseline)
    overheads["run"] = overheads["repetition"] + 1
    files = []
    for quantity in MAIN:
        rows = overheads[(overheads["quantity"] == quantity) & (overheads["test"] == home(quantity))]
        if len(rows):
            table = _overheads(content, rows, ("run",))
            files.append(_csv(table, folder / f"{overhead_name(quantity)}_by_run.csv"))
    return files


def overhead_name(quantity: str) -> str:
    """`throughput_overhead` for throughput_mbps, `latency_p90_overhead` for latency_p90_us."""
    for unit in ("_mbps", "_us", "_per_s", "_percent", "_bytes", "_s"):
        if quantity.endswith(unit):
            return quantity.removesuffix(unit) + "_overhead"
    return quantity + "_overhead"


def _overheads(content: Content, rows: pd.DataFrame, first: tuple[str, ...] = ()) -> pd.DataFrame:
    table = rows.rename(columns={UNIT: "network", "detectable_percent": "smallest_detectable_percent"})
    order = {label: position for position, label in enumerate(content.networks)}
    table = table.sort_values(
        [*first, *_FURTHER, "network", "payload_bytes"],
        key=lambda column: column.map(order) if column.name == "network" else column.astype(str)
        if column.name != "payload_bytes" else column.astype(float),
        kind="stable",
    )  # fmt: skip
    return table[[*first, *OVERHEAD_COLUMNS]]


def _csv(table: pd.DataFrame, path: Path) -> Path:
    # Ten significant digits: more than was measured, few enough to read.
    table.to_csv(path, index=False, float_format="%.10g", lineterminator="\n")
    return path
