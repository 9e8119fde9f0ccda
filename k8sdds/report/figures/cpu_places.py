"""Draw where the CPU time was spent: publishers, subscribers, softirqs and the network's agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from k8sdds.analysis import background_cost, cpu_places
from k8sdds.analysis.conditions import UNIT
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.figures.estimates import Estimate, reach, rows
from k8sdds.report.settings import Point, Row, Setting
from k8sdds.report.theme import network_colors

_HEAD, _FOOT, _ROW, _RIGHT, _GAP = 0.3, 0.42, 0.22, 0.5, 0.15
_COLUMNS = 3

Places = Mapping[str, Mapping[str, Estimate]]
"""Estimates by place, then by network."""


@dataclass(frozen=True)
class Sources:
    """What was metered outside of trials."""

    cores: int | None
    """Cores of the lab's machine."""
    backgrounds: Mapping[str, Row]
    """The background cost of networks on a cluster, by name."""


def sources(content: Content) -> Sources:
    """Return what was metered outside of trials, for all settings."""
    cores = content.run.facts.get("cpu_count")
    backgrounds = {row["network"]: row for row in background_cost.by_network(content.run)}
    return Sources(cores if isinstance(cores, int) else None, backgrounds)


def draw(content: Content, setting: Setting, folder: Path, outside: Sources) -> Figure | None:
    """Draw the CPU time per delivered megabyte, one panel per place, in the setting's first test that metered it."""
    for test in setting.tests:
        metered = [row for row in setting.trials if row["test"] == test and row["publisher_cpu_ms_per_mb"]]
        if metered:
            break
    else:
        return None
    point = max(map(Point.of, metered), key=Point.rank)
    places = _places(content, [row for row in metered if Point.of(row) == point], outside)
    labels = [label for label in content.networks if any(label in cells for cells in places.values())]
    title = f"CPU by place, {test} test at {setting.point_label(point)}: {setting.title}"
    alt = f"{title}, in ms per delivered MB. " + "; ".join(
        f"{place}: " + ", ".join(f"{label} {estimate.text}" for label, estimate in cells.items())
        for place, cells in places.items()
    )
    where = "of all nodes, over whole blocks of trials" if outside.backgrounds else "of all nodes"
    caption = (
        f"CPU time per delivered MB; less is better. Softirqs (forwarding, encapsulation) and agents: {where}."
        f" {content.caption(setting, test)}."
    )
    slug = "-".join(part for part in ("cpu-places", setting.slug) if part)
    return save(_panels(content, places, labels), folder, slug, "resources", title, f"{alt}.", caption)


def _places(content: Content, trials: list[Row], outside: Sources) -> dict[str, dict[str, Estimate]]:
    found: dict[str, dict[str, Estimate]] = {place: {} for place in cpu_places.PLACES}
    for label in content.networks:
        own = [row for row in trials if row[UNIT] == label]
        known = cpu_places.estimates(own, outside.cores, outside.backgrounds.get(label)) if own else {}
        for place, (estimate, values) in known.items():
            text = formats.number(estimate.value)
            found[place][label] = Estimate(estimate.value, estimate.low, estimate.high, values, text=text)
    return {place: cells for place, cells in found.items() if cells}


def _panels(content: Content, places: Places, labels: list[str]):
    """Draw the panels with one scale, so that places can be compared."""
    lines = -(-len(places) // _COLUMNS)
    columns = -(-len(places) // lines)
    margin, height = text_width(labels) + 0.2, _ROW * len(labels) + 0.08
    width = min((WIDTH - margin - columns * _RIGHT - (columns - 1) * _GAP) / columns, 2.2)
    drawing = new(
        margin + columns * (width + _RIGHT) + (columns - 1) * _GAP,
        lines * (_HEAD + height) + (lines - 1) * 0.2 + _FOOT,
    )
    _, high = reach([estimate for cells in places.values() for estimate in cells.values()])
    styles = network_colors(content.networks)
    for index, (place, cells) in enumerate(places.items()):
        line, column = divmod(index, columns)
        left, top = margin + column * (width + _RIGHT + _GAP), _HEAD + line * (_HEAD + height + 0.2)
        ax = axes(drawing, left, top, width, height)
        rows(ax, cells, labels, styles, missing="–")
        ax.set_xlim(0, high)
        ax.locator_params(axis="x", nbins=4)
        ax.grid(axis="x")
        ax.set_title(formats.capital(place))
        if column:
            ax.set_yticklabels([])
        if index + columns >= len(places):
            ax.set_xlabel("ms per MB", labelpad=2)
    return drawing
