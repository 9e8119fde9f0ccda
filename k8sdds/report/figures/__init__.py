"""Figures of a report: PNG and SVG files, and the same SVG inlined into the HTML.

Each module draws one kind: `rows` (throughput, latency, CPU and memory by network), `lines` (overhead by
payload, throughput by subscribers) and `distributions` (latency percentiles). `canvas` holds what they
share. matplotlib is imported when the first figure is drawn.
"""

from __future__ import annotations

from pathlib import Path

from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import Figure

__all__ = ["Figure", "make"]


def make(content: Content, folder: Path) -> list[Figure]:
    """Draw every figure for which there are data into `folder`, in the order of the report.

    Figures of an earlier report are removed first: one that is no longer drawn must not linger.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.png"), *folder.glob("*.svg")):
        old.unlink()
    if not content.settings:
        return []
    from k8sdds.report.figures import distributions, lines, protection, rows

    drawn = []
    for setting in content.settings:
        for draw in (lines.overheads, rows.throughput, rows.latency, distributions.latency, rows.resources):
            drawn.append(draw(content, setting, folder))
    drawn += lines.subscribers(content, folder)
    drawn += protection.draw(content, folder)
    return [figure for figure in drawn if figure is not None]
