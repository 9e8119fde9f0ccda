"""Draw the rate of single trials over time, with one panel per network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from k8sdds.analysis.conditions import UNIT
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import WIDTH, Figure, grid, save
from k8sdds.report.figures.estimates import scale
from k8sdds.report.settings import Point, Row, Setting
from k8sdds.report.theme import network_colors
from k8sdds.results import timeline
from k8sdds.results.timeline import Step

SECTION = "timeline"
FEWEST_STEPS = 8
"""A trial with fewer steps has no figure: latency and paced tests record one per second."""

_HEAD, _FOOT, _LEFT, _HEIGHT = 0.28, 0.42, 0.6, 1.0
_MAX_COLUMNS = 3
_MAX_LINES = 12
"""Most trials of a network that are drawn."""


def draw(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw what subscribers received over time, for the most subscribers, in the first test that recorded it."""
    point = max(setting.points, key=Point.rank)
    for test in setting.tests:
        timelines = _timelines(content, setting, test, point)
        if timelines:
            break
    else:
        return None
    columns = min(_MAX_COLUMNS, len(timelines))
    width = WIDTH / max(columns, 2) - _LEFT - 0.1
    drawing, panels = grid(
        len(timelines), columns, width, _HEIGHT, left=_LEFT, right=0.1, head=_HEAD, foot=_FOOT
    )
    top = max(step.mbps for trials in timelines.values() for steps in trials for step in steps)
    end_s = max(steps[-1].end_s for trials in timelines.values() for steps in trials)
    styles = network_colors(content.networks)
    for ax, (label, trials) in zip(panels, timelines.items(), strict=True):
        for steps in trials:
            ax.plot(
                [step.end_s for step in steps], [step.mbps for step in steps], color=styles[label].light,
                linewidth=0.9, alpha=0.75,
            )  # fmt: skip
        ax.set(xlabel="s", ylabel="Mbit/s")
        scale(ax, "y", 0, top * 1.06, logarithmic=False, most=5)
        scale(ax, "x", 0, end_s, logarithmic=False, most=5)
        ax.grid(axis="y")
        ax.set_title(label, color=styles[label].light)
    title = f"Throughput over time, {test} test at {setting.point_label(point)}: {setting.title}"
    alt = (
        f"{title}. Lowest and highest rate of a step relative to the mean of its trial, in percent: "
        + "; ".join(f"{label} {_extremes(trials)}" for label, trials in timelines.items())
    )
    most = max(map(len, timelines.values()))
    limit = f", for the first {_MAX_LINES} of each network" if most == _MAX_LINES else ""
    caption = (
        f"What a subscriber received, one line per trial{limit}; a step is usually 100 ms."
        f" {content.caption(setting, test, interval=False)}."
    )
    slug = setting.file_name(SECTION)
    return save(drawing, folder, slug, SECTION, title, f"{alt}.", caption)


def _timelines(content: Content, setting: Setting, test: str, point: Point) -> dict[str, list[list[Step]]]:
    found: dict[str, list[list[Step]]] = {}
    for row in setting.trials:
        if row["test"] == test and Point.of(row) == point and len(found.get(row[UNIT], ())) < _MAX_LINES:
            steps = of_attempt(content, row)
            if len(steps) >= FEWEST_STEPS:
                found.setdefault(row[UNIT], []).append(steps)
    return {label: found[label] for label in content.networks if label in found}


def of_attempt(content: Content, row: Row) -> list[Step]:
    """Return what a subscriber of a trial received over time; empty if it was not recorded."""
    return timeline.received(content.run.raw(row["trial_id"], row["attempt"] or 1))


def _extremes(trials: Sequence[Sequence[Step]]) -> str:
    shares = []
    for steps in trials:
        mean = sum(step.mbps for step in steps) / len(steps)
        shares += [100 * step.mbps / mean for step in steps if mean > 0]
    return f"{formats.number(min(shares, default=None))} to {formats.number(max(shares, default=None))}"
