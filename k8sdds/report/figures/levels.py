"""Draw the overheads and the levels of a setting along the payload or the number of subscribers.

A setting with a single point gets one row per network instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.model.axis import payload
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import FONT, SINGLE_WIDTH, WIDTH, Figure, grid, save, text_width
from k8sdds.report.figures.estimates import (
    Estimate,
    Rows,
    along,
    axis_unit,
    end_labels,
    reach,
    row_panels,
    scale,
    spans_a_decade,
)
from k8sdds.report.settings import Point, Row, Setting, test_of
from k8sdds.report.theme import INK, network_colors
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEAD, _FOOT, _LEFT = 0.3, 0.62, 0.62
_MAX_GROUPS = 3

_ZERO = Estimate(0, None, None, ())
"""Extends an axis to 0."""

Estimates = dict[tuple[str, Point], Estimate]
"""Estimates by network and point."""


@dataclass(frozen=True)
class _Quantity:
    title: str
    axis: str
    estimates: Estimates
    logarithmic: bool = False
    gain: bool | None = None
    """Of overheads: whether more of the metric is better. They have a line at 0."""

    def limits(self, shown: list[Estimate]) -> tuple[float, float]:
        """Return the limits of an axis that shows some of the estimates."""
        if self.logarithmic:
            return reach(shown, ratio=True)
        low, high = reach([*shown, _ZERO])
        if self.gain is None:
            return 0, high
        # The overhead of a rate cannot exceed 100 %, and that of a time cannot fall below -100 %.
        return (low, min(high, 104)) if self.gain else (max(low, -104), high)


def overheads(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw the overhead of each headline metric in percent, as in Fig. 5 of the paper."""
    names = [name for name in HEADLINES if setting.overheads(name)]
    if not names:
        return None
    quantities = [
        _Quantity(
            formats.capital(METRICS[name].title),
            f"overhead relative to {content.baseline}, %",
            {cell: Estimate.of_overhead(row) for cell, row in setting.overheads(name).items()},
            gain=METRICS[name].gain,
        )
        for name in names
    ]
    caption = f"Positive values are worse. Dots: single repetitions. {content.caption(setting, None, relative=True)}."
    return _figure(
        content, setting, quantities, folder, "overhead", "overheads", f"Overhead: {setting.title}",
        _overhead_alt(content, setting, names), caption,
    )  # fmt: skip


def headline(content: Content, setting: Setting, folder: Path, name: str) -> Figure | None:
    """Draw the levels of a headline metric. The 90th percentile is shown with the 50th and the 99th."""
    levels = setting.levels(name)
    if not levels:
        return None
    metric, test = METRICS[name], test_of(name, setting.tests)
    others = [name.replace("_p90_", mark) for mark in ("_p50_", "_p99_")] if "_p90_" in name else []
    factor, unit = axis_unit(metric.unit, max(row["mean"] for row in levels.values()))
    estimates = {
        cell: Estimate.of_level(
            row,
            tuple(setting.levels(other)[cell]["mean"] for other in others if cell in setting.levels(other)),
            factor,
        )
        for cell, row in levels.items()
    }
    logarithmic = spans_a_decade(estimates.values())
    marks = " Dotted lines end at the 50th and 99th percentile." if others else ""
    caption = (
        f"{'More' if metric.gain else 'Less'} is better.{marks} Dots: single trials."
        f"{' Logarithmic axis.' if logarithmic else ''} {content.caption(setting, test)}."
    )
    title = f"{formats.capital(metric.title)}: {setting.title}"
    quantity = _Quantity("", f"{metric.title}, {unit}", estimates, logarithmic)
    alt = _level_alt(title, setting, metric.unit, levels)
    return _figure(content, setting, [quantity], folder, test, test, title, alt, caption)


def _figure(
    content: Content, setting: Setting, quantities: Sequence[_Quantity], folder: Path,
    kind: str, section: str, title: str, alt: str, caption: str,
) -> Figure:  # fmt: skip
    points = sorted({at for quantity in quantities for _, at in quantity.estimates})
    labels = content.ordered(label for quantity in quantities for label, _ in quantity.estimates)
    draw = _rows_figure if len(points) == 1 else _lines_figure
    drawing = draw(content, setting, quantities, points, labels)
    slug = setting.file_name(kind)
    return save(drawing, folder, slug, section, title, alt, caption)


def _rows_figure(
    content: Content,
    setting: Setting,
    quantities: Sequence[_Quantity],
    points: list[Point],
    labels: list[str],
):
    """Draw quantities at one point side by side, with one row per network."""
    panels = []
    for quantity in quantities:
        estimates = {label: item for (label, _), item in quantity.estimates.items()}
        title = quantity.title or setting.point_label(points[0])
        limits = quantity.limits(list(estimates.values()))
        panels.append(Rows(title, quantity.axis, estimates, limits, quantity.logarithmic))
    return row_panels(panels, labels, network_colors(content.networks))


def _lines_figure(
    content: Content,
    setting: Setting,
    quantities: Sequence[_Quantity],
    points: list[Point],
    labels: list[str],
):
    """Draw quantities along an axis: one panel for each quantity and group of points."""
    by_payload = len({at.payload_bytes for at in points}) > 1
    groups = _grouped(points, by_payload)
    styles = network_colors(content.networks)
    margin = text_width(labels, FONT - 0.5) + 0.25
    ticks = [
        [payload(at.payload_bytes).replace(" ", "\n") if by_payload else str(at.subscribers) for at in group]
        for group in groups
    ]
    # Side by side if there is room for the tick labels and for the networks, otherwise one below the other.
    panels = [
        (group, tick, quantity) for group, tick in zip(groups, ticks, strict=True) for quantity in quantities
    ]
    needed = max(
        len(group) * max(text_width(group[0].split()) + 0.05, 0.055 * len(labels)) for group in ticks
    )
    columns = min(2, len(panels)) if WIDTH / 2 - _LEFT - margin >= needed else 1
    full = WIDTH / 2 if columns > 1 else SINGLE_WIDTH if len(panels) == 1 and needed < 2.5 else WIDTH
    width = min(full - _LEFT - margin, 5.4)
    height = max(1.9, 0.17 * len(labels) + 0.3)
    drawing, every = grid(
        len(panels), columns, width, height, left=_LEFT, right=margin, head=_HEAD, foot=_FOOT
    )
    for ax, (group, tick, quantity) in zip(every, panels, strict=True):
        _panel(ax, quantity, group, labels, styles, height)
        ax.set_title(", ".join(part for part in (quantity.title, _fixed(setting, group, by_payload)) if part))
        ax.set_ylabel(quantity.axis, labelpad=2)
        ax.set_xticks(range(len(tick)), tick)
        ax.set_xlim(-0.5, len(tick) - 0.5)
        ax.set_xlabel("payload" if by_payload else "subscribers", labelpad=2)
    return drawing


def _panel(
    ax: Axes, quantity: _Quantity, group: Sequence[Point], labels: Sequence[str], styles, height: float
) -> None:
    series = {
        label: {float(x): quantity.estimates[label, at] for x, at in enumerate(group)
                if (label, at) in quantity.estimates}
        for label in labels
    }  # fmt: skip
    series = {label: estimates for label, estimates in series.items() if estimates}
    shown = [estimate for estimates in series.values() for estimate in estimates.values()]
    scale(ax, "y", *quantity.limits(shown), quantity.logarithmic)
    along(ax, series, styles, min(0.13, 0.7 / len(labels)))
    if quantity.gain is not None:
        ax.axhline(0, color=INK, linewidth=0.8)
    ax.grid(axis="y")
    end_labels(ax, series, styles, height)


def _grouped(points: Sequence[Point], by_payload: bool) -> list[list[Point]]:
    """Group points along one axis; with many groups, return the first, middle and last one."""
    groups: dict[int, list[Point]] = {}
    for at in points:
        groups.setdefault(at.subscribers if by_payload else at.payload_bytes, []).append(at)
    lines = list(groups.values())
    if len(lines) <= _MAX_GROUPS:
        return lines
    return [lines[0], lines[len(lines) // 2], lines[-1]]


def _fixed(setting: Setting, group: Sequence[Point], by_payload: bool) -> str:
    if not by_payload:
        return payload(group[0].payload_bytes)
    return "" if "subscribers" in setting.values else formats.count(group[0].subscribers, "subscriber")


def _overhead_alt(content: Content, setting: Setting, names: Sequence[str]) -> str:
    texts = []
    for name in names:
        cells = [
            f"{label} at {setting.point_label(at)} "
            + formats.percent(row["overhead_percent"], row["ci_low_percent"], row["ci_high_percent"])
            for (label, at), row in sorted(setting.overheads(name).items())
        ]
        texts.append(f"{METRICS[name].title}: {', '.join(cells)}")
    return f"Overhead in percent relative to {content.baseline}. {'; '.join(texts)}."


def _level_alt(title: str, setting: Setting, unit: str, levels: dict[tuple[str, Point], Row]) -> str:
    texts = []
    for point in sorted({at for _, at in levels}):
        values = ", ".join(
            f"{label} {formats.number(row['mean'])}" for (label, at), row in levels.items() if at == point
        )
        texts.append(f"{setting.point_label(point)} ({unit}): {values}")
    return f"{title}. {'; '.join(texts)}."
