"""Write the CSV files of a report.

The files are UTF-8 with one header line. Column names contain units. An empty cell means null.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.analysis import background_cost, kubectl_top
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.report import profiles, run_tables
from k8sdds.report.content import Content
from k8sdds.report.settings import test_of
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

if TYPE_CHECKING:
    import pandas as pd

_KEY = ("network", "payload_bytes", "overhead_percent", "ci_low_percent", "ci_high_percent", "n", "baseline")
_OTHER_CONDITIONS = tuple(name for name in CONDITION if name != "payload_bytes")
OVERHEAD_COLUMNS = (*_KEY, *_OTHER_CONDITIONS, "smallest_detectable_percent", "includes_scheduling")
"""Columns of every overhead table; `network` contains the label of the network."""

INVALID_COLUMNS = (
    "trial_id", "attempt", "network_label", "test", "payload_bytes", "transport", "reliability",
    "subscribers", "repetition", "started_at", "reason",
)  # fmt: skip


def write(content: Content, folder: Path) -> list[Path]:
    """Write all tables to a folder and return their paths, the most important ones first.

    The overhead tables of the headline metrics are always written, even if they are empty. Other files are written
    only if there is data for them. docs/reference/report.md lists all files. Tables of an earlier report are removed.
    """
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    files = []
    for quantity in METRICS:
        rows = content.overheads[content.overheads["quantity"] == quantity]
        if quantity in HEADLINES:
            # A latency test also has a rate of samples, and a throughput test can have latencies; neither
            # is a result of that test.
            rows = rows[rows["test"].isin([test_of(quantity, content.tests), "unknown"])]
        if len(rows) or quantity in HEADLINES:
            files.append(_write(_overhead_table(content, rows), folder / f"{overhead_name(quantity)}.csv"))
    files += _write_run_tables(content, folder)
    contrasts = pd.DataFrame([row for quantity in HEADLINES for row in content.contrasts(quantity)])
    if len(contrasts):
        files.append(_write(contrasts.rename(columns={UNIT: "network"}), folder / "contrasts.csv"))
    if content.protections:
        protections = pd.DataFrame(content.protections).rename(columns={UNIT: "network"})
        files.append(_write(protections, folder / "protection_overhead.csv"))
    if content.capacities:
        files.append(
            _write(
                pd.DataFrame(content.capacities).rename(columns={UNIT: "network"}), folder / "capacity.csv"
            )
        )
        delays = [
            {"network": one.network} | row | {k: v for k, v in one.condition.items() if k not in row}
            for one in content.searches
            for row in one.delays
        ]
        files.append(_write(pd.DataFrame(delays), folder / "capacity_delays.csv"))
    if profile_rows := profiles.rows(content):
        files.append(_write(pd.DataFrame(profile_rows), folder / "profile.csv"))
    if content.limits:
        limits = pd.DataFrame(content.limits).rename(columns={UNIT: "network"})
        files.append(_write(limits, folder / "limit_shares.csv"))
    files.append(_write(content.levels.drop(columns="values"), folder / "levels.csv"))
    trials = content.table.assign(warnings=[json.dumps(texts) for texts in content.table["warnings"]])
    files.append(_write(trials, folder / "trials.csv"))
    blocks = background_cost.by_block(content.run)
    if blocks:
        columns = ["network", "block", *background_cost.COLUMNS[2:]]
        files.append(_write(pd.DataFrame(blocks)[columns], folder / "upkeep.csv"))
    readings = kubectl_top.readings(content.run)
    if readings:
        files.append(_write(pd.DataFrame(readings), folder / "tops.csv"))
    invalid = content.table.loc[~content.table["valid"], list(INVALID_COLUMNS)]
    files.append(_write(invalid, folder / "invalid.csv"))
    return files


def overhead_name(quantity: str) -> str:
    """Return the name of a quantity's overhead table: `latency_p90_overhead` for latency_p90_us."""
    for unit in ("_mbps", "_us", "_per_s", "_percent", "_bytes", "_s"):
        if quantity.endswith(unit):
            return quantity.removesuffix(unit) + "_overhead"
    return quantity + "_overhead"


def _write_run_tables(content: Content, folder: Path) -> list[Path]:
    """Write the headline overheads of every run, if the report contains tables per run."""
    if not run_tables.has_run_tables(content):
        return []
    overheads = content.overheads_by_repetition.assign(run=lambda table: table["repetition"] + 1)
    files = []
    for quantity in HEADLINES:
        rows = overheads[
            (overheads["quantity"] == quantity) & (overheads["test"] == test_of(quantity, content.tests))
        ]
        if len(rows):
            table = _overhead_table(content, rows, ("run",))
            files.append(_write(table, folder / f"{overhead_name(quantity)}_by_run.csv"))
    return files


def _overhead_table(content: Content, rows: pd.DataFrame, first: tuple[str, ...] = ()) -> pd.DataFrame:
    table = rows.rename(columns={UNIT: "network", "detectable_percent": "smallest_detectable_percent"})
    order = {label: position for position, label in enumerate(content.networks)}
    table = table.sort_values(
        [*first, *_OTHER_CONDITIONS, "network", "payload_bytes"],
        key=lambda column: column.map(order) if column.name == "network" else column.astype(str)
        if column.name != "payload_bytes" else column.astype(float),
        kind="stable",
    )  # fmt: skip
    return table[[*first, *OVERHEAD_COLUMNS]]


def _write(table: pd.DataFrame, path: Path) -> Path:
    # Ten significant digits: more than the precision of any measurement, and still readable.
    table.to_csv(path, index=False, float_format="%.10g", lineterminator="\n")
    return path
