"""Write the report of a run folder: summary, terminal tables, CSV files, figures and one HTML file.

Importing this package is cheap: matplotlib is imported when figures are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.system.faults import explained

if TYPE_CHECKING:
    from rich.console import Console

    from k8sdds.results.run_folder import RunFolder

__all__ = ["show", "summarize", "write_report"]


def write_report(
    run: RunFolder, console: Console | None, pdf: bool = False, verdict: Sequence[str] = ()
) -> Path:
    """Write report.html, the figures and the tables of a run folder and return the path of report.html.

    If the run folder has no valid trials, the report states this.

    With a console, the summary and the main tables are printed to it. `verdict` is that about the application that was
    measured, which recommendation.html explains.
    """
    from k8sdds.report import content as contents
    from k8sdds.report import csv_tables, html, terminal
    from k8sdds.report import figures as figure_files
    from k8sdds.report.figures import canvas
    from k8sdds.system import parallel

    with explained(
        "cannot write the report",
        "free space and make the folder writable, or copy the run folder to another place",
    ):
        before = canvas.AS_PDF.set(pdf)
        content = contents.read(run, parquet=True)
        content.verdict = tuple(verdict)
        tables = partial(csv_tables.write, content, run.report / "tables")
        drawn: list[list[Any]] = parallel.run([tables, *figure_files.tasks(content, run.report / "figures")])
        canvas.AS_PDF.reset(before)
        figures = [figure for part in drawn[1:] for figure in part]
        path = html.write(content, figures, run.report / "report.html")
    if console is not None:
        terminal.show(content, console, path)
    return path


def show(run: RunFolder, console: Console) -> None:
    """Print the summary and the main tables, without writing files."""
    from k8sdds.report import content as contents
    from k8sdds.report import terminal

    terminal.show(contents.read(run), console)


def summarize(run: RunFolder) -> dict[str, Any]:
    """Return the report as JSON-serializable data, without writing files."""
    from k8sdds.analysis import missing
    from k8sdds.analysis.conditions import CONDITION, UNIT
    from k8sdds.report import caveats, summary
    from k8sdds.report import content as contents
    from k8sdds.report.winner import winner_sentences
    from k8sdds.workloads import HEADLINES

    content = contents.read(run)
    testbed = content.campaign.get("testbed")
    first = ("quantity", UNIT, *CONDITION)  # the columns that identify a row
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
            "valid": content.valid,
            "failed": len(content.failed),
            "not_tried": content.untried,
            "invalid_attempts": len(content.invalid),
        },
        "winners": winner_sentences(content),
        "answer": [{"lead": item.lead, "sentences": item.sentences} for item in summary.answer(content)],
        "caveats": caveats.notes(content),
        "overheads": [{key: row[key] for key in first} | row for row in content.overheads],
        "contrasts": [row for name in HEADLINES for row in content.contrasts(name)],
        "limits": [{key: row[key] for key in first} | row for row in content.limits],
        "capacities": content.capacities,
        "levels": [{key: row[key] for key in first} | row for row in content.levels],
        "invalid": [
            {key: row[key] for key in ("trial_id", "attempt", UNIT, "test", "payload_bytes", "reason")}
            for row in content.invalid
        ],
        "warnings": [{"warning": text, "trials": n} for text, n in content.warnings],
        "missing": missing.by_network(content.best),
    }  # fmt: skip
