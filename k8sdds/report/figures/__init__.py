"""Draw the figures of a report as PNG and SVG files, and as SVG for the HTML file.

`bars` draws levels by network, `lines` draws overheads by payload and throughput by number of subscribers,
`distributions` draws latency percentiles, and `protection` draws levels with and without protection. `canvas`
contains the shared style. matplotlib is imported when the first figure is drawn.
"""

from __future__ import annotations

from pathlib import Path

from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import Figure
from k8sdds.workloads import HEADLINES

__all__ = ["Figure", "make"]


def make(content: Content, folder: Path) -> list[Figure]:
    """Draw every figure that has data to a folder, in the order of the report.

    Figures of an earlier report are removed first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.png"), *folder.glob("*.svg")):
        old.unlink()
    if not content.settings:
        return []
    from k8sdds.report.figures import bars, distributions, lines, protection

    figures: list[Figure | None] = []
    for setting in content.settings:
        figures.append(lines.overheads(content, setting, folder))
        figures += [bars.headline(content, setting, folder, name) for name in HEADLINES]
        figures.append(distributions.latency(content, setting, folder))
        figures.append(bars.resources(content, setting, folder))
    figures += lines.subscribers(content, folder)
    figures += protection.draw(content, folder)
    return [figure for figure in figures if figure is not None]
