"""Draw the figures of a report as PNG and SVG files, and as SVG for the HTML file.

`levels` draws overheads and levels along the payload, `distributions` draws percentiles of latencies and delays,
`capacity` draws delays by offered rate, `subscribers` draws throughput by number of subscribers, and `protection`
draws levels with and without protection. `flame_graph` draws profiles. `trade_off` draws throughput against latency,
`fairness` draws the subscribers of a trial, `timeline` draws rates over time, `topology` draws paths with MTUs and
dropped packets, and `cpu_places` draws CPU time by place. `estimates` draws what the others have in common: axes,
means, intervals and trials. `canvas` has the shared style, grids of panels and legends. seaborn and matplotlib are
imported when the first figure is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from k8sdds.report.content import Content
from k8sdds.report.figures import capacity, flame_graph
from k8sdds.report.figures.canvas import Figure
from k8sdds.report.formats import capital
from k8sdds.system.faults import not_installed
from k8sdds.workloads import HEADLINES, WORKLOADS

__all__ = ["Figure", "missing_note", "tasks"]


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
    if missing_note():
        return [partial(flame_graph.draw, content, folder)]
    alone = (partial(capacity.draw, content, folder), partial(flame_graph.draw, content, folder))
    if not content.settings:
        return list(alone)
    # Imported here, so that the processes that draw do not each import it.
    import seaborn  # noqa: F401

    from k8sdds.report.figures import (
        cpu_places,
        distributions,
        fairness,
        levels,
        protection,
        subscribers,
        timeline,
        topology,
        trade_off,
    )

    drawings: list[Callable[[], list[Figure]]] = []
    outside = cpu_places.sources(content)
    for setting in content.settings:
        one = (
            partial(levels.overheads, content, setting, folder),
            *(partial(levels.headline, content, setting, folder, name) for name in HEADLINES),
            *(
                partial(distributions.draw, content, setting, folder, name)
                for name, workload in WORKLOADS.items()
                if workload.histograms
            ),
            partial(trade_off.draw, content, setting, folder),
            partial(fairness.draw, content, setting, folder),
            partial(timeline.draw, content, setting, folder),
            partial(cpu_places.draw, content, setting, folder, outside),
        )
        drawings += [partial(_drawn, draw) for draw in one]
    whole = (partial(draw, content, folder) for draw in (topology.draw, subscribers.draw, protection.draw))
    return [*drawings, *whole, *alone]


def _drawn(draw: Callable[[], Figure | None]) -> list[Figure]:
    figure = draw()
    return [] if figure is None else [figure]
