"""Draw the figures of a report as PNG and SVG files, and as SVG for the HTML file.

seaborn and matplotlib are imported when the first figure is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from k8sdds.report.content import Content
from k8sdds.report.figures import (
    capacity,
    details,
    distributions,
    flame_graph,
    graph,
    levels,
    outages,
    over_time,
    trade_off,
)
from k8sdds.report.figures.canvas import Figure
from k8sdds.report.formats import capital
from k8sdds.system.faults import not_installed
from k8sdds.workloads import HEADLINES, WORKLOADS

__all__ = ["Figure", "missing_note", "tasks"]


MAX_GRAPHS = 6
"""Settings whose graph is drawn; flows.csv has the flows of all."""


def missing_note() -> list[str]:
    """Return the note of a page whose figures cannot be drawn, or nothing if they can."""
    missing = not_installed("report")
    return [] if missing is None else [f"{capital(missing.message)} ({missing.remedy})."]


def tasks(content: Content, folder: Path) -> list[Callable[[], list[Figure]]]:
    """Return the tasks that draw all figures that have data to a folder, in the order of the report.

    The tasks can run in several processes. Figures of an earlier report are removed first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.suffix in (".png", ".svg", ".pdf"):
            old.unlink()
    flames = partial(flame_graph.draw, content, folder)
    if missing_note():
        return [flames]
    alone: list[Callable[[], list[Figure]]] = [
        partial(capacity.draw, content, folder),
        partial(outages.recoveries, content, folder),
        flames,
    ]
    if not content.settings:
        return alone
    import seaborn  # noqa: F401  (so that the processes that draw do not each import it)

    drawings: list[Callable[[], Figure | None]] = []
    outside = details.Outside.of(content)
    for setting in content.settings:
        drawings += [
            partial(levels.overheads, content, setting, folder),
            *(partial(levels.headline, content, setting, folder, name) for name in HEADLINES),
            *(
                partial(distributions.draw, content, setting, folder, name)
                for name, workload in WORKLOADS.items()
                if workload.histograms
            ),
            partial(trade_off.draw, content, setting, folder),
            partial(details.fairness, content, setting, folder),
            partial(details.timeline, content, setting, folder),
            *(partial(over_time.draw, content, setting, folder, test) for test in setting.tests),
            partial(details.cpu, content, setting, folder, outside),
        ]
    whole = [partial(draw, content, folder) for draw in (levels.subscribers, levels.protection)]
    graphs = [
        partial(graph.of_setting, content, setting, folder) for setting in content.settings[:MAX_GRAPHS]
    ]
    return [*(partial(_drawn, draw) for draw in drawings), *whole, *graphs, *alone]


def _drawn(draw: Callable[[], Figure | None]) -> list[Figure]:
    figure = draw()
    return [] if figure is None else [figure]
