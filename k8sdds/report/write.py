"""Making a report: read once, then words, tables, figures and HTML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from k8sdds.analysis import overhead
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.report import content as contents
from k8sdds.report import figures as figures_
from k8sdds.report import html, summary, tables, terminal
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError


def write_report(run: RunFolder, console: Console | None) -> Path:
    """See k8sdds.report.write_report."""
    try:
        content = contents.read(run, parquet=True)
        files = tables.write(content, run.report / "tables")
        figures = figures_.make(content, run.report / "figures")
        path = html.write(content, figures, run.report / "report.html")
    except OSError as error:
        raise InputError(
            f"cannot write the report to {error.filename or run.path}: {error.strerror or error}",
            "make the folder writable, or copy the run folder to where you can write",
        ) from error
    if console is not None:
        terminal.show(content, console, [path, files[0].parent])
    return path


def summarize(run: RunFolder) -> dict[str, Any]:
    """See k8sdds.report.summarize."""
    content = contents.read(run)
    testbed = content.campaign.get("testbed")
    return {
        "schema": 1,
        "campaign": content.campaign.get("campaign"),
        "experiment": content.campaign.get("experiment"),
        "started_at": content.campaign.get("started_at"),
        "testbed": testbed.get("name") if isinstance(testbed, dict) else testbed,
        "testbed_words": content.testbed,
        "baseline": content.baseline,
        "networks": content.networks,
        "trials": {
            "planned": content.planned,
            "valid": len(content.best),
            "failed": len(content.failed),
            "not_tried": content.untried,
            "invalid_attempts": len(content.invalid),
        },
        "answer": [{"lead": item.lead, "sentences": item.sentences} for item in summary.answer(content)],
        "caveats": summary.caveats(content),
        "overheads": [_plain(row) for row in overhead.plain_rows(content.overheads)],
        "contrasts": [
            {key: _finite(value) for key, value in row.items()}
            for name in (summary.THROUGHPUT, summary.LATENCY)
            for row in content.contrasts(name)
        ],
        "levels": [_plain(row) for row in overhead.plain_rows(content.levels)],
        "invalid": [
            {key: row[key] for key in ("trial_id", "attempt", UNIT, "test", "payload_bytes", "reason")}
            for row in content.invalid
        ],
        "warnings": [{"warning": text, "trials": n} for text, n in content.warnings],
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    first = ("quantity", UNIT, *CONDITION)
    ordered = {key: row[key] for key in first} | row
    return {key: _finite(value) for key, value in ordered.items()}


def _finite(value: Any) -> Any:
    # JSON has no infinity; an interval without bound is no interval.
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    return value
