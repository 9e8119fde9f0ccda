"""Draw levels as horizontal bars: one row per network, one panel per point.

A row shows the mean as a bar from 0, the 95 % interval as a line, the trials as dots and the mean as a
number. The figure is readable without a legend and without colors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.content import Content, Point, Row, Setting, test_of
from k8sdds.report.figures.canvas import FONT, WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.theme import INK, MUTED, PAPER, network_colors
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS = 9
_ROW, _HEAD, _FOOT, _GAP = 0.23, 0.3, 0.42, 0.22

RESOURCES = (
    "publisher_cpu_percent", "subscriber_cpu_percent", "publisher_host_cpu_percent",
    "subscriber_host_cpu_percent", "machine_cpu_percent", "softirq_percent", "publisher_rss_bytes",
    "subscriber_rss_bytes",
)  # fmt: skip


@dataclass
class Panel:
    """One panel: levels by network in the unit of the quantity, divided by `scale`."""

    title: str
    rows: dict[str, Row]
    unit: str
    scale: float = 1
    ticks: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Two further values to mark, such as p50 and p99, by network."""


def headline(content: Content, setting: Setting, folder: Path, name: str) -> Figure | None:
    """Draw a headline metric by network, one panel per point. The 90th percentile is shown with p50 and p99."""
    if not setting.levels(name):
        return None
    metric, test = METRICS[name], test_of(name, setting.tests)
    marks = [name.replace("_p90_", mark) for mark in ("_p50_", "_p99_")] if "_p90_" in name else []
    panels = []
    for point in _points(setting, name):
        rows = _rows_at(setting, name, point)
        ticks = {}
        if marks:
            low, high = (_rows_at(setting, mark, point) for mark in marks)
            ticks = {label: (_mean(low.get(label)), _mean(high.get(label))) for label in rows}
        panels.append(Panel(setting.point_label(point), rows, metric.unit, ticks=ticks))
    legend = " | marks the 50th and the 99th percentile (› if beyond the axis)." if marks else ""
    better = "More" if metric.gain else "Less"
    return _figure(
        content, setting, panels, folder, test, test, name,
        f"{formats.capital(metric.title)}: {setting.title}",
        f"{metric.description}. {better} is better.{legend}",
    )  # fmt: skip


def resources(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw CPU and memory at one point of the setting's first test that measured them."""
    for test in setting.tests:
        names = [name for name in RESOURCES if setting.levels(name, test)]
        if names:
            break
    else:
        return None
    # Many subscribers show best who does the work; the claims of the paper are about 1 KiB.
    points = {point for _, point in setting.levels(names[0], test)}
    point = min(points, key=lambda point: (-point.subscribers, abs(point.payload_bytes - 1024)))
    panels = []
    for name in names:
        metric, rows = METRICS[name], _rows_at(setting, name, point, test)
        memory = metric.unit == "bytes"
        if rows:
            unit = "MiB" if memory else metric.unit
            panels.append(Panel(formats.capital(metric.title), rows, unit, 2**20 if memory else 1))
    return _figure(
        content, setting, panels, folder, "resources", "resources", names[0],
        f"CPU and memory, {test} test at {setting.point_label(point)}: {setting.title}",
        f"{_sources(names)} Networks transfer different numbers of samples in a throughput test, so equal CPU"
        " is not equal cost.",
    )  # fmt: skip


def _sources(names: list[str]) -> str:
    """Describe the source of the values, which for published data differs from that of k8sdds trials."""
    if "publisher_host_cpu_percent" in names or "subscriber_host_cpu_percent" in names:
        return "CPU of all cores of the host as PerfTest printed it. Machine: as kubectl top printed it."
    return (
        "During the measured interval. Publisher and subscriber: counters of their pods. Machine: everything,"
        " including forwarding and encapsulation."
    )


def _points(setting: Setting, name: str) -> list[Point]:
    """Return all points, or a regular grid of at most MAX_PANELS.

    The grid has the fewest, a middle and the most subscribers, and the same payloads for each.
    """
    points = sorted({at for _, at in setting.levels(name)})
    if len(points) <= MAX_PANELS:
        return points
    numbers = _evenly(sorted({at.subscribers for at in points}), 3)
    payloads = _evenly(sorted({at.payload_bytes for at in points}), MAX_PANELS // len(numbers))
    return [at for at in points if at.subscribers in numbers and at.payload_bytes in payloads]


def _evenly(values: list[int], most: int) -> list[int]:
    if len(values) <= most:
        return values
    step = (len(values) - 1) / (most - 1)
    return [values[round(i * step)] for i in range(most)]


def _rows_at(setting: Setting, name: str, point: Point, test: str | None = None) -> dict[str, Row]:
    return {label: row for (label, at), row in setting.levels(name, test).items() if at == point}


def _mean(row: Row | None) -> float | None:
    return None if row is None else row["mean"]


def _figure(
    content: Content, setting: Setting, panels: list[Panel], folder: Path,
    kind: str, section: str, quantity: str, title: str, explanation: str,
) -> Figure:  # fmt: skip
    labels = [label for label in content.networks if any(label in panel.rows for panel in panels)]
    styles = network_colors(content.networks)
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    margin = text_width(labels) + 0.2
    width = min((WIDTH - margin - 0.08 - (columns - 1) * _GAP) / columns, 3.6)
    height = len(labels) * _ROW + 0.08
    drawing = new(margin + columns * width + (columns - 1) * _GAP + 0.08, lines * (_HEAD + height + _FOOT))
    for index, panel in enumerate(panels):
        line, column = divmod(index, columns)
        left, top = margin + column * (width + _GAP), _HEAD + line * (_HEAD + height + _FOOT)
        ax = axes(drawing, left, top, width, height)
        _panel(ax, panel, labels, styles, width)
        if column:
            ax.set_yticklabels([])
    points = len({at for _, at in setting.levels(quantity)})
    selection = (
        f" The figure shows {MAX_PANELS} of {points} combinations."
        if points > MAX_PANELS and kind != "resources"
        else ""
    )
    test = next(iter(panels[0].rows.values()))["test"]
    caption = (
        f"{explanation}{selection} Bars: mean. Lines: 95 % interval (cut off at the axis). Dots: single"
        f" trials. {content.caption(setting, test)}."
    )
    slug = "-".join(part for part in (kind, setting.slug) if part)
    return save(drawing, folder, slug, section, title, _alt(title, panels), caption)


def _panel(ax: Axes, panel: Panel, labels: list[str], styles: dict[str, NetworkColor], width: float) -> None:
    means = [row["mean"] for row in panel.rows.values()]
    highs = [min(row["ci_high"] or 0, 3 * row["mean"]) for row in panel.rows.values()]
    tops = [row["maximum"] for row in panel.rows.values()]
    reach = max((*means, *highs, *tops, 1e-12))
    if panel.unit == "% of all cores":
        reach = max(min(reach, 100), *tops)
    # A 99th percentile far outside would compress everything else, so it is only pointed at.
    p99 = [high for _, high in panel.ticks.values() if high is not None]
    if p99 and max(p99) < 1.8 * reach:
        reach = max(reach, *p99)
    # Leave room on the right for the mean as a number.
    limit = reach / panel.scale / (1 - 0.5 / width)
    ax.set_xlim(0, limit)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    for position, label in enumerate(labels):
        row = panel.rows.get(label)
        if row is None:
            ax.text(limit * 0.01, position, "no valid trial", va="center", color=MUTED, size=FONT - 1.5)
            continue
        _row(ax, panel, row, position, styles[label], label, reach)
    ax.set_yticks(range(len(labels)), labels)
    ax.tick_params(axis="y", length=0, pad=4)
    ax.spines["left"].set_color(MUTED)
    ax.grid(axis="x")
    ax.locator_params(axis="x", nbins=4)
    needed = text_width([panel.title]) * 1.15
    ax.set_title(panel.title, fontsize=FONT * min(1, width / needed))
    ax.set_xlabel(panel.unit, labelpad=2)


def _row(
    ax: Axes, panel: Panel, row: Row, position: int, style: NetworkColor, label: str, reach: float
) -> None:
    color, scale = style.light, panel.scale
    mean = row["mean"] / scale
    ax.barh(position, mean, height=0.62, color=color, alpha=0.28, linewidth=0)
    ax.plot([mean, mean], [position - 0.31, position + 0.31], color=color, linewidth=1.6)
    if row["ci_low"] is not None:
        low, high = max(row["ci_low"] / scale, 0), row["ci_high"] / scale
        ax.plot([low, high], [position, position], color=INK, linewidth=1.0)
    values = row["values"]
    # The dots are spread within the row in measuring order, so that equal values stay visible. There is one
    # artist for all dots because a large sweep has tens of thousands of them.
    last = max(len(values) - 1, 1)
    heights = [position + (0.36 * (i / last - 0.5) if len(values) > 1 else 0.0) for i in range(len(values))]
    ax.plot(
        [value / scale for value in values], heights, style.marker, markersize=2.6, color=color,
        markeredgewidth=0,
    )  # fmt: skip
    ticks = [tick / scale for tick in panel.ticks.get(label, ()) if tick is not None and tick <= reach]
    if ticks:
        ax.vlines(ticks, position - 0.2, position + 0.2, colors=MUTED, linewidth=0.9)
    end = ax.get_xlim()[1]
    beyond = "›" if any(tick is not None and tick > reach for tick in panel.ticks.get(label, ())) else ""
    # The background covers the grid lines behind the number.
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}
    ax.text(end, position, formats.number(mean) + beyond, ha="right", va="center", size=FONT - 1, bbox=box)


def _alt(title: str, panels: list[Panel]) -> str:
    texts = []
    for panel in panels:
        values = ", ".join(
            f"{label} {formats.number(row['mean'] / panel.scale)}" for label, row in panel.rows.items()
        )
        texts.append(f"{panel.title} ({panel.unit}): {values}")
    return f"{title}. {'; '.join(texts)}."
