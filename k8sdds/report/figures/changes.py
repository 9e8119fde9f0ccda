"""Draw the changes of several sides relative to the first one, one row per cell and side (`k8sdds compare`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from k8sdds.analysis.overhead import Row
from k8sdds.report import formats
from k8sdds.report.figures.canvas import Figure, save
from k8sdds.report.figures.estimates import Against, Estimate, stacked
from k8sdds.report.theme import network_colors
from k8sdds.results.metrics import METRICS

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
    estimates = {}
    for label in labels:
        row = named[label][1]
        estimates[label] = Estimate.of_ratio(row["ratio"], (row["ci_low"], row["ci_high"]))
    heading = f"{formats.capital(title)}, relative to {first}"
    styles = {label: colors[named[label][0]] for label in labels}
    drawing = stacked([Against(heading, "change, %", 0, estimates, styles)])
    better = "more" if METRICS[quantity].gain else "less"
    caption = (
        f"Markers: mean ratio. Lines: 95 % interval (cut off at the axis). {better.capitalize()} is better."
    )
    if len(order) > _MAX_ROWS:
        caption += f" The first {_MAX_ROWS} of {len(order)} rows; the tables have all."
    alt = "; ".join(f"{label}: {item.text}" for label, item in estimates.items())
    return save(drawing, folder, f"compare-{quantity}", "compare", f"Change: {title}", alt, caption)
