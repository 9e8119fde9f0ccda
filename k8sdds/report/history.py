"""Show the history of an experiment as a terminal table, CSV, JSON, HTML with figures, JUnit XML and OpenMetrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from k8sdds.analysis.history import COLUMNS, FALSE_ALARMS, History, Run
from k8sdds.report import formats
from k8sdds.report.export import Findings
from k8sdds.report.table import Table, judged
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row

if TYPE_CHECKING:
    from k8sdds.report.figures import Figure


def findings(found: History, relative: bool) -> Findings:
    """Return the history for the terminal, and history.html, .csv, .json, .xml (JUnit) and .prom (OpenMetrics)."""
    runs, every = found.runs, found.rows()
    names = [formats.cell_name(row, every) for row in every]

    def draw(folder: Path) -> list[Figure]:
        from k8sdds.report.figures import changes

        return changes.over_runs(runs, found.series, names, relative, folder)

    return Findings(
        "history", "History", f"{len(runs)} runs from {runs[0].started_at} to {runs[-1].started_at}",
        _lead(every, runs), [_table(every, relative)], [*_redefined(found), *_NOTES], _data(found, every), every,
        COLUMNS, draw, {".xml": _junit(every, names), ".prom": _openmetrics(every)},
    )  # fmt: skip


def _data(found: History, every: Sequence[Row]) -> dict[str, Any]:
    series = []
    for row, one in zip(every, found.series, strict=True):
        means = one.means(found.runs)
        series.append({name: row[name] for name in COLUMNS} | {
            "values": [{"folder": run.folder, "value": value} for run, value in means],
            "change_points": [{"folder": means[c.index][0].folder, "p": c.p} for c in one.changes],
        })  # fmt: skip
    listed = [{"folder": run.folder, "started_at": run.started_at} for run in found.runs]
    redefined = [
        {"quantity": one.quantity, "definition": one.describe_definition(), "folders": one.folders}
        for one in found.redefined
    ]
    return {
        "schema": 1, "false_alarms": FALSE_ALARMS, "runs": listed, "redefined": redefined, "rows": series
    }  # fmt: skip


def _redefined(found: History) -> list[str]:
    """State which runs no series has, because the last run defines their metric differently."""
    if not found.redefined:
        return []
    return [
        f"Left out: {formats.join([one.describe() for one in found.redefined])}. The last run has another definition."
        " To include them, measure all runs with the same version of k8sdds and equally synchronized clocks."
    ]


def _table(every: Sequence[Row], relative: bool) -> Table:
    heads = ["series", "runs", "before", "since", "change %", "p", "first run after the change", "verdict"]
    cells = [judged(_cells(row, every, relative), row) for row in every]
    return Table("Overheads" if relative else "Levels", heads, cells)


def _lead(every: Sequence[Row], runs: Sequence[Run]) -> list[str]:
    better, worse = (sum(row[key] for row in every) for key in ("better", "worse"))
    return [
        f"Of {formats.count(len(every), 'metric')} in {len(runs)} runs, {worse} became worse and {better} better"
        " with their last change."
    ]


_NOTES = (
    "A change is shown if at most 1 % of random orders of the runs divide any metric of this history as clearly,"
    " also given how much runs that follow each other are alike between the changes. A history without changes"
    " therefore shows one with a probability of about 1 %, or more if the correlation of such runs is above 0.3.",
    "Change: geometric mean since the change relative to the runs between the change before and this one.",
)


def _cells(row: Row, every: Sequence[Row], relative: bool) -> list[str]:
    name, runs = formats.cell_name(row, every), str(row["runs"])
    if not row["changed"]:
        return [name, runs, "–", "–", "–", "–", "–", "no change shown"]
    unit = "x baseline" if relative else METRICS[row["quantity"]].unit
    levels = (f"{formats.number(row[key])} {unit}" for key in ("before", "after"))
    where = f"{row['folder']} ({row['started_at']}), {formats.count(row['runs_since'], 'run')} since"
    verdict = "better" if row["better"] else "worse"
    return [name, runs, *levels, f"{row['change_percent']:.1f}", f"{row['p']:.2g}", where, verdict]


def _junit(every: Sequence[Row], names: Sequence[str]) -> str:
    failures = sum(row["worse"] for row in every)
    suite = ElementTree.Element(
        "testsuite", name="k8sdds history", tests=str(len(every)), failures=str(failures), errors="0"
    )
    for row, name in zip(every, names, strict=True):
        case = ElementTree.SubElement(suite, "testcase", classname=f"k8sdds.{row['quantity']}", name=name)
        if row["worse"]:
            message = f"{row['change_percent']:.1f} % since {row['folder']} (p = {row['p']:.2g})"
            ElementTree.SubElement(case, "failure", message=message, type="change")
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


_GAUGES = {
    "changed": ("k8sdds_history_changed", "Whether the metric has a change."),
    "worse": ("k8sdds_history_worse", "Whether its last change is for the worse."),
    "change_percent": ("k8sdds_history_change_percent", "Size of the last change."),
    "runs_since": ("k8sdds_history_runs_since", "Runs since the last change."),
}


def _openmetrics(every: Sequence[Row]) -> str:
    every_setting = COLUMNS[: COLUMNS.index("runs")]
    settings = [name for name in every_setting if any(row[name] is not None for row in every)]
    registry = CollectorRegistry()
    for column, (name, meaning) in _GAUGES.items():
        gauge = Gauge(name, meaning, settings, registry=registry)
        for row in (row for row in every if row[column] is not None):
            gauge.labels(*("" if row[key] is None else row[key] for key in settings)).set(row[column])
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text.decode()
