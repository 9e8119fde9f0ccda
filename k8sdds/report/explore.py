"""Prepare the data and the scripts of the interactive parts of report.html.

The data are those of the static figures. Everything that scripts read is compressed and Base64, so no text of a user
can end a script element, and the libraries need a quarter of their size.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

from k8sdds.analysis.conditions import UNIT
from k8sdds.model.axis import payload
from k8sdds.report import document, formats
from k8sdds.report.content import Content
from k8sdds.report.figures import details
from k8sdds.report.settings import Cell, Point, Setting
from k8sdds.report.theme import network_colors
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row
from k8sdds.workloads import HEADLINES

MAX_TRIALS = 2000
"""Maximum number of trials that the interactive figure shows singly."""
MAX_TIMELINES = 500
"""Maximum number of trials of a setting that the interactive figure shows over time."""

_SHAPES = {
    "s": "square", "^": "triangle-up", "v": "triangle-down", "<": "triangle-left", ">": "triangle-right",
    "D": "diamond", "d": "diamond", "P": "cross", "X": "cross",
}  # fmt: skip
"""Vega's names of the markers of networks."""


@cache
def library() -> tuple[str, str]:
    """Return Vega and Vega-Lite, which explore.js starts: compressed, and their hash for the policy."""
    text = document.source("vega.js")
    return _packed(text), document.source_hash(text)


def packed_data(content: Content) -> str:
    """Return the data of the interactive figure, compressed; empty if there is no result."""
    if not content.settings:
        return ""
    return _packed(json.dumps(data(content), allow_nan=False, separators=(",", ":")))


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def data(content: Content) -> dict[str, Any]:
    """Return the levels and overheads of all settings by quantity, with the trials behind each point."""
    colors = network_colors(content.networks)
    sizes = {row["payload_bytes"] or 0 for setting in content.settings for row in setting.trials}
    return {
        "baseline": content.baseline,
        "networks": [
            {"label": label, "light": colors[label].light, "dark": colors[label].dark,
             "shape": _SHAPES.get(colors[label].marker, "circle")}
            for label in content.networks
        ],
        "payloads": {str(size): payload(size) for size in sorted(sizes)},
        "settings": [_setting(content, setting) for setting in content.settings],
    }  # fmt: skip


def _setting(content: Content, setting: Setting) -> dict[str, Any]:
    trials = setting.trials if len(content.best) <= MAX_TRIALS else []
    quantities = []
    for test in setting.tests:
        for name, metric in METRICS.items():
            levels = setting.levels(name, test)
            overheads = setting.all_overheads.get((test, name), {})
            if levels:
                quantities.append({
                    "test": test, "title": formats.capital(metric.title), "unit": metric.unit,
                    "headline": name in HEADLINES,
                    "points": [_point(content, cell, row, overheads.get(cell)) for cell, row in levels.items()],
                    "values": _numbers([row[name] for row in trials if row["test"] == test]),
                })  # fmt: skip
    return {
        "title": setting.title,
        "trials": [_trial(content, row, len(trials) <= MAX_TIMELINES) for row in trials],
        "quantities": quantities,
    }


def _place(content: Content, label: str, point: Point) -> dict[str, Any]:
    network = content.networks.index(label)
    return {"network": network, "subscribers": point.subscribers, "payload": point.payload_bytes}


def _trial(content: Content, row: Row, timed: bool) -> dict[str, Any]:
    """Return a trial with its point, and the rates of its subscribers over time if they were recorded."""
    shown = {"id": row["trial_id"], "test": row["test"], **_place(content, row[UNIT], Point.of(row))}
    if shares := details.shares(row):
        shown["shares"] = _numbers(shares, 4)
    if timed and len(steps := details.received(content, row)) >= details.FEWEST_STEPS:
        rates = _numbers([step.mbps for step in steps], 4)
        shown["rates"] = [[step.end_s, rate] for step, rate in zip(steps, rates, strict=True)]
    return shown


def _point(content: Content, cell: Cell, level: Row, overhead: Row | None) -> dict[str, Any]:
    shown = _place(content, *cell) | {"n": level["n"]}
    shown["level"] = _numbers([level[key] for key in ("mean", "ci_low", "ci_high")])
    if overhead is not None:
        keys = ("overhead_percent", "ci_low_percent", "ci_high_percent")
        shown["overhead"], shown["pairs"] = _numbers([overhead[key] for key in keys]), overhead["n"]
        shown["ratios"] = _numbers(overhead["values"])
    return shown


def _numbers(values: Sequence[float | None], digits: int = 5) -> list[float | None]:
    """Return numbers with fewer digits; None for those that are not finite, because JSON cannot state them."""
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.{digits}g}")
        for value in values
    ]
