"""Draw where the CPU time was spent: publishers, subscribers, softirqs and the network's agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from k8sdds.analysis import background_cost, cpu_places
from k8sdds.analysis.conditions import UNIT
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import Figure, save
from k8sdds.report.figures.estimates import Estimate, Rows, level_axis, row_panels
from k8sdds.report.settings import Point, Row, Setting
from k8sdds.report.theme import network_colors


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
    labels = content.ordered(label for cells in places.values() for label in cells)
    # The panels have one scale, so that places can be compared.
    *limits, logarithmic = level_axis([item for cells in places.values() for item in cells.values()])
    panels = [
        Rows(formats.capital(place), "ms per MB", cells, limits, logarithmic)
        for place, cells in places.items()
    ]
    drawing = row_panels(panels, labels, network_colors(content.networks), missing="–")
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
    slug = setting.file_name("cpu-places")
    return save(drawing, folder, slug, "resources", title, f"{alt}.", caption)


def _places(content: Content, trials: list[Row], outside: Sources) -> dict[str, dict[str, Estimate]]:
    found: dict[str, dict[str, Estimate]] = {place: {} for place in cpu_places.PLACES}
    for label in content.networks:
        own = [row for row in trials if row[UNIT] == label]
        known = cpu_places.estimates(own, outside.cores, outside.backgrounds.get(label)) if own else {}
        for place, (estimate, values) in known.items():
            text = formats.number(estimate.value)
            found[place][label] = Estimate(estimate.value, estimate.low, estimate.high, values, text=text)
    return {place: cells for place, cells in found.items() if cells}
