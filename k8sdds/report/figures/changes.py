"""Draw the changes of several sides relative to the first one, one row per cell and side (`k8sdds compare`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from k8sdds.analysis.overhead import Row
from k8sdds.report import formats
from k8sdds.report.figures.canvas import WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.figures.estimates import Estimate, reach, scale
from k8sdds.report.figures.estimates import rows as draw_rows
from k8sdds.report.theme import INK, network_colors
from k8sdds.results.metrics import METRICS

_HEAD, _FOOT, _ROW = 0.3, 0.45, 0.22
_MAX_ROWS = 60
"""Rows of a figure. The tables have all rows."""


def draw(
    first: str,
    others: Mapping[str, Sequence[Row]],
    quantity: str,
    folder: Path,
) -> Figure:
    """Draw the changes of a metric with their 95 % intervals.

    Args:
        first: Name of the side that changes are relative to.
        others: Rows of the comparison with the first side, by the name of the other side.
        quantity: Name of the metric.
        folder: Folder for the PNG and SVG files.
    """
    every = [row for rows in others.values() for row in rows if row["quantity"] == quantity]
    title = METRICS[quantity].title
    named: dict[str, tuple[str, Row]] = {}
    for name, rows in others.items():
        for row in (row for row in rows if row["quantity"] == quantity):
            # The metric is in the title of the figure.
            parts = [part for part in formats.cell_name(row, every).split(", ") if part != title]
            named[", ".join((*parts, name) if len(others) > 1 else parts) or name] = (name, row)
    # The sides of a cell follow each other.
    cells = list(dict.fromkeys(label.rpartition(", ")[0] for label in named))
    order = (
        sorted(named, key=lambda label: cells.index(label.rpartition(", ")[0]))
        if len(others) > 1
        else list(named)
    )
    labels = order[:_MAX_ROWS]
    colors = network_colors(list(others))
    estimates = {label: _estimate(named[label][1]) for label in labels}
    left = min(text_width(labels) + 0.2, WIDTH - 2.5)
    height = _ROW * len(labels) + 0.08
    drawing = new(WIDTH, _HEAD + height + _FOOT)
    ax = axes(drawing, left, _HEAD, WIDTH - left - 0.7, height)
    draw_rows(ax, estimates, labels, {label: colors[named[label][0]] for label in labels})
    low, high = reach([*estimates.values(), Estimate(0, None, None, ())])
    # Without any change, the axis still has a range.
    scale(ax, "x", min(low, -1), max(high, 1), logarithmic=False)
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.grid(axis="x")
    ax.set_title(f"{formats.capital(title)}, relative to {first}")
    ax.set_xlabel("change, %", labelpad=2)
    better = "more" if METRICS[quantity].gain else "less"
    caption = (
        f"Markers: mean ratio. Lines: 95 % interval (cut off at the axis). {better.capitalize()} is better."
    )
    if len(order) > _MAX_ROWS:
        caption += f" The first {_MAX_ROWS} of {len(order)} rows; the tables have all."
    alt = "; ".join(f"{label}: {item.text} %" for label, item in estimates.items())
    return save(drawing, folder, f"compare-{quantity}", "compare", f"Change: {title}", alt, caption)


def _estimate(row: Row) -> Estimate:
    low, high = (None if row[key] is None else 100 * (row[key] - 1) for key in ("ci_low", "ci_high"))
    mean = row["change_percent"]
    return Estimate(mean, low, high, (), text=formats.percent(mean, low, high).partition(" ")[0])
