"""Write report.html: one self-contained file, from the template report.html.j2."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis import conditions, missing
from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.network_software import installed_networks, network_software
from k8sdds.analysis.overhead import plain_rows
from k8sdds.model.axis import payload
from k8sdds.networks import NETWORKS, detection
from k8sdds.report import document, formats, profiles, run_tables, summary
from k8sdds.report.content import Content
from k8sdds.report.figures import inline_svg
from k8sdds.report.html import explore, tables
from k8sdds.report.settings import Row
from k8sdds.report.theme import network_colors
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

MAX_STATEMENTS = 2
"""Maximum number of statements on the first screen."""

_FIGURE_SECTIONS = {
    **{name: name.capitalize() for name in WORKLOADS},
    "subscribers": "Number of subscribers",
    "protection": "Protection in the middleware and in the network",
    "trade-off": "Throughput against latency",
    "fairness": "Subscribers of a trial",
    "timeline": "Throughput over time",
    "topology": "Paths, MTUs and dropped packets",
    "resources": "CPU and memory",
    "profile": "Where the CPU time goes",
}
"""Sections that consist of figures, in their order."""
_WITH_TABLES = ("capacity", "protection", "profile")
"""Sections that also have tables, which remain if their only figure is the main one."""


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
        "report.html.j2", variables, scripts, labels=content.networks, figure_rules=rules,
        allowed=[library.hash] if data else [], connects=bool(state),
    )  # fmt: skip


def _context(content: Content, figures: list[Figure]) -> dict[str, Any]:
    """Return the variables of the template."""
    campaign = content.campaign
    main = _main_figure(figures)
    figures = [figure for figure in figures if figure is not main]
    figure_sections = {
        **_FIGURE_SECTIONS,
        **{
            figure.section: formats.capital(figure.section)
            for figure in figures
            if figure.section not in ("overheads", *_FIGURE_SECTIONS)
        },
    }
    drawn = [
        (section, title)
        for section, title in figure_sections.items()
        if any(figure.section == section for figure in figures)
        or (main is not None and main.section == section and section in _WITH_TABLES)
    ]
    overhead_tables = [table for setting in content.settings for table in tables.overheads(content, setting)]
    tables_per_run = run_tables.tables(content)
    contrast_tables = tables.contrasts(content)
    limit_tables = tables.limits(content)
    background, top_nodes = tables.background(content.run), tables.top_nodes(content.run)
    reasons = Counter(str(row["reason"] or "no reason recorded").split(":")[0] for row in content.invalid)
    statements = summary.answer(content)
    return {
        "colors": {
            label: style.light.strip("#") for label, style in network_colors(content.networks).items()
        },
        "drawn_sections": drawn,
        "sections": [
            *([("overheads", "Overheads")] if overhead_tables else []),
            *drawn,
            *([("runs", "Single runs")] if tables_per_run else []),
            *([("contrasts", "Settings compared within each network")] if contrast_tables else []),
            *([("limit", "Share of the machine's limit")] if limit_tables else []),
            *([("levels", "All levels")] if content.settings else []),
            ("trouble", "Invalid attempts, warnings and events"),
            ("networks", "Networks and their datapaths"),
            *([("upkeep", "Background cost of the networks")] if background or top_nodes else []),
            ("testbed", "Testbed"),
            ("reproduce", "How to reproduce"),
            *([("trials", "All attempts")] if len(content.table) else []),
            ("reading", "How to read this report"),
        ],
        "name": content.name,
        "campaign": campaign.get("campaign") or content.run.path.name,
        "overview": _overview(content),
        "statements": statements[:MAX_STATEMENTS],
        "more_statements": statements[MAX_STATEMENTS:],
        "main_figure": main,
        "conditions": content.conditions,
        "caveats": summary.caveats(content),
        "figures": {
            section: [figure for figure in figures if figure.section == section]
            for section in ("overheads", *figure_sections)
        },
        "overhead_tables": overhead_tables,
        "run_tables": tables_per_run,
        "contrast_tables": contrast_tables,
        "limit_tables": limit_tables,
        "protection_tables": tables.protection(content),
        "capacity_tables": tables.capacities(content),
        "profile_tables": profiles.tables(content),
        "background": background,
        "top_nodes": top_nodes,
        "level_tables": [
            tables.levels(content, setting, test) for setting in content.settings for test in setting.tests
        ],
        "baseline": content.baseline,
        "failed": [_attempt(row) for row in content.failed],
        "invalid": [_attempt(row) for row in content.invalid],
        "reasons": reasons.most_common(),
        "warnings": content.warnings,
        "missing": [
            {**row, "title": METRICS[row["quantity"]].title} for row in missing.by_network(content.best)
        ],
        "events": [_event(row) for row in content.notable_events],
        "networks": _networks(content),
        "observed": _observed(content),
        "facts": _facts(content),
        "software": _software(content),
        "testbed": content.testbed,
        "seed": campaign.get("seed"),
        "version": campaign.get("k8sdds_version"),
        "origin": "imported" if content.testbed.startswith("imported") else "measured",
        "command": _command(content.run),
        "trials": _attempts(content),
        "trials_left": max(0, len(content.table) - MAX_TRIALS),
        "relevant_percent": summary.RELEVANT_PERCENT,
    }


def _command(run: RunFolder) -> str:
    """Return the command that repeats the campaign."""
    options: list[str] = []
    with suppress(InputError):  # where it was measured is not known
        options = selection.parse(run.reached).options()
    return run.repeat_command(run.path / EXPERIMENT, *options)


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


def _attempt(row: Row) -> dict[str, str]:
    condition = [row["test"], payload(row["payload_bytes"] or 0), row["transport"], row["reliability"]]
    return {
        "network": row[UNIT],
        "condition": ", ".join(str(part) for part in condition if part),
        "subscribers": str(row["subscribers"] or ""),
        "repetition": "" if row["repetition"] is None else str(row["repetition"]),
        "attempt": str(row["attempt"] or ""),
        "trial_id": row["trial_id"],
        "reason": row["reason"] or "no reason recorded",
    }


def _attempts(content: Content) -> list[list[str]]:
    rows = []
    for row in plain_rows(content.table.head(MAX_TRIALS)):
        base = _attempt(row)
        rows.append([
            base["network"], base["condition"], base["subscribers"], base["repetition"], base["attempt"],
            "yes" if row["valid"] else "no", formats.number(row["throughput_mbps"]),
            *(formats.number(_latency(row, quantity)) for quantity in ("p50", "p90", "p99")),
            formats.number(row["lost_percent"]), base["trial_id"],
        ])  # fmt: skip
    return rows


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


def _networks(content: Content) -> list[dict[str, str]]:
    networks = []
    for label, name, trials in _by_families(content):
        fact = content.network_facts.get(label, {})
        trial = trials[-1] if trials else {}

        def get(*names: str, fact: dict = fact, trial: dict = trial) -> str:
            values = [source.get(name) for name in names for source in (fact, trial)]
            return next((_text(value) for value in values if value not in (None, "", {}, [], "{}")), "")

        networks.append({
            "label": label, "name": name, "mtu": _text(trial.get("mtu_bytes") or "") or get("mtu", "mtu_bytes"),
            "options": get("options", "network_options"),
            "encapsulation": get("encapsulation") or "none", "encryption": _encryption(fact),
            "multicast": get("multicast") or "no", "engine": get("engine"), "fidelity": get("fidelity"),
            "differences": get("differences"), "proof": str(trial.get("network_proof") or ""),
        })  # fmt: skip
    return networks


def _encryption(fact: dict[str, Any]) -> str:
    """Describe how a network encrypts packets. Earlier versions recorded an unknown encryption as none."""
    name = fact.get("name")
    is_foreign = name in detection.names() and name not in NETWORKS
    recorded = None if is_foreign else fact.get("encryption")
    return "unknown" if recorded is None else str(recorded) or "none"


_OBSERVED = (
    ("path_mtu_bytes", "path MTU"), ("cleartext", "readable"), ("multicast", "multicast"),
    ("masqueraded", "masqueraded"), ("conntrack", "conntrack"), ("rules", "rules"),
    ("rules_matched", "matched per packet"), ("programs", "BPF programs"),
)  # fmt: skip
"""Keys of a fingerprint with the heads of their columns."""


def _observed(content: Content) -> dict[str, Any]:
    """Return the table of the networks' fingerprints; no rows if the campaign recorded none."""
    rows = []
    for label, name, trials in _by_families(content):
        document = json.loads(next((row["fingerprint"] for row in trials if row["fingerprint"]), "null"))
        if not fits(Fingerprint, document):
            continue
        found = Fingerprint.model_validate(document)
        added = f"{found.outer}, {found.added_bytes} bytes" if found.added_bytes else found.outer
        reasons = dict.fromkeys(found.not_observed.values())
        rows.append((label, name, [added, *(found.value(name) for name, _ in _OBSERVED), "; ".join(reasons)]))
    return {
        "heads": ["added by the network", *(head for _, head in _OBSERVED), "why not observed"],
        "rows": rows,
    }


def _software(content: Content) -> list[tuple[str, str, dict[str, str]]]:
    """Return the networks with the software that ran them: (label, name to show, versions by component)."""
    listed = ((label, name, network_software(trials)) for label, name, trials in _by_families(content))
    return [entry for entry in listed if entry[2]]


def _facts(content: Content) -> list[tuple[str, str]]:
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
    return [
        (
            name.removesuffix("_bytes").replace("_", " "),
            f"{value / 2**30:.1f} GiB"
            if name.endswith("_bytes") and isinstance(value, int | float)
            else _text(value),
        )
        for name, value in facts.items()
    ]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
