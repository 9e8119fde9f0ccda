"""Draw the throughput of networks against their latency or delay."""

from __future__ import annotations

from pathlib import Path

from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import SINGLE_WIDTH, WIDTH, Figure, grid, legend, legend_height, save
from k8sdds.report.figures.estimates import Estimate, reach, scale
from k8sdds.report.settings import THROUGHPUT, Point, Row, Setting
from k8sdds.report.theme import network_colors
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

TRADE_OFF = "trade-off"
"""The section of figures of throughput against latency."""


def draw(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw the throughput of networks against their latency or delay, one panel per point."""
    rates = setting.levels(THROUGHPUT)
    name = next(
        (name for name in HEADLINES if "_p90_" in name and rates.keys() & setting.levels(name).keys()), None
    )
    if name is None:
        return None
    times = setting.levels(name)
    both = [cell for cell in rates if cell in times and min(rates[cell]["mean"], times[cell]["mean"]) > 0]
    points = sorted({point for _, point in both})
    if len({label for label, _ in both}) < 2:
        return None
    points = [points[round(i * (len(points) - 1) / 2)] for i in range(3)] if len(points) > 3 else points
    drawing = _panels(content, setting, points, {cell: (rates[cell], times[cell]) for cell in both}, name)
    title = f"Throughput against {METRICS[name].title}: {setting.title}"
    alt = f"{title}. " + "; ".join(
        f"{label} {setting.point_label(point)} {formats.number(rates[label, point]['mean'])} Mbit/s,"
        f" {formats.number(times[label, point]['mean'])} {METRICS[name].unit}"
        for label, point in both
        if point in points
    )
    caption = (
        "Upper left is best. The values come from separate tests: latency was not measured at this throughput."
        f" Logarithmic axes. {content.caption(setting, None)}."
    )
    slug = setting.file_name(TRADE_OFF)
    return save(drawing, folder, slug, TRADE_OFF, title, f"{alt}.", caption)


def _panels(
    content: Content,
    setting: Setting,
    points: list[Point],
    values: dict[tuple[str, Point], tuple[Row, Row]],
    name: str,
):
    styles = network_colors(content.networks)
    used = content.ordered(label for label, _ in values)
    left, right = 0.6, 0.16
    width = min(WIDTH / len(points), SINGLE_WIDTH) - left - right
    drawing, panels = grid(
        len(points), len(points), width, 2.0, left=left, right=right, head=0.3, foot=0.5, below=legend_height(used)
    )  # fmt: skip
    for ax, point in zip(panels, points, strict=True):
        shown = {label: pair for (label, other), pair in values.items() if other == point}
        for label in (label for label in used if label in shown):
            x, y = (Estimate.of_level(row) for row in reversed(shown[label]))
            ax.errorbar(
                x.mean, y.mean, xerr=_error(x), yerr=_error(y), fmt=styles[label].marker, color=styles[label].light,
                markersize=4.5, markeredgewidth=0, elinewidth=0.9,
            )  # fmt: skip
        pairs = shown.values()
        scale(ax, "y", *reach([Estimate.of_level(rate) for rate, _ in pairs], ratio=True), logarithmic=True)
        scale(
            ax,
            "x",
            *reach([Estimate.of_level(time) for _, time in pairs], ratio=True),
            logarithmic=True,
            most=4,
        )
        ax.grid(True)
        ax.set_title(setting.point_label(point))
        ax.set_xlabel(f"{METRICS[name].title}, {METRICS[name].unit}", labelpad=2)
        ax.set_ylabel("throughput, Mbit/s", labelpad=2)
    legend(drawing, [(label, styles[label].marker, styles[label].light, "none") for label in used])
    return drawing


def _error(estimate: Estimate) -> list[list[float]] | None:
    if estimate.low is None or estimate.high is None:
        return None
    return [[max(estimate.mean - estimate.low, 0)], [max(estimate.high - estimate.mean, 0)]]
