"""report.html: one self-contained file. The template says how it looks; here stands what it says."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis import contrast
from k8sdds.analysis.conditions import describe, payload
from k8sdds.analysis.overhead import plain_rows
from k8sdds.report import background_cost, formats, protection, runs, summary
from k8sdds.report import content as contents
from k8sdds.report.content import Content, Point, Row, Setting
from k8sdds.report.theme import css_variables, network_colors
from k8sdds.results.metrics import METRICS
from k8sdds.system.templates import templates

if TYPE_CHECKING:
    from k8sdds.report.figures import Figure

MAX_TRIALS = 2000
"""Rows of the table of all trials; a browser is slow beyond, and trials.csv has them all."""

_DRAWN = {
    "throughput": "Throughput",
    "latency": "Latency",
    "subscribers": "Subscribers",
    "protection": "Protection in the middleware and in the network",
    "resources": "CPU and memory",
}
"""Sections that consist of figures, in their order."""

_COMPARED = ("throughput_mbps", "latency_p90_us", "loaded_latency_p90_us")
_LEVELS = (
    "throughput_mbps", "samples_per_s", "latency_p50_us", "latency_p90_us", "latency_p99_us",
    "loaded_latency_p90_us", "lost_percent", "publisher_cpu_percent", "subscriber_cpu_percent",
    "publisher_host_cpu_percent", "subscriber_host_cpu_percent",
    "machine_cpu_percent", "softirq_percent", "publisher_cpu_us_per_sample", "subscriber_cpu_us_per_sample",
    "publisher_cpu_ms_per_mb", "subscriber_cpu_ms_per_mb", "machine_cpu_ms_per_mb",
    "wire_bytes_per_payload_byte", "publisher_rss_bytes", "subscriber_rss_bytes", "discovery_s",
)  # fmt: skip


def write(content: Content, figures: list[Figure], path: Path) -> Path:
    """Render the report into `path`."""
    environment = templates("k8sdds.report")
    # In print a hyphen before a number reads as a dash.
    environment.filters["minus"] = lambda text: re.sub(r"(?<![\w.])-(?=\d)", "\N{MINUS SIGN}", text)
    text = environment.get_template("report.html.j2").render(**_context(content, figures))
    path.write_text(text, encoding="utf-8")
    return path


def _context(content: Content, figures: list[Figure]) -> dict[str, Any]:
    campaign = content.campaign
    command = campaign.get("command")
    drawn = [
        (section, title) for section, title in _DRAWN.items() if any(f.section == section for f in figures)
    ]
    tables = [table for setting in content.settings for table in _overheads(content, setting)]
    run_tables = [
        {"title": table.title, "setting": table.setting, "text": runs.text(table)}
        for table in runs.tables(content)
    ]
    contrasts = _contrasts(content)
    upkept, tops = background_cost.table(content.run), background_cost.top_rows(content.run)
    reasons = Counter(str(row["reason"] or "no reason recorded").split(":")[0] for row in content.invalid)
    return {
        "colours": {label: look.light.strip("#") for label, look in network_colors(content.networks).items()},
        "drawn_sections": drawn,
        "sections": [
            *([("overheads", "Overheads")] if tables else []),
            *drawn,
            *([("runs", "Each run by itself")] if run_tables else []),
            *([("contrasts", "Settings compared within each network")] if contrasts else []),
            *([("levels", "All levels")] if content.settings else []),
            ("trouble", "Invalid attempts, warnings and disturbances"),
            ("networks", "Networks and their datapaths"),
            *([("upkeep", "What the networks cost beside the trials")] if upkept or tops else []),
            ("testbed", "Testbed"),
            ("reproduce", "How to reproduce"),
            *([("trials", "All attempts")] if len(content.table) else []),
            ("reading", "How to read this"),
        ],
        "css_variables": css_variables(content.networks),
        "name": content.name,
        "campaign": campaign.get("campaign") or content.run.path.name,
        "overview": _overview(content),
        "statements": summary.answer(content),
        "caveats": summary.caveats(content),
        "figures": {
            section: [figure for figure in figures if figure.section == section]
            for section in ("overheads", *_DRAWN)
        },
        "overhead_tables": tables,
        "run_tables": run_tables,
        "contrast_tables": contrasts,
        "protection_tables": _protections(content),
        "upkeep": upkept,
        "tops": tops,
        "level_tables": [
            _levels(content, setting, test) for setting in content.settings for test in setting.tests
        ],
        "baseline": content.baseline,
        "failed": [_trial(row) for row in content.failed],
        "invalid": [_trial(row) for row in content.invalid],
        "reasons": reasons.most_common(),
        "warnings": content.warnings,
        "disturbances": [_event(row) for row in content.disturbances],
        "networks": _networks(content),
        "facts": _facts(content),
        "testbed": content.testbed,
        "seed": campaign.get("seed"),
        "version": campaign.get("k8sdds_version"),
        "origin": "imported" if content.testbed.startswith("imported") else "measured",
        "command": shlex.join(map(str, command)) if isinstance(command, list) else str(command or ""),
        "trials": _trials(content),
        "trials_left": max(0, len(content.table) - MAX_TRIALS),
        "matters": summary.MATTERS_PERCENT,
    }


def _overview(content: Content) -> list[tuple[str, str]]:
    campaign = content.campaign
    counts = [f"{len(content.best)} of {content.planned} valid"]
    if content.invalid:
        counts.append(formats.count(len(content.invalid), "invalid attempt"))
    if content.untried:
        counts.append(f"{content.untried} not tried")
    pairs = [
        ("Started", formats.moment(campaign.get("started_at"))),
        ("Testbed", content.testbed),
        ("Baseline", content.baseline or "none"),
        ("Networks", ", ".join(content.networks)),
        ("Repetitions", campaign.get("repetitions")),
        ("Trials", "; ".join(counts)),
    ]
    return [(name, str(value)) for name, value in pairs if value not in (None, "")]


def _overheads(content: Content, setting: Setting) -> list[dict[str, Any]]:
    """Tables like the study's Tables I and II: networks × points, each with its interval, one per quantity.

    A setting with a single point gets one table of networks × quantities instead.
    """
    names = [name for name in _COMPARED if setting.overheads(name)]
    columns = [
        (name, point)
        for name in names
        for point in setting.points
        if any(at == point for _, at in setting.levels(name))
    ]
    if len(setting.points) == 1:
        return [_overhead_table(content, setting, columns)] if columns else []
    return [_overhead_table(content, setting, [c for c in columns if c[0] == name]) for name in names]


def _overhead_table(content: Content, setting: Setting, columns: list[tuple[str, Point]]) -> dict[str, Any]:
    names = list(dict.fromkeys(name for name, _ in columns))
    rows = [row for name in names for row in setting.overheads(name).values()]
    labels = [label for label in content.networks if any(row["network_label"] == label for row in rows)]
    mixed = len({row["n"] for row in rows}) > 1
    what = formats.capital(METRICS[names[0]].title) + " overhead" if len(names) == 1 else "Overhead"
    tests = {row["test"] for row in rows}
    return {
        "title": f"{what} in %",
        "setting": setting.title if len(setting.points) > 1 else f"{setting.title}, {_at(setting)}",
        "columns": [
            setting.point_words(at) if len(names) == 1 else METRICS[name].title for name, at in columns
        ],
        "baseline": [
            _level(setting.levels(name).get((content.baseline, at))) | {"unit": METRICS[name].unit}
            for name, at in columns
        ],
        "rows": [
            (label, [_percent(setting.overheads(name).get((label, at)), mixed) for name, at in columns])
            for label in labels
        ],
        "detectable": _detectable(rows),
        "caption": content.caption(setting, tests.pop() if len(tests) == 1 else None, relative=True),
    }


def _contrasts(content: Content) -> list[dict[str, Any]]:
    """Tables of settings compared within each network: networks × points, one per contrast and quantity."""
    tables = []
    for name in summary.MAIN:
        for versus, rows, setting in contrast.compared(content.contrasts(name)):
            cells = {(row["network_label"], Point.of(row)): row for row in rows}
            points = sorted({at for _, at in cells})
            labels = [label for label in content.networks if any(other == label for other, _ in cells)]
            counts = formats.range_of([row["n"] for row in rows])
            tables.append(
                {
                    "title": f"{formats.capital(versus)}: change of {METRICS[name].title} in %",
                    "columns": [
                        f"{formats.count(at.subscribers, 'sub')}, {payload(at.payload_bytes)}"
                        for at in points
                    ],
                    "rows": [
                        (label, [_percent(cells.get((label, at)), True, "change_percent") for at in points])
                        for label in labels
                    ],
                    "caption": f"{content.testbed} · n = {counts} · same network and repetition;"
                    f" {contents.INTERVAL}"
                    + (f"; {describe(setting)} (all settings: contrasts.csv)" if setting else ""),
                }
            )
    return tables


def _protections(content: Content) -> list[dict[str, Any]]:
    return [
        table | {"rows": [
            (name, against, [_percent(cell, mixed=True) for cell in cells])
            for name, against, cells in table["rows"]
        ]}
        for table in protection.tables(content)
    ]  # fmt: skip


def _at(setting: Setting) -> str:
    return payload(setting.points[0].payload_bytes)


def _percent(row: Row | None, mixed: bool, key: str = "overhead_percent") -> dict[str, Any]:
    if row is None:
        return {"value": "–", "interval": "", "seen": True, "n": ""}
    bounds = row["ci_low_percent"], row["ci_high_percent"]
    return {
        "value": formats.percent(row[key], *bounds).split(" ")[0],
        "interval": formats.interval(*bounds),
        "seen": row["seen"] is not False,
        "n": f"n = {row['n']}" if mixed else "",
    }


def _detectable(rows: list[Row]) -> str:
    values = sorted(row["detectable_percent"] for row in rows if row["detectable_percent"] is not None)
    if not values:
        return "nothing can be said about the smallest detectable difference"
    low, high = formats.detectable(values[0]), formats.detectable(values[-1])
    span = low if low == high else f"{low} to {high}"
    return f"smallest difference this n and spread can detect: {span}"


def _level(row: Row | None) -> dict[str, str]:
    if row is None:
        return {"value": "–", "interval": ""}
    scale = 2**20 if row["unit"] == "bytes" else 1
    low, high = (None, None) if row["ci_low"] is None else (row["ci_low"] / scale, row["ci_high"] / scale)
    text = formats.level(row["mean"] / scale, low, high)
    value, _, bracket = text.partition(" ")
    return {"value": value, "interval": bracket}


def _levels(content: Content, setting: Setting, test: str) -> dict[str, Any]:
    names = [name for name in _LEVELS if setting.levels(name, test)]
    shown = {name: setting.levels(name, test) for name in names}
    rows = []
    for point in setting.points:
        labels = [
            label for label in content.networks if any((label, point) in cells for cells in shown.values())
        ]
        for label in labels:
            cells = [_level(shown[name].get((label, point))) for name in names]
            rows.append((setting.point_words(point) if label == labels[0] else "", label, cells))
    units = [METRICS[name].unit.replace("bytes", "MiB") for name in names]
    return {
        "title": f"{setting.title}: {test} test",
        "heads": list(zip((METRICS[name].title for name in names), units, strict=True)),
        "rows": rows,
        "caption": f"{content.caption(setting, test)}; losses and softirq: t interval without logarithm",
    }


def _trial(row: Row) -> dict[str, str]:
    where = [row["test"], payload(row["payload_bytes"] or 0), row["transport"], row["reliability"]]
    return {
        "network": row["network_label"],
        "what": ", ".join(str(part) for part in where if part),
        "subscribers": str(row["subscribers"] or ""),
        "repetition": "" if row["repetition"] is None else str(row["repetition"]),
        "attempt": str(row["attempt"] or ""),
        "trial_id": row["trial_id"],
        "reason": row["reason"] or "no reason recorded",
    }


def _trials(content: Content) -> list[list[str]]:
    rows = []
    for row in plain_rows(content.table.head(MAX_TRIALS)):
        base = _trial(row)
        rows.append([
            base["network"], base["what"], base["subscribers"], base["repetition"], base["attempt"],
            "yes" if row["valid"] else "no", formats.number(row["throughput_mbps"]),
            formats.number(row["latency_p50_us"]), formats.number(row["latency_p90_us"]),
            formats.number(row["latency_p99_us"]), formats.number(row["lost_percent"]), base["trial_id"],
        ])  # fmt: skip
    return rows


def _event(row: Row) -> tuple[str, str, str]:
    # The facts of a resume fill a page; events.jsonl has them.
    details = {key: value for key, value in row.items() if key not in ("at", "event", "facts")}
    said = ", ".join(f"{key} {_text(value)}" for key, value in details.items())
    return formats.moment(row.get("at")), str(row.get("event", "")), said


def _networks(content: Content) -> list[dict[str, str]]:
    facts = content.campaign.get("networks")
    facts = facts if isinstance(facts, dict) else {}
    seen = {row["network_label"]: row for setting in content.settings for row in setting.trials}
    networks = []
    for label in content.networks:
        fact = facts.get(label) if isinstance(facts.get(label), dict) else {}
        trial = seen.get(label, {})

        def get(*names: str, fact: dict = fact, trial: dict = trial) -> str:
            found = [source.get(name) for name in names for source in (fact, trial)]
            return next((_text(value) for value in found if value not in (None, "", {}, [], "{}")), "")

        networks.append({
            "label": label, "mtu": get("mtu", "mtu_bytes"), "options": get("options", "network_options"),
            "encapsulation": get("encapsulation") or "none", "encryption": get("encryption") or "none",
            "multicast": get("multicast") or "no", "engine": get("engine"), "fidelity": get("fidelity"),
            "differences": get("differences"), "proof": str(trial.get("network_proof") or ""),
        })  # fmt: skip
    return networks


def _facts(content: Content) -> list[tuple[str, str]]:
    testbed = content.campaign.get("testbed")
    facts = testbed.get("facts") if isinstance(testbed, dict) else None
    named = [
        (name.removesuffix("_bytes").replace("_", " "), name, value) for name, value in (facts or {}).items()
    ]
    return [
        (words, _bytes(value) if name.endswith("_bytes") else _text(value)) for words, name, value in named
    ]


def _bytes(value: Any) -> str:
    return f"{value / 2**30:.1f} GiB" if isinstance(value, int | float) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_text(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
