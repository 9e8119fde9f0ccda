"""`k8sdds report` and `k8sdds runs`: write the report of a run folder, and list run folders."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.output import ReportOutput, RowsOutput
from k8sdds.cli.terminal import console, print_note, print_step, print_text
from k8sdds.results.run_folder import RunFolder, newest_first
from k8sdds.system.errors import InputError
from k8sdds.system.faults import not_installed
from k8sdds.system.numbers import format_duration

app = Commands()


@app.add("k8sdds report @last", "k8sdds report runs/mine --json", "k8sdds report runs/mine --serve")
def report(
    folder: Annotated[
        Path, "RUN: A run folder, such as runs/TIME-EXPERIMENT; @last: the newest one in runs/."
    ],
    *,
    out: ReportOutput,
    pdf: Annotated[bool, "--pdf: Write the figures as PDF, too, with embedded fonts."] = False,
    serve: Annotated[
        bool, "--serve: Show the report in a browser of this machine, also while the campaign runs."
    ] = False,
    port: Annotated[
        int, option("--port PORT: TCP port of --serve on 127.0.0.1. 0: any free port.", min=0, max=65535)
    ] = 0,
) -> None:
    """Write the report of a run folder: summary, tables, figures and one HTML file.

    With another --format, prints the report's content or tables instead, and writes nothing but the figures of --pdf.
    With --serve, prints an address of this machine at which a browser shows the current results until you press
    Ctrl-C, and writes nothing.
    """
    from k8sdds import report as reports
    from k8sdds.report import formats

    run = RunFolder.open(folder)
    if serve and (pdf or not out.is_text):
        raise InputError("--serve excludes --pdf and --format", "leave out --serve, or the others")
    if pdf and (missing := not_installed("report")):
        raise missing
    if serve:
        _serve(run, port)
        return
    if pdf or out.is_text:
        reports.write_report(run, console() if out.is_text else None, pdf, _recommendation(run))
    if pdf:
        figures = run.report / "figures"
        print_note(f"{formats.count(len([*figures.glob('*.pdf')]), 'PDF figure')}: {figures}")
    if not out.is_text:
        data = reports.summarize(run) if out.form in ("json", "yaml") else None
        out.print(data, lambda: reports.show(run, console()))


def _recommendation(run: RunFolder) -> list[str]:
    """Write the recommendation of a run folder that measured an application, and return its verdict."""
    from k8sdds.recommend import files, results
    from k8sdds.recommend.answer import of_run

    found = of_run(run)
    if found is None:
        return []
    results.write(found, run.report)
    files.write(found, run.report / files.FOLDER)
    return results.lead(found)[:2]


def _serve(run: RunFolder, port: int) -> None:
    from k8sdds.report import live

    with live.server(run, port) as server:
        print_text(
            f"The report is at http://{live.ADDRESS}:{server.server_address[1]}/ until you press Ctrl-C."
        )
        with suppress(KeyboardInterrupt):
            server.serve_forever()


@app.add("k8sdds runs", "k8sdds runs study/runs --json")
def runs(
    folder: Annotated[Path, "FOLDER: Folder that contains run folders."] = Path("runs"),
    *,
    out: RowsOutput,
) -> None:
    """List run folders with their experiment, their valid trials, how they ended and their age, the newest first.

    The newest one in runs/ is also called @last, such as in: k8sdds report @last
    """
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
