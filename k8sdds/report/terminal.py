"""Print a report to a terminal: tables that are readable in 80 columns and in pipes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from k8sdds.analysis import overhead
from k8sdds.analysis.conditions import UNIT
from k8sdds.model.axis import payload
from k8sdds.model.reason import Reason
from k8sdds.report import caveats, cpu_limits, formats, memory_paths, summary
from k8sdds.report.content import Content
from k8sdds.report.settings import Setting
from k8sdds.report.table import Cell, Table
from k8sdds.report.text import paragraph
from k8sdds.report.winner import winner_sentences
from k8sdds.results import tidy
from k8sdds.results.columns import Metric
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row
from k8sdds.workloads import HEADLINES

MAX_SETTINGS = 6
"""Maximum number of tables to print. The report's files contain all tables."""


QUANTITIES = (*HEADLINES, "delay_p99_us", "deadline_missed_percent")
"""Columns of the tables."""


def show(content: Content, console: Console, page: Path | None = None) -> None:
    """Print the summary, the main tables, the invalid attempts and the path of the page if there is one."""
    paragraph(console, _title(content), style="bold")
    for sentence in winner_sentences(content):
        paragraph(console, sentence, style="bold green")
    console.print()
    for statement in summary.answer(content):
        paragraph(console, statement.lead, style="bold cyan")
        for sentence in statement.sentences:
            paragraph(console, sentence, "- ")
    for note in caveats.notes(content):
        important = not note.startswith(("Measured in", "Testbed:"))
        paragraph(console, note, "! " if important else "  ", "yellow" if important else "dim")
    for own in (*memory_paths.tables(content), *cpu_limits.tables(content)):
        console.print()
        paragraph(console, own.caption, style="bold")
        own.print(console)
        paragraph(console, own.under, style="dim")
    for setting in content.settings[:MAX_SETTINGS]:
        table = _table(content, setting)
        if table.rows:
            console.print()
            paragraph(console, f"{setting.title}, n = {setting.repetitions()}", style="bold")
            table.print(console)
    if len(content.settings) > MAX_SETTINGS:
        paragraph(
            console, f"{len(content.settings) - MAX_SETTINGS} further tables in the report.", style="dim"
        )
    if any(setting.overheads(name) for setting in content.settings for name in HEADLINES):
        legend = f"%: overhead relative to {content.baseline}, [95 % interval]; ~ interval spans 0"
        paragraph(console, legend, style="dim")
    _print_invalid(content, console)
    if page is not None:
        # Long paths are not wrapped, so that they can be copied.
        console.print(f"\nReport: {page}", soft_wrap=True)


def results_so_far(attempts: Sequence[Row], baseline: str) -> Table:
    """Return a small table of the attempts of a running campaign, with one row per network.

    A row contains the number of valid trials and invalid attempts and, per headline metric, the geometric
    mean of x/b over all pairs (same condition and repetition) so far. There is no confidence interval: the
    table shows progress, not results.
    """
    names = [name for name in HEADLINES if any(row[name] is not None for row in attempts)]
    heads = ["network", "valid", "invalid", *(f"{METRICS[name].title} vs {baseline}" for name in names)]
    cells = overhead.by_cell(tidy.best(attempts))
    rows = []
    for label in dict.fromkeys([baseline, *(row[UNIT] for row in attempts)]):
        valid = len({row["trial_id"] for row in attempts if row[UNIT] == label and row["valid"]})
        invalid = sum(row[UNIT] == label and not row["valid"] for row in attempts)
        own = [
            (trials, cells.get((baseline, *key[1:]), [])) for key, trials in cells.items() if key[0] == label
        ]
        changes = ["baseline" if label == baseline else _mean_change(own, METRICS[name]) for name in names]
        head = Cell(label, mark="" if valid else "no result")
        rows.append([head, *map(Cell, (str(valid), str(invalid or ""), *changes))])
    return Table("", heads, rows)


def _mean_change(cells: Sequence[tuple[list[Row], list[Row]]], metric: Metric) -> str:
    """Return the mean change of a metric in some cells, each with that of the baseline, and the number of pairs."""
    pairs = [pair for trials, base in cells for pair in overhead.paired(trials, base, metric)[1]]
    logs = [math.log(value / base) for value, base in pairs]
    return f"{100 * math.expm1(math.fsum(logs) / len(logs)):+.0f} % ({len(logs)})" if logs else "–"


def _title(content: Content) -> str:
    invalid = formats.count(len(content.invalid), "invalid attempt") if content.invalid else ""
    started = formats.moment(content.campaign.get("started_at"))
    return " · ".join(
        filter(None, (content.name, started, formats.count(content.valid, "valid trial"), invalid))
    )


def _table(content: Content, setting: Setting) -> Table:
    """Return the table of a setting: points and networks × quantities, headline metrics with their overheads."""
    columns = [
        (METRICS[name], setting.levels(name), setting.overheads(name) if name in HEADLINES else {})
        for name in QUANTITIES
        if setting.levels(name)
    ]
    keys = [] if "subscribers" in setting.values else ["subs"]
    heads = [*keys, "payload", "network"]
    for metric, _, overheads in columns:
        heads.append(_column_title(metric.title, metric.unit))
        heads += [f"{metric.title.split()[0]} overhead %"] if overheads else []
    rows = []
    for point in setting.points:
        for label in content.networks:
            if not any((label, point) in levels for _, levels, _ in columns):
                continue
            cells = [*(str(point.subscribers) for _ in keys), payload(point.payload_bytes), label]
            for _, levels, overheads in columns:
                level = levels.get((label, point))
                cells.append(formats.number(level["mean"]) if level else "–")
                cells += [_overhead(overheads.get((label, point)))] if overheads else []
            rows.append(cells)
    return Table.of(heads, rows, len(keys) + 2)


def _column_title(title: str, unit: str) -> str:
    """Return a narrow column title, such as `p90 µs` for `p90 latency`: the first word, and the unit."""
    first = title.split(" ")[0]
    return f"{first} {unit}" if len(first) <= 8 and not unit.startswith(first) else unit


def _overhead(row: Row | None) -> str:
    if row is None:
        return ""
    mark = "~" if row["seen"] is False else " "
    center, _, bracket = formats.overhead(row).partition(" ")
    return f"{mark}{center:>4} {bracket}".rstrip()


def _print_invalid(content: Content, console: Console) -> None:
    if not content.invalid:
        return
    console.print()
    paragraph(console, "Invalid attempts (kept, but excluded from all statistics)", style="bold")
    for code, n in content.reasons:
        reasons = (Reason.read(row["reason"]) for row in content.invalid)
        details = next(reason.text for reason in reasons if reason.code == code)
        paragraph(console, f"{n} × {code}" + (f": {details}" if details else ""), "- ")
    if content.failed:
        labels = Counter(row[UNIT] for row in content.failed)
        text = formats.join([f"{label} ({n})" for label, n in labels.items()])
        paragraph(console, f"trials without a valid attempt: {text}", "! ", "yellow")
