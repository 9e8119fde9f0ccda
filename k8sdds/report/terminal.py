"""The report for a terminal: rich tables that stay readable at 80 columns and in pipes."""

from __future__ import annotations

import textwrap
from collections import Counter
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from k8sdds.analysis.conditions import payload
from k8sdds.report import formats, summary
from k8sdds.report.content import Content, Row, Setting

MAX_SETTINGS = 6
"""Tables printed; the rest stands in the files, because nobody scrolls through more."""


def show(content: Content, console: Console, files: list[Path]) -> None:
    """Print answer, tables, invalid attempts and where the files are."""
    console.print(Text(_title(content), style="bold"))
    console.print()
    for statement in summary.answer(content):
        console.print(Text(statement.lead, style="bold cyan"))
        for sentence in statement.sentences:
            _paragraph(console, sentence, "- ")
    for note in summary.caveats(content):
        _paragraph(console, note, "! " if _grave(note) else "  ", "yellow" if _grave(note) else "dim")
    for setting in content.settings[:MAX_SETTINGS]:
        table = _table(content, setting)
        if table.row_count:
            console.print()
            console.print(Text(f"{setting.title}, n = {setting.repetitions()}", style="bold"))
            console.print(table)
    if len(content.settings) > MAX_SETTINGS:
        console.print(f"{len(content.settings) - MAX_SETTINGS} further tables in the report.", style="dim")
    if any(setting.overheads(name) for setting in content.settings for name in summary.MAIN):
        console.print(
            Text(f"%: overhead against {content.baseline}, [95 % interval]; ~ interval spans 0", style="dim")
        )
    _invalid(content, console)
    console.print()
    for path in files:
        # Long paths must not be wrapped: they are there to be copied.
        console.print(Text(str(path)), soft_wrap=True)


def _title(content: Content) -> str:
    parts = [
        content.name,
        formats.moment(content.campaign.get("started_at")),
        f"{len(content.best)} valid trials",
    ]
    if len(content.invalid):
        parts.append(formats.count(len(content.invalid), "invalid attempt"))
    return " · ".join(part for part in parts if part)


def _grave(note: str) -> bool:
    return not note.startswith(("Measured in", "Testbed:"))


def _paragraph(console: Console, text: str, mark: str, style: str = "") -> None:
    width = min(console.width, 100)
    wrapped = textwrap.fill(
        text, width, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False
    )
    console.print(Text(wrapped, style=style), soft_wrap=True)


def _table(content: Content, setting: Setting) -> Table:
    shown = [
        (unit, setting.levels(name), setting.overheads(name))
        for name, unit in ((summary.THROUGHPUT, "Mbit/s"), (summary.LATENCY, "p90 µs"))
        if setting.levels(name)
    ]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    several = "subscribers" not in setting.values
    if several:
        table.add_column("subs", no_wrap=True, justify="right")
    table.add_column("payload", no_wrap=True, justify="right")
    table.add_column("network", overflow="fold", min_width=7)
    for unit, _, overheads in shown:
        table.add_column(unit, no_wrap=True, justify="right")
        if overheads:
            table.add_column("overhead %", no_wrap=True)
    for point in setting.points:
        labels = [label for label in content.networks if any((label, point) in rows for _, rows, _ in shown)]
        for label in labels:
            first = label == labels[0]
            cells = [payload(point.payload_bytes) if first else "", label]
            if several:
                cells.insert(0, str(point.subscribers) if first else "")
            for _, rows, overheads in shown:
                row = rows.get((label, point))
                cells.append(formats.number(row["mean"]) if row else "–")
                if overheads:
                    cells.append(_overhead(overheads.get((label, point))))
            table.add_row(*cells, end_section=label == labels[-1] and point != setting.points[-1])
    return table


def _overhead(row: Row | None) -> str:
    if row is None:
        return ""
    mark = "~" if row["seen"] is False else " "
    text = formats.percent(row["overhead_percent"], row["ci_low_percent"], row["ci_high_percent"])
    centre, _, bracket = text.partition(" ")
    return f"{mark}{centre:>4} {bracket}".rstrip()


def _invalid(content: Content, console: Console) -> None:
    if not content.invalid:
        return
    console.print()
    console.print(Text("Invalid attempts (kept, never in a statistic)", style="bold"))
    reasons = Counter(str(row["reason"] or "no reason recorded").split(":")[0] for row in content.invalid)
    for word, n in reasons.most_common():
        example = next(row for row in content.invalid if str(row["reason"] or word).startswith(word))
        sentence = str(example["reason"] or "").partition(":")[2].strip()
        _paragraph(console, f"{n} × {word}" + (f": {sentence}" if sentence else ""), "- ")
    if content.failed:
        labels = Counter(row["network_label"] for row in content.failed)
        said = formats.listed([f"{label} ({n})" for label, n in labels.items()])
        _paragraph(console, f"trials left without a valid attempt: {said}", "! ", "yellow")
