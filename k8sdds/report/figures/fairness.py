"""Draw how evenly the subscribers of a trial were served."""

from __future__ import annotations

import json
from pathlib import Path

from k8sdds.analysis.conditions import UNIT
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import SINGLE_WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.figures.estimates import scale
from k8sdds.report.settings import Point, Row, Setting
from k8sdds.report.theme import network_colors

SECTION = "fairness"
_HEAD, _FOOT, _ROW = 0.3, 0.45, 0.25


def draw(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw the samples of each subscriber relative to the mean of its trial, for the most subscribers."""
    point = max(setting.points, key=Point.rank)
    test = setting.tests[0]
    by_network = {
        label: [share for row in setting.trials if (row[UNIT], row["test"], Point.of(row)) == (label, test, point)
                for share in shares(row)]
        for label in content.networks
    }  # fmt: skip
    by_network = {label: values for label, values in by_network.items() if values}
    if point.subscribers < 2 or not by_network:
        return None
    margin = text_width(list(by_network)) + 0.2
    width, height = SINGLE_WIDTH - margin - 0.3, _ROW * len(by_network) + 0.08
    drawing = new(margin + width + 0.3, _HEAD + height + _FOOT)
    ax = axes(drawing, margin, _HEAD, width, height)
    styles = network_colors(content.networks)
    for index, (label, values) in enumerate(by_network.items()):
        ax.plot(
            values, [index] * len(values), "|", color=styles[label].light, markersize=9, markeredgewidth=1.2
        )
    ax.set_yticks(range(len(by_network)), list(by_network))
    ax.set_ylim(len(by_network) - 0.5, -0.5)
    reach = 1.1 * max(1, *(abs(value - 100) for values in by_network.values() for value in values))
    scale(ax, "x", 100 - reach, 100 + reach, logarithmic=False)
    ax.grid(axis="x")
    ax.set_ylabel("")
    ax.set_title(setting.point_label(point))
    ax.set_xlabel("samples, % of the mean of the trial", labelpad=2)
    title = f"Subscribers of a trial: {setting.title}"
    alt = f"{title}. Samples relative to the mean, lowest to highest in percent. " + "; ".join(
        f"{label} {formats.number(min(values))} to {formats.number(max(values))}"
        for label, values in by_network.items()
    )
    caption = (
        f"One line per subscriber and trial: close lines mean equal service. n = {setting.repetitions(test)}."
    )
    slug = setting.file_name(SECTION)
    return save(drawing, folder, slug, SECTION, title, f"{alt}.", caption)


def shares(row: Row) -> list[float]:
    """Return the samples of each subscriber in percent of their mean; empty if they were not recorded."""
    counters = json.loads(row["link_bytes"] or "null")
    delivered = counters.get("delivered_samples") if isinstance(counters, dict) else None
    values = [value for value in (delivered or {}).values() if isinstance(value, int | float)]
    mean = sum(values) / len(values) if values else 0
    return [100 * value / mean for value in values] if mean > 0 and len(values) > 1 else []
