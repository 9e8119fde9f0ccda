"""Write report.html: one self-contained file, from the template report.html.j2."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis import conditions, missing
from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.network_software import installed_networks, network_software
from k8sdds.analysis.overhead import plain_rows
from k8sdds.model.axis import payload
from k8sdds.networks import NETWORKS, known_names
from k8sdds.report import document, formats, profiles, run_tables, summary, winner
from k8sdds.report.content import Content
from k8sdds.report.figures import inline_svg, missing_note
from k8sdds.report.html import explore, tables
from k8sdds.report.settings import Row
from k8sdds.report.table import Cell, Table
from k8sdds.results.fingerprint import Fingerprint
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import EXPERIMENT, RunFolder
from k8sdds.system.errors import InputError
from k8sdds.system.files import write_atomically
from k8sdds.system.shapes import fits
from k8sdds.testbeds import selection
from k8sdds.workloads import WORKLOADS

if TYPE_CHECKING:
    from k8sdds.report.figures import Figure

MAX_TRIALS = 2000
"""Maximum number of rows in the table of all attempts. Browsers are slow with more; trials.csv has all rows."""

_DETAILS = ("protection", "fairness", "timeline", "topology")
"""Sections of figures that explain the results: their tables are folded, and their figures if they have no tables."""

_FIGURE_SECTIONS = {
    **{name: name.capitalize() for name in WORKLOADS},
    "subscribers": "Number of subscribers",
    "protection": "Protection in the middleware and in the network",
    "trade-off": "Throughput against latency",
    "fairness": "Subscribers of a trial",
    "timeline": "Throughput over time",
    "topology": "Paths, MTUs and dropped packets",
    "resources": "CPU time",
    "profile": "Where the CPU time goes",
}
"""Sections that consist of figures, in their order."""


@dataclass(frozen=True)
class Section:
    """A section of the report: a text of the template, figures and tables."""

    id: str
    title: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    folded: bool = False
    """Whether a reader opens the tables singly, or the figures of a section without tables."""


def write(content: Content, figures: list[Figure], path: Path) -> Path:
    """Write the HTML report to `path` and return it."""
    write_atomically(path, render(content, figures))
    return path


def render(content: Content, figures: list[Figure], state: str = "") -> str:
    """Return the HTML report.

    Args:
        content: The data of the report.
        figures: The figures to include.
        state: The state of a running campaign. If given, the page asks its server for the current one.
    """
    figures, rules = inline_svg.share_styles(figures)
    library, data = explore.library(), explore.packed_data(content)
    variables = _context(content, figures) | {
        "state": state, "library": library.packed, "explore_data": data,
    }  # fmt: skip
    scripts = (document.TABLES, "figures.js", "explore.js", *(["live.js"] if state else []))
    return document.render(
        "report.html.j2", variables, scripts, figure_rules=rules,
        allowed=[library.hash] if data else [], connects=bool(state),
    )  # fmt: skip


def _context(content: Content, figures: list[Figure]) -> dict[str, Any]:
    """Return the variables of the template."""
    campaign = content.campaign
    main = _main_figure(figures)
    statements = summary.answer(content)
    return {
        "title": content.title,
        "verdict": winner.winner_sentences(content)
        or [text for one in statements for text in one.sentences][:1],
        "recommendation": bool(content.verdict),
        "sections": _sections(content, [figure for figure in figures if figure is not main]),
        "name": content.name,
        "campaign": campaign.get("campaign") or content.run.path.name,
        "overview": _overview(content),
        "statements": statements,
        "main_figure": main,
        "conditions": content.conditions,
        "caveats": [*summary.caveats(content), *missing_note()],
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
        "trials_left": max(0, len(content.table) - MAX_TRIALS),
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

    def drawn(section: str, title: str, **contents: Any) -> Section:
        return Section(
            section, title, [figure for figure in figures if figure.section == section], **contents
        )

    own = {
        "capacity": tables.capacities(content), "protection": tables.protection(content),
        "profile": profiles.tables(content),
    }  # fmt: skip
    titles = {figure.section: formats.capital(figure.section) for figure in figures} | _FIGURE_SECTIONS
    overheads = [table for setting in content.settings for table in tables.overheads(content, setting)]
    levels = [
        table
        for setting in content.settings
        for test in setting.tests
        for table in tables.levels(content, setting, test)
    ]
    optional = [
        drawn("overheads", "Overheads", tables=overheads),
        *(
            drawn(section, titles[section], tables=own.get(section, ()), folded=section in _DETAILS)
            for section in dict.fromkeys((*_FIGURE_SECTIONS, *titles))
            if section != "overheads"
        ),
        Section("runs", "Single runs", tables=_single_runs(content)),
        Section("contrasts", "Settings compared within each network", tables=tables.contrasts(content)),
        Section("limit", "Share of the machine's limit", tables=tables.limits(content)),
        Section("levels", "All levels", tables=levels, folded=True),
    ]
    facts = [
        Section("networks", "Networks and their datapaths", tables=_networks(content), folded=True),
        Section("upkeep", "Background cost of the networks", tables=tables.background(content), folded=True),
    ]
    attempts = Section("trials", "All attempts", tables=_attempts(content), folded=True)
    invalid = _attempt_table(content, "Invalid attempts", content.invalid) if content.invalid else []
    return [
        *(section for section in optional if section.figures or section.tables),
        Section("trouble", "Invalid attempts, warnings and events", tables=invalid, folded=True),
        *(section for section in facts if section.tables),
        Section("testbed", "Testbed", tables=_facts(content), folded=True),
        Section("reproduce", "How to reproduce"),
        *([attempts] if attempts.tables else []),
        Section("reading", "How to read this report"),
    ]  # fmt: skip


def _single_runs(content: Content) -> list[Table]:
    return [
        replace(one.table, rows=[[tables.network(content, row[0].text), *row[1:]] for row in one.table.rows])
        for one in run_tables.tables(content)
    ]


def _main_figure(figures: list[Figure]) -> Figure | None:
    """Return the figure of the first screen: overheads, else the first figure except of profiles."""
    candidates = [figure for figure in figures if figure.section != "profile"]
    return next(
        (figure for figure in candidates if figure.section == "overheads"), next(iter(candidates), None)
    )


def _overview(content: Content) -> list[tuple[str, str]]:
    campaign = content.campaign
    counts = [f"{content.valid} of {content.planned} valid"]
    if content.invalid:
        counts.append(formats.count(len(content.invalid), "invalid attempt"))
    if content.untried:
        counts.append(f"{content.untried} not attempted")
    pairs = [
        ("Started", formats.moment(campaign.get("started_at"))),
        ("Testbed", content.testbed),
        ("Baseline", content.baseline or "none"),
        ("Networks", ", ".join(content.networks)),
        ("Repetitions", campaign.get("repetitions")),
        ("Trials", "; ".join(counts)),
    ]
    return [(name, str(value)) for name, value in pairs if value not in (None, "")]


def _attempts(content: Content) -> list[Table]:
    rows = plain_rows(content.table.head(MAX_TRIALS))
    return _attempt_table(content, formats.count(len(rows), "attempt"), rows) if rows else []


def _attempt_table(content: Content, caption: str, rows: Sequence[Row]) -> list[Table]:
    """Return a table of attempts: the invalid ones with their reasons, others with their results."""
    invalid = all(not row["valid"] for row in rows)
    results = ("valid", "Mbit/s", "p50 µs", "p90 µs", "p99 µs", "loss %", "trial")
    heads = ["network", "condition", "subs", "rep.", "att.", *(["reason", "trial"] if invalid else results)]
    cells = []
    for row in rows:
        condition = [row["test"], payload(row["payload_bytes"] or 0), row["transport"], row["reliability"]]
        which = [
            row["subscribers"] or "",
            "" if row["repetition"] is None else row["repetition"],
            row["attempt"] or "",
        ]
        values = [formats.number(_latency(row, quantity)) for quantity in ("p50", "p90", "p99")]
        found = (
            [row["reason"] or "no reason recorded"]
            if invalid
            else [
                "yes" if row["valid"] else "no",
                formats.number(row["throughput_mbps"]),
                *values,
                formats.number(row["lost_percent"]),
            ]
        )
        texts = [
            ", ".join(str(part) for part in condition if part),
            *map(str, which),
            *found,
            row["trial_id"],
        ]
        cells.append([tables.network(content, row[UNIT]), *map(Cell, texts)])
    return [Table(caption, heads, cells)]  # fmt: skip


def _latency(row: Row, quantity: str) -> float | None:
    """Return the latency or the delay of an attempt; no test measures both."""
    latency = row[f"latency_{quantity}_us"]
    return row[f"delay_{quantity}_us"] if latency is None else latency


def _event(row: Row) -> tuple[str, str, str]:
    """Return time, name and details of an event."""
    # The facts of a resumed campaign would fill a page; events.jsonl has them.
    details = {key: value for key, value in row.items() if key not in ("at", "event", "facts")}
    text = ", ".join(f"{key} {_text(value)}" for key, value in details.items())
    return formats.moment(row.get("at")), str(row.get("event", "")), text


def _by_families(content: Content) -> Iterator[tuple[str, str, list[Row]]]:
    """Yield each network with its trials: (label, name to show, trials).

    If the campaign measured several IP families, this yields a network once for each of them.
    """
    trials = [row for setting in content.settings for row in setting.trials]
    several = len({row["ip_families"] for row in trials}) > 1
    for label in content.networks:
        own = [row for row in trials if row[UNIT] == label]
        if not several:
            yield label, label, own
            continue
        for families in dict.fromkeys(row["ip_families"] for row in own):
            name = f"{label}, {conditions.describe({'ip_families': families})}"
            yield label, name, [row for row in own if row["ip_families"] == families]


def _networks(content: Content) -> list[Table]:
    """Return the tables of the networks: what is known of them, the software that ran them, and what was observed."""
    rows = []
    for label, name, trials in _by_families(content):
        fact = content.network_facts.get(label, {})
        trial = trials[-1] if trials else {}

        def get(*names: str, fact: dict = fact, trial: dict = trial) -> str:
            values = [source.get(name) for name in names for source in (fact, trial)]
            return next((_text(value) for value in values if value not in (None, "", {}, [], "{}")), "")

        options, proof = get("options", "network_options"), str(trial.get("network_proof") or "")
        rows.append([tables.network(content, label, name), *map(Cell, (
            _text(trial.get("mtu_bytes") or "") or get("mtu", "mtu_bytes"), get("encapsulation") or "none",
            _encryption(fact), get("multicast") or "no", get("engine") or "–", get("fidelity"),
            "; ".join(part for part in (get("differences"), options, proof) if part),
        ))])  # fmt: skip
    heads = [
        "network", "MTU", "encapsulation", "encryption", "multicast", "engine", "fidelity",
        "differences, options, proof",
    ]  # fmt: skip
    software = [
        [tables.network(content, label, name), Cell(component), Cell(_short(version))]
        for label, name, trials in _by_families(content)
        for component, version in network_software(trials).items()
    ]
    found = [
        Table("Networks", heads, rows),
        Table("Software of the networks", ["network", "component", "version"], software, _SOFTWARE),
        _observed(content),
    ]
    return [table for table in found if table.rows]


_SOFTWARE = (
    "What ran on the cluster while each network was measured: agents, what installs their CNI plugins, and kube-proxy,"
    " with versions and digests of the images."
)
_ON_THE_LINK = (
    "Before it measured, k8sdds sent known datagrams between two pods on different nodes and captured what left the"
    " node of the sender. These values were observed, whatever the network is called. Rules are those of the"
    " sender's node."
)


def _encryption(fact: dict[str, Any]) -> str:
    """Describe how a network encrypts packets. Earlier versions recorded an unknown encryption as none."""
    name = fact.get("name")
    is_foreign = name in known_names() and name not in NETWORKS
    recorded = None if is_foreign else fact.get("encryption")
    return "unknown" if recorded is None else str(recorded) or "none"


_OBSERVED = (
    ("path_mtu_bytes", "path MTU"), ("cleartext", "readable"), ("multicast", "multicast"),
    ("masqueraded", "masqueraded"), ("conntrack", "conntrack"), ("rules", "rules"),
    ("rules_matched", "matched per packet"), ("programs", "BPF programs"),
)  # fmt: skip
"""Keys of a fingerprint with the heads of their columns."""


def _observed(content: Content) -> Table:
    """Return the table of the networks' fingerprints; no rows if the campaign recorded none."""
    rows = []
    for label, name, trials in _by_families(content):
        document = json.loads(next((row["fingerprint"] for row in trials if row["fingerprint"]), "null"))
        if not fits(Fingerprint, document):
            continue
        found = Fingerprint.model_validate(document)
        added = f"{found.outer}, {found.added_bytes} bytes" if found.added_bytes else found.outer
        reasons = "; ".join(dict.fromkeys(found.not_observed.values()))
        texts = [added, *(found.value(key) for key, _ in _OBSERVED), reasons]
        rows.append([tables.network(content, label, name), *map(Cell, texts)])
    heads = ["network", "added by the network", *(head for _, head in _OBSERVED), "why not observed"]
    return Table("Observed on the link", heads, rows, _ON_THE_LINK)


def _facts(content: Content) -> list[Table]:
    """Return the facts about the testbed as text, with sizes in GiB, and the installed network of each block."""
    trials = [row for setting in content.settings for row in setting.trials]
    installed = installed_networks(trials)
    facts = dict(content.run.facts)
    if installed:
        # What was installed at the start is that of the first block.
        facts.pop("installed_network_facts", None)
        facts["installed_network"] = "; ".join(
            f"{name} ({'block' if len(blocks) == 1 else 'blocks'} {', '.join(map(str, blocks))})"
            for name, blocks in installed.items()
        )
    rows = []
    for name, value in facts.items():
        is_size = name.endswith("_bytes") and isinstance(value, int | float)
        text = f"{value / 2**30:.1f} GiB" if is_size else _short(_text(value))
        if text:
            rows.append([Cell(name.removesuffix("_bytes").replace("_", " ")), Cell(text)])
    under = (
        "campaign.json has hashes and boot ids in full." if any("…" in row[1].text for row in rows) else ""
    )
    return [Table("Facts", ["fact", "value"], rows, under)] if rows else []


def _short(text: str) -> str:
    """Shorten hashes and boot ids, which nobody reads in full."""
    return re.sub(r"\b([0-9a-f]{8})(?:[0-9a-f]{24,}|(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b", r"\1…", text)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
