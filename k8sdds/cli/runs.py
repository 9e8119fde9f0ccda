"""`k8sdds runs`: list run folders."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from k8sdds.cli.commands import Commands
from k8sdds.cli.output import RowsOutput
from k8sdds.cli.terminal import print_step
from k8sdds.system.errors import InputError
from k8sdds.system.numbers import format_duration

if TYPE_CHECKING:
    from k8sdds.results.run_folder import RunFolder

app = Commands()


@app.add("k8sdds runs", "k8sdds runs study/runs --json")
def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder that contains run folders.")
    ] = Path("runs"),
    *,
    out: RowsOutput,
) -> None:
    """List run folders with their experiment, their valid trials, how they ended and their age, the newest first.

    The newest one in runs/ is also called @last, such as in: k8sdds report @last
    """
    from k8sdds.results.run_folder import newest_first

    rows = [_row(run) for run in newest_first(folder)]
    if rows:
        out.print(rows)
        return
    if not folder.is_dir() and folder != Path("runs"):
        raise InputError(f"{folder} is not a folder", "name a folder that contains run folders")
    out.print(rows, lambda: print_step(f"No run folder in {folder}/. Try: k8sdds run quickstart"))


def _row(run: RunFolder) -> dict[str, Any]:
    row = {"run": str(run.path), "experiment": "", "verdict": "", "age": _age(run.started_at)}
    try:
        row["experiment"] = str(run.campaign.get("experiment") or "")
        row["verdict"] = _verdict(run)
    except InputError as error:
        row["verdict"] = f"unreadable: {error.message}"
    return row


def _verdict(run: RunFolder) -> str:
    """Return how many of the planned trials are valid, and how the campaign ended."""
    ends = ("ended", "stopped", "resumed", "import-end")
    last = next(
        (event for event in reversed(run.events()) if event.get("event") in ends), {"event": "running"}
    )
    if last["event"] == "ended":
        return f"{last.get('valid')} of {last.get('trials')} trials valid"
    valid = len({attempt.get("trial_id") for attempt in run.attempts() if attempt.get("valid") is True})
    if last["event"] == "import-end":
        return f"imported, {valid} of {last.get('trials')} trials valid"
    trials = f"{valid} of {len(run.planned)} trials valid"
    if last["event"] == "stopped":
        reason = last.get("reason")
        return f"interrupted, {trials}" + (f": {reason}" if reason != "interrupted" else "")
    try:
        with run.lock():
            return f"interrupted, {trials}"
    except InputError:
        return f"running, {trials}"


def _age(started_at: str) -> str:
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(started_at)).total_seconds()
    except (ValueError, TypeError):  # another program wrote it, or it has no time zone
        return ""
    days = int(seconds // 86400)
    return f"{days} days" if days > 1 else format_duration(max(seconds, 0))
