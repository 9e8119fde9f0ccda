"""What a campaign found: in words, terminal tables, CSV, figures and one HTML file.

Importing this module costs nothing: pandas, scipy and matplotlib are imported when a report is made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from k8sdds.results.run_folder import RunFolder

__all__ = ["results_so_far", "summarize", "write_report"]


def write_report(run: RunFolder, console: Console | None) -> Path:
    """Make the report of a run folder: report/report.html, figures and tables; returns report.html's path.

    With a console the answer and the main tables are printed too. A folder without a single valid trial
    gets a report that says so. Raises InputError where the folder cannot be read or the report not written.
    """
    from k8sdds.report import write

    return write.write_report(run, console)


def summarize(run: RunFolder) -> dict[str, Any]:
    """The report as JSON-serialisable data: answer, counts, levels, overheads, invalid attempts.

    Writes nothing. Raises InputError where the folder cannot be read.
    """
    from k8sdds.report import write

    return write.summarize(run)


def results_so_far(attempts: list[dict[str, Any]], baseline: str) -> RenderableType:
    """A small table for the terminal of a running campaign, from the attempts (as in trials.jsonl) so far."""
    from k8sdds.report import live

    return live.results_so_far(attempts, baseline)
