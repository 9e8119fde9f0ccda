"""Draw what `k8sdds compare` and `k8sdds history` find: changes between sides, and levels over the runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from k8sdds.analysis.history import Run, Series
from k8sdds.report import formats
from k8sdds.report.figures.canvas import FONT, WIDTH, Figure, grid, save
from k8sdds.report.figures.estimates import Against, Estimate, stacked
from k8sdds.report.theme import MUTED, network_colors, variant_colors
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row

_MAX_ROWS, _MAX_PANELS = 60, 24
"""Rows and panels of a figure. The tables have all."""


def of_sides(first: str, others: Mapping[str, Sequence[Row]], quantity: str, folder: Path) -> Figure:
    """Draw the changes of a metric relative to the first side with their 95 % intervals, one row per cell and side.

    `others` has the rows of the comparison with the first side, by the name of the other side.
    """
    title = METRICS[quantity].title
    every = [(name, row) for name, rows in others.items() for row in rows if row["quantity"] == quantity]
    # The metric is in the title of the figure.
    cells = [
        ", ".join(part for part in formats.cell_name(row, [row for _, row in every]).split(", ") if part != title)
        for _, row in every
    ]  # fmt: skip
    named: dict[str, tuple[str, Row]] = {}
    # The sides of a cell follow each other.
    for cell, (name, row) in sorted(zip(cells, every, strict=True), key=lambda pair: cells.index(pair[0])):
        named[", ".join(filter(None, (cell, name if len(others) > 1 or not cell else "")))] = name, row
    colors = network_colors(list(others))
    labels = list(named)[:_MAX_ROWS]
    rows = {label: named[label][1] for label in labels}
    estimates = {
        label: Estimate.of_ratio(row["ratio"], (row["ci_low"], row["ci_high"])) for label, row in rows.items()
    }
    heading = f"{formats.capital(title)}, relative to {first}"
    styles = {label: colors[named[label][0]] for label in labels}
    better = "More" if METRICS[quantity].gain else "Less"
    caption = f"Markers: mean ratio. Lines: 95 % interval (cut off at the axis). {better} is better."
    if len(named) > _MAX_ROWS:
        caption += f" The first {_MAX_ROWS} of {len(named)} rows; the tables have all."
    alt = "; ".join(f"{label}: {item.text}" for label, item in estimates.items())
    drawing = stacked([Against(heading, "change, %", 0, estimates, styles)])
    return save(drawing, folder, f"compare-{quantity}", "compare", f"Change: {title}", alt, caption)


def over_runs(
    runs: Sequence[Run], found: Sequence[Series], names: Sequence[str], relative: bool, folder: Path
) -> list[Figure]:
    """Draw the levels of each run, with changes as vertical lines: one figure per metric, one panel per cell."""
    figures = []
    for quantity in dict.fromkeys(one.quantity for one in found):
        chosen = [(one, name) for one, name in zip(found, names, strict=True) if one.quantity == quantity]
        chosen.sort(key=lambda pair: not pair[0].changes)
        figures.append(_history(len(runs), chosen, quantity, relative, folder))
    return figures


def _history(
    runs: int, chosen: Sequence[tuple[Series, str]], quantity: str, relative: bool, folder: Path
) -> Figure:
    import seaborn as sns

    shown = chosen[:_MAX_PANELS]
    colors = variant_colors([name for _, name in shown])
    drawing, panels = grid(
        [0.75] * len(shown), 1, WIDTH, left=0.62, right=0.1, head=0.3, foot=0.1, below=0.35
    )
    for ax, (one, name) in zip(panels, shown, strict=True):
        places = [index for index, log in enumerate(one.logs) if not math.isnan(log)]
        logs, color = [one.logs[index] for index in places], colors[name].light
        x, y = [place + 1 for place in places], [math.exp(log) for log in logs]
        sns.scatterplot(x=x, y=y, s=14, color=color, linewidth=0, ax=ax)
        starts = [0, *(change.index for change in one.changes)]
        for start, end in zip(starts, [*starts[1:], len(logs)], strict=True):
            mean = math.exp(math.fsum(logs[start:end]) / (end - start))
            ax.hlines(mean, places[start] + 0.6, places[end - 1] + 1.4, colors=color, linewidth=1.1)
            if start:
                ax.axvline(places[start] + 0.5, color=MUTED, linewidth=0.8, linestyle="--")
        ax.set_xlim(0.4, runs + 0.6)
        ax.locator_params(axis="x", integer=True)
        ax.locator_params(axis="y", nbins=4)
        ax.grid(axis="y")
        ax.set_title(name, size=FONT - 0.5)
        ax.set_ylabel("x baseline" if relative else METRICS[quantity].unit)
    panels[-1].set_xlabel("run, in the order of the start")
    title = METRICS[quantity].title
    count = sum(bool(one.changes) for one, _ in chosen)
    caption = "Dots: runs. Lines: geometric means between changes. Dashed: changes."
    if len(chosen) > len(shown):
        caption += (
            f" The first {len(shown)} of {len(chosen)} cells, those with changes first; the table has all."
        )
    alt = f"{title} in {runs} runs: {count} of {len(chosen)} cells changed"
    return save(drawing, folder, f"history-{quantity}", "history", f"History: {title}", alt, caption)
