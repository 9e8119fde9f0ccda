"""Draw the throughput of networks against their latency or delay."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import (
    SINGLE_WIDTH,
    WIDTH,
    Figure,
    grid,
    legend,
    legend_height,
    save,
    spread,
)
from k8sdds.report.figures.estimates import Estimate, Styles, reach, scale
from k8sdds.report.settings import THROUGHPUT, Setting
from k8sdds.report.theme import network_colors
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRADE_OFF = "trade-off"


def draw(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw the throughput of networks against their latency or delay, one panel per point."""
    rates = setting.levels(THROUGHPUT)
    times_of = {name: setting.levels(name) for name in HEADLINES if "_p90_" in name}
    name, times = next(
        ((name, times) for name, times in times_of.items() if rates.keys() & times.keys()), ("", {})
    )
    both = [cell for cell in rates if cell in times and min(rates[cell]["mean"], times[cell]["mean"]) > 0]
    used = content.ordered(label for label, _ in both)
    if len(used) < 2:
        return None
    points = spread(sorted({point for _, point in both}), 3)
    metric, styles = METRICS[name], network_colors(content.networks)
    drawing, panels = grid(
        [2.0] * len(points), len(points), min(WIDTH / len(points), SINGLE_WIDTH), left=0.6, right=0.16,
        head=0.3, foot=0.5, below=legend_height(used),
    )  # fmt: skip
    for ax, point in zip(panels, points, strict=True):
        shown = {
            label: (times[label, point], rates[label, point]) for label in used if (label, point) in both
        }
        pairs = {
            label: (Estimate.of_level(time), Estimate.of_level(rate)) for label, (time, rate) in shown.items()
        }
        _panel(ax, pairs, styles)
        ax.set(
            title=setting.point_label(point),
            xlabel=f"{metric.title}, {metric.unit}",
            ylabel="throughput, Mbit/s",
        )
    legend(drawing, [(label, styles[label].marker, styles[label].light, "none") for label in used])
    title = f"Throughput against {metric.title}: {setting.title}"
    alt = f"{title}. " + "; ".join(
        f"{label} {setting.point_label(point)} {formats.number(rates[label, point]['mean'])} Mbit/s,"
        f" {formats.number(times[label, point]['mean'])} {metric.unit}"
        for label, point in both
        if point in points
    )
    caption = (
        "Upper left is best. The values come from separate tests: latency was not measured at this throughput."
        f" Logarithmic axes. {content.caption(setting, None)}."
    )
    return save(drawing, folder, setting.file_name(TRADE_OFF), TRADE_OFF, title, f"{alt}.", caption)


def _panel(ax: Axes, pairs: Mapping[str, tuple[Estimate, Estimate]], styles: Styles) -> None:
    for label, (x, y) in pairs.items():
        ax.errorbar(
            x.mean, y.mean, xerr=_error(x), yerr=_error(y), fmt=styles[label].marker, color=styles[label].light,
            ms=4.5, mew=0, elinewidth=0.9,
        )  # fmt: skip
    scale(ax, "x", reach([x for x, _ in pairs.values()], ratio=True), most=4)
    scale(ax, "y", reach([y for _, y in pairs.values()], ratio=True))
    ax.grid()


def _error(estimate: Estimate) -> list[list[float]] | None:
    if estimate.low is None or estimate.high is None:
        return None
    return [[max(estimate.mean - estimate.low, 0)], [max(estimate.high - estimate.mean, 0)]]
