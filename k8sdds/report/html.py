"""Write report.html: one self-contained file, from the template report.html.j2."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis import missing
from k8sdds.report import (
    caveats,
    cpu_limits,
    document,
    explore,
    fact_tables,
    fleets,
    formats,
    memory_paths,
    profiles,
    summary,
    tables,
    winner,
)
from k8sdds.report.content import Content
from k8sdds.report.figures import inline_svg, missing_note, outages
from k8sdds.report.table import Table
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import EXPERIMENT, RunFolder
from k8sdds.system.errors import InputError
from k8sdds.system.files import write_atomically
from k8sdds.system.grouping import Row, grouped
from k8sdds.testbeds import selection
from k8sdds.workloads import WORKLOADS

if TYPE_CHECKING:
    from k8sdds.report.figures import Figure

MAX_ROWS = 2000
"""Maximum number of rows in the table of all attempts. Browsers are slow with more; trials.csv has all rows."""

_DETAILS = ("protection", "fairness", "timeline", "paths")
"""Sections of figures that explain the results: their tables are folded, and their figures if they have no tables."""

_FIGURE_SECTIONS = {
    **{name: name.capitalize() for name in WORKLOADS},
    "subscribers": "Number of subscribers",
    "protection": "Protection in the middleware and in the network",
    "trade-off": "Throughput against latency",
    "fairness": "Subscribers of a trial",
    "timeline": "Throughput over time",
    "paths": "Paths, MTUs and dropped packets",
    "resources": "CPU time",
    "profile": "Where the CPU time goes",
}
"""Sections that consist of figures, in their order."""


@dataclass(frozen=True)
class Section:
    """A section of the report: a text of the template, figures and tables."""

    id: str
    title: str
    tables: Sequence[Table] = ()
    folded: bool = False
    """Whether a reader opens the tables singly, or the figures of a section without tables."""
    figures: Sequence[Figure] = ()
    text: bool = False
    """Whether the template has a text that the section shows without tables and figures."""


def write(content: Content, figures: list[Figure], path: Path) -> Path:
    """Write the HTML report to `path` and return it."""
    write_atomically(path, render(content, figures))
    return path


def render(content: Content, figures: list[Figure], state: str = "") -> str:
    """Return the HTML report.

    With the state of a running campaign, the page asks its server for the current one.
    """
    figures, rules = inline_svg.share_styles(figures)
    (library, digest), data = explore.library(), explore.packed_data(content)
    variables = _context(content, figures) | {"state": state, "library": library, "explore_data": data}
    scripts = (document.TABLES, "figures.js", "explore.js", *(["live.js"] if state else []))
    allowed = [digest] if data else []
    return document.render(
        "report.html.j2", variables, scripts, figure_rules=rules, allowed=allowed, connects=bool(state)
    )


def _context(content: Content, figures: list[Figure]) -> dict[str, Any]:
    """Return the variables of the template."""
    campaign, statements = content.campaign, summary.answer(content)
    # The first screen has the recoveries from outages, else the overheads, else the first figure except of profiles.
    candidates = [figure for figure in figures if figure.section != "profile"]
    first = (outages.SLUG, "overheads")
    order = [figure for name in first for figure in candidates if name in (figure.slug, figure.section)]
    main = next(iter([*order, *candidates]), None)
    verdict = winner.winner_sentences(content) or [text for one in statements for text in one.sentences][:1]
    return {
        "title": content.title,
        "verdict": verdict,
        "recommendation": bool(content.verdict),
        "sections": _sections(content, [figure for figure in figures if figure is not main]),
        "name": content.name,
        "campaign": campaign.get("campaign") or content.run.path.name,
        "overview": _overview(content),
        "statements": statements,
        "main_figure": main,
        "conditions": content.conditions,
        "caveats": [*caveats.notes(content), *missing_note()],
        "baseline": content.baseline,
        "failed": content.failed,
        "invalid": content.invalid,
        "reasons": content.reasons,
        "warnings": content.warnings,
        "missing": [
            {**row, "title": METRICS[row["quantity"]].title} for row in missing.by_network(content.best)
        ],
        "events": [_event(row) for row in content.notable_events],
        "testbed": content.testbed,
        "seed": campaign.get("seed"),
        "version": campaign.get("k8sdds_version"),
        "origin": "imported" if content.testbed.startswith("imported") else "measured",
        "command": _command(content.run),
        "trials_left": max(0, len(content.attempts) - MAX_ROWS),
        "relevant_percent": summary.RELEVANT_PERCENT,
    }


def _command(run: RunFolder) -> str:
    """Return the command that repeats the campaign."""
    options: list[str] = []
    with suppress(InputError):  # where it was measured is not known
        options = selection.parse(run.reached).options()
    return run.repeat_command(run.path / EXPERIMENT, *options)


def _sections(content: Content, figures: list[Figure]) -> list[Section]:
    """Return the sections that have something to show, in their order."""
    by_section = grouped(figures, lambda figure: figure.section)
    own = {
        "capacity": tables.capacities(content), "protection": tables.protection(content),
        "profile": profiles.tables(content), "paths": fact_tables.paths(content),
    }  # fmt: skip
    titles = {name: formats.capital(name) for name in by_section} | _FIGURE_SECTIONS
    drawn = (name for name in dict.fromkeys((*_FIGURE_SECTIONS, *titles)) if name != "overheads")
    overheads = [table for setting in content.settings for table in tables.overheads(content, setting)]
    levels = [
        table
        for setting in content.settings
        for test in setting.tests
        for table in tables.levels(content, setting, test)
    ]
    rows = content.attempts[:MAX_ROWS]
    attempts = fact_tables.attempts(content, formats.count(len(rows), "attempt"), rows)
    invalid = fact_tables.attempts(content, "Invalid attempts", content.invalid)
    every = [
        Section("overheads", "Overheads", overheads, figures=by_section.get("overheads", ())),
        *(
            Section(name, titles[name], own.get(name, ()), name in _DETAILS, by_section.get(name, ()))
            for name in drawn
        ),
        Section("memory", "Shared memory between pods", memory_paths.tables(content)),
        Section("fleets", "Fleets", fleets.tables(content)),
        Section("cpu-limits", "CPU limits of pods", cpu_limits.tables(content)),
        Section("runs", "Single runs", [one.table for one in tables.single_runs(content)]),
        Section("contrasts", "Settings compared within each network", tables.contrasts(content)),
        Section("limit", "Share of the machine's limit", tables.limits(content)),
        Section("levels", "All levels", levels, folded=True),
        Section("trouble", "Invalid attempts, warnings and events", invalid, folded=True, text=True),
        Section("networks", "Networks and their datapaths", fact_tables.networks(content), folded=True),
        Section("upkeep", "Background cost of the networks", fact_tables.background(content), folded=True),
        Section("testbed", "Testbed", fact_tables.testbed(content), folded=True, text=True),
        Section("reproduce", "How to reproduce", text=True),
        Section("trials", "All attempts", attempts, folded=True),
        Section("reading", "How to read this report", text=True),
    ]
    return [section for section in every if section.figures or section.tables or section.text]


def _overview(content: Content) -> list[tuple[str, str]]:
    counts = [f"{content.valid} of {content.planned} valid"]
    if content.invalid:
        counts.append(formats.count(len(content.invalid), "invalid attempt"))
    if content.untried:
        counts.append(f"{content.untried} not attempted")
    pairs = [
        ("Started", formats.moment(content.campaign.get("started_at"))),
        ("Testbed", content.testbed),
        ("Baseline", content.baseline or "none"),
        ("Networks", ", ".join(content.networks)),
        ("Repetitions", content.campaign.get("repetitions")),
        ("Trials", "; ".join(counts)),
    ]
    return [(name, str(value)) for name, value in pairs if value not in (None, "")]


def _event(row: Row) -> tuple[str, str, str]:
    """Return time, name and details of an event."""
    # The facts of a resumed campaign would fill a page; events.jsonl has them.
    details = {key: value for key, value in row.items() if key not in ("at", "event", "facts")}
    text = ", ".join(f"{key} {fact_tables.text_of(value)}" for key, value in details.items())
    return formats.moment(row.get("at")), str(row.get("event", "")), text
