"""Figures with a row per network and a panel per point: levels from zero, every trial a dot.

A row shows the mean as a bar from 0, the 95 % interval as a line, the trials as dots, and the mean in
figures, so that the figure can be read without a legend and without colours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.content import Content, Point, Row, Setting
from k8sdds.report.figures.canvas import FONT, INK, MUTED, PAPER, WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.theme import network_colors
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS = 9
_ROW, _HEAD, _FOOT, _GAP = 0.23, 0.3, 0.42, 0.22


@dataclass
class Panel:
    """One panel: levels by network in the quantity's unit, divided by `scale`."""

    title: str
    rows: dict[str, Row]
    unit: str
    scale: float = 1
    ticks: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Two further values to mark (p50 and p99), by network."""


def throughput(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Throughput by network, one panel per payload or number of subscribers."""
    name = "throughput_mbps"
    if not setting.levels(name):
        return None
    points = _points(setting, name)
    panels = [Panel(setting.point_words(at), _at(setting, name, at), "Mbit/s") for at in points]
    each = " each subscriber received" if any(at.subscribers > 1 for at in points) else " received"
    return _figure(
        content, setting, panels, folder, "throughput", "throughput", name,
        f"Throughput: {setting.title}", f"Payload rate{each}; more is better.",
    )  # fmt: skip


def latency(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """90th percentile of latency by network with p50 and p99 marked, one panel per point."""
    name = "latency_p90_us"
    if not setting.levels(name):
        return None
    panels = []
    for at in _points(setting, name):
        p50, p99 = _at(setting, "latency_p50_us", at), _at(setting, "latency_p99_us", at)
        rows = _at(setting, name, at)
        ticks = {label: (_mean(p50.get(label)), _mean(p99.get(label))) for label in rows}
        panels.append(Panel(setting.point_words(at), rows, "µs", ticks=ticks))
    return _figure(
        content, setting, panels, folder, "latency", "latency", name, f"p90 latency: {setting.title}",
        "One-way latency, 90th percentile; | marks the 50th and the 99th percentile (› where it lies beyond"
        " the axis); less is better.",
    )  # fmt: skip


def resources(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """CPU and memory at one point of the throughput test (of the latency test, where there is no other)."""
    names = ("publisher_cpu_percent", "subscriber_cpu_percent", "publisher_host_cpu_percent",
             "subscriber_host_cpu_percent", "machine_cpu_percent", "softirq_percent",
             "publisher_rss_bytes", "subscriber_rss_bytes")  # fmt: skip
    for test in setting.tests:
        found = [name for name in names if setting.levels(name, test)]
        if found:
            break
    else:
        return None
    # The most subscribers show where work moves as they are added; 1 KiB is the study's point for claims.
    points = {at for _, at in setting.levels(found[0], test)}
    at = min(points, key=lambda point: (-point.subscribers, abs(point.payload_bytes - 1024)))
    panels = []
    for name in found:
        quantity, rows = METRICS[name], _at(setting, name, at, test)
        memory = quantity.unit == "bytes"
        if rows:
            unit = "MiB" if memory else quantity.unit
            panels.append(Panel(formats.capital(quantity.title), rows, unit, 2**20 if memory else 1))
    return _figure(
        content, setting, panels, folder, "resources", "resources", found[0],
        f"CPU and memory, {test} test at {setting.point_words(at)}: {setting.title}",
        f"{_metered(found)} Networks move different numbers of samples in a throughput test, so equal CPU is"
        " not equal cost.",
    )  # fmt: skip


def _metered(names: list[str]) -> str:
    """Where the quantities come from: published data have other meters than our trials."""
    if "publisher_host_cpu_percent" in names or "subscriber_host_cpu_percent" in names:
        return "CPU as PerfTest printed it, of all cores of the host; machine: as kubectl top printed it."
    return (
        "During the measured interval. Publisher and subscriber: their pods' own counters. Machine:"
        " everything, forwarding and encapsulation included."
    )


def _points(setting: Setting, name: str) -> list[Point]:
    """The points to draw: all, or at most MAX_PANELS that are regular: fewest, middle and most subscribers,
    and the same payloads for each."""
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


def _at(setting: Setting, name: str, point: Point, test: str | None = None) -> dict[str, Row]:
    return {label: row for (label, at), row in setting.levels(name, test).items() if at == point}


def _mean(row: Row | None) -> float | None:
    return None if row is None else row["mean"]


def _figure(
    content: Content, setting: Setting, panels: list[Panel], folder: Path,
    kind: str, section: str, quantity: str, title: str, explained: str,
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
    drawn = len({at for _, at in setting.levels(quantity)})
    some = (
        f" {MAX_PANELS} of {drawn} combinations are drawn."
        if drawn > MAX_PANELS and kind != "resources"
        else ""
    )
    test = next(iter(panels[0].rows.values()))["test"]
    caption = (
        f"{explained}{some} Bars from 0: mean; lines: 95 % interval (cut at the axis); dots: every trial."
        f" {content.caption(setting, test)}."
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
    # The 99th percentile may lie far out; it then is pointed at instead of squeezing everything else.
    p99 = [high for _, high in panel.ticks.values() if high is not None]
    if p99 and max(p99) < 1.8 * reach:
        reach = max(reach, *p99)
    # Room at the right for the mean in figures.
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
    ax: Axes, panel: Panel, row: Row, position: int, look: NetworkColor, label: str, reach: float
) -> None:
    colour, scale = look.light, panel.scale
    mean = row["mean"] / scale
    ax.barh(position, mean, height=0.62, color=colour, alpha=0.28, linewidth=0)
    ax.plot([mean, mean], [position - 0.31, position + 0.31], color=colour, linewidth=1.6)
    if row["ci_low"] is not None:
        low, high = max(row["ci_low"] / scale, 0), row["ci_high"] / scale
        ax.plot([low, high], [position, position], color=INK, linewidth=1.0)
    values = row["values"]
    # Spread within the row, in the order of measuring: equal values stay visible. One artist for all dots:
    # a large sweep has tens of thousands.
    last = max(len(values) - 1, 1)
    heights = [position + (0.36 * (i / last - 0.5) if len(values) > 1 else 0.0) for i in range(len(values))]
    ax.plot(
        [value / scale for value in values], heights, look.marker, markersize=2.6, color=colour,
        markeredgewidth=0,
    )  # fmt: skip
    ticks = [tick / scale for tick in panel.ticks.get(label, ()) if tick is not None and tick <= reach]
    if ticks:
        ax.vlines(ticks, position - 0.2, position + 0.2, colors=MUTED, linewidth=0.9)
    end = ax.get_xlim()[1]
    beyond = "›" if any(tick is not None and tick > reach for tick in panel.ticks.get(label, ())) else ""
    # The background keeps grid lines out of the figures.
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.8}
    ax.text(end, position, formats.number(mean) + beyond, ha="right", va="center", size=FONT - 1, bbox=box)


def _alt(title: str, panels: list[Panel]) -> str:
    said = []
    for panel in panels:
        values = ", ".join(
            f"{label} {formats.number(row['mean'] / panel.scale)}" for label, row in panel.rows.items()
        )
        said.append(f"{panel.title} ({panel.unit}): {values}")
    return f"{title}. {'; '.join(said)}."
