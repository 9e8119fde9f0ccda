"""Draw the levels of each run over the runs of a history, with changes as vertical lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from k8sdds.analysis.history import Run, Series
from k8sdds.report.figures.canvas import FONT, WIDTH, Figure, axes, new, save
from k8sdds.report.theme import MUTED, variant_colors
from k8sdds.results.metrics import METRICS

_MAX_PANELS = 24
_HEAD, _FOOT, _PANEL, _GAP, _LEFT = 0.3, 0.45, 0.75, 0.4, 0.62


def draw(
    runs: Sequence[Run], found: Sequence[Series], names: Sequence[str], relative: bool, folder: Path
) -> list[Figure]:
    """Draw one figure per metric, with one panel per cell; cells with changes first."""
    figures = []
    for quantity in dict.fromkeys(one.quantity for one in found):
        chosen = [(one, name) for one, name in zip(found, names, strict=True) if one.quantity == quantity]
        chosen.sort(key=lambda pair: not pair[0].changes)
        figures.append(_figure(runs, chosen, quantity, relative, folder))
    return figures


def _figure(
    runs: Sequence[Run], chosen: Sequence[tuple[Series, str]], quantity: str, relative: bool, folder: Path
) -> Figure:
    import pandas as pd
    import seaborn as sns

    shown = chosen[:_MAX_PANELS]
    colors = variant_colors([name for _, name in shown])
    drawing = new(WIDTH, _HEAD + len(shown) * (_PANEL + _GAP) - _GAP + _FOOT)
    unit = "x baseline" if relative else METRICS[quantity].unit
    for number, (one, name) in enumerate(shown):
        ax = axes(drawing, _LEFT, _HEAD + number * (_PANEL + _GAP), WIDTH - _LEFT - 0.1, _PANEL)
        places = [index for index, log in enumerate(one.logs) if not math.isnan(log)]
        values = [math.exp(one.logs[index]) for index in places]
        points = pd.DataFrame({"x": [place + 1 for place in places], "y": values})
        color = colors[name].light
        sns.scatterplot(points, x="x", y="y", color=color, s=14, linewidth=0, legend=False, ax=ax)
        starts = [0, *(change.index for change in one.changes)]
        for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
            part = values[start:end]
            mean = math.exp(math.fsum(map(math.log, part)) / len(part))
            ax.hlines(mean, places[start] + 0.6, places[end - 1] + 1.4, colors=color, linewidth=1.1)
            if start:
                ax.axvline(places[start] + 0.5, color=MUTED, linewidth=0.8, linestyle="--")
        ax.set_xlim(0.4, len(runs) + 0.6)
        ax.locator_params(axis="x", integer=True)
        ax.locator_params(axis="y", nbins=4)
        ax.grid(axis="y")
        ax.set_title(name, size=FONT - 0.5)
        ax.set(xlabel="run, in the order of the start" if number == len(shown) - 1 else "", ylabel=unit)
    title = METRICS[quantity].title
    count = sum(bool(one.changes) for one, _ in chosen)
    caption = "Dots: runs. Lines: geometric means between changes. Dashed: changes."
    if len(chosen) > len(shown):
        caption += (
            f" The first {len(shown)} of {len(chosen)} cells, those with changes first; the table has all."
        )
    alt = f"{title} in {len(runs)} runs: {count} of {len(chosen)} cells changed"
    return save(drawing, folder, f"history-{quantity}", "history", f"History: {title}", alt, caption)
