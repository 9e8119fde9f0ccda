"""Draw how evenly subscribers were served, rates over time, and where the CPU time was spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from k8sdds.analysis import background_cost, cpu_places
from k8sdds.analysis.conditions import UNIT
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import SINGLE_WIDTH, WIDTH, Figure, grid, save, text_width
from k8sdds.report.figures.estimates import Estimate, Limits, Rows, level_axis, row_panels, scale
from k8sdds.report.settings import Point, Setting
from k8sdds.report.theme import network_colors
from k8sdds.results import timeline as timelines
from k8sdds.results.timeline import Step
from k8sdds.system.grouping import Row

FAIRNESS, TIMELINE = "fairness", "timeline"
FEWEST_STEPS = 8
"""A trial with fewer steps has no figure: latency and paced tests record one per second."""
_MAX_LINES = 12
"""Most trials of a network that are drawn over time."""


def fairness(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw the samples of each subscriber relative to the mean of its trial, for the most subscribers."""
    point, test = max(setting.points, key=Point.rank), setting.tests[0]
    by_network: dict[str, list[float]] = {}
    for row in sorted(setting.trials, key=lambda row: content.networks.index(row[UNIT])):
        if (row["test"], Point.of(row)) == (test, point) and (found := shares(row)):
            by_network.setdefault(row[UNIT], []).extend(found)
    if point.subscribers < 2 or not by_network:
        return None
    left, height = text_width(list(by_network)) + 0.2, 0.25 * len(by_network) + 0.08
    drawing, (ax,) = grid([height], 1, SINGLE_WIDTH, left=left, right=0.3, head=0.3, foot=0.45)
    styles = network_colors(content.networks)
    for index, (label, values) in enumerate(by_network.items()):
        ax.plot(values, [index] * len(values), "|", color=styles[label].light, ms=9, mew=1.2)
    ax.set_yticks(range(len(by_network)), list(by_network))
    ax.set_ylim(len(by_network) - 0.5, -0.5)
    reach = 1.1 * max(1, *(abs(value - 100) for values in by_network.values() for value in values))
    scale(ax, "x", Limits(100 - reach, 100 + reach))
    ax.grid(axis="x")
    ax.set(title=setting.point_label(point), xlabel="samples, % of the mean of the trial")
    title = f"Subscribers of a trial: {setting.title}"
    alt = f"{title}. Samples relative to the mean, lowest to highest in percent. " + "; ".join(
        f"{label} {formats.number(min(values))} to {formats.number(max(values))}"
        for label, values in by_network.items()
    )
    caption = (
        f"One line per subscriber and trial: close lines mean equal service. n = {setting.repetitions(test)}."
    )
    return save(drawing, folder, setting.file_name(FAIRNESS), FAIRNESS, title, f"{alt}.", caption)


def shares(row: Row) -> list[float]:
    """Return the samples of each subscriber in percent of their mean; empty if they were not recorded.

    Nodes of a graph subscribe to different flows.
    """
    if row.get("by_flow"):
        return []
    delivered = (row["link_bytes"] or {}).get("delivered_samples") or {}
    values = [value for value in delivered.values() if value is not None]
    mean = sum(values) / len(values) if values else 0
    return [100 * value / mean for value in values] if mean > 0 and len(values) > 1 else []


def timeline(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw what subscribers received over time, for the most subscribers, in the first test that recorded it."""
    point = max(setting.points, key=Point.rank)
    by_test = ((test, _timelines(content, setting, test, point)) for test in setting.tests)
    test, found = next(((test, found) for test, found in by_test if found), ("", {}))
    if not found:
        return None
    columns = min(3, len(found))
    drawing, panels = grid(
        [1.0] * len(found), columns, WIDTH / max(columns, 2), left=0.6, right=0.1, head=0.28, foot=0.42
    )
    top = max(step.mbps for trials in found.values() for steps in trials for step in steps)
    end_s = max(steps[-1].end_s for trials in found.values() for steps in trials)
    styles = network_colors(content.networks)
    for ax, (label, trials) in zip(panels, found.items(), strict=True):
        color = styles[label].light
        for steps in trials:
            ax.plot(
                [step.end_s for step in steps], [step.mbps for step in steps], color=color, lw=0.9, alpha=0.75
            )
        scale(ax, "y", Limits(0, top * 1.06), most=5)
        scale(ax, "x", Limits(0, end_s), most=5)
        ax.grid(axis="y")
        ax.set(xlabel="s", ylabel="Mbit/s")
        ax.set_title(label, color=color)
    title = f"Throughput over time, {test} test at {setting.point_label(point)}: {setting.title}"
    alt = (
        f"{title}. Lowest and highest rate of a step relative to the mean of its trial, in percent: "
        + "; ".join(f"{label} {_extremes(trials)}" for label, trials in found.items())
    )
    most = max(map(len, found.values()))
    limit = f", for the first {_MAX_LINES} of each network" if most == _MAX_LINES else ""
    caption = (
        f"What a subscriber received, one line per trial{limit}; a step is usually 100 ms."
        f" {content.caption(setting, test, interval=False)}."
    )
    return save(drawing, folder, setting.file_name(TIMELINE), TIMELINE, title, f"{alt}.", caption)


def _timelines(content: Content, setting: Setting, test: str, point: Point) -> dict[str, list[list[Step]]]:
    found: dict[str, list[list[Step]]] = {}
    for row in setting.trials:
        if row["test"] == test and Point.of(row) == point and len(found.get(row[UNIT], ())) < _MAX_LINES:
            steps = received(content, row)
            if len(steps) >= FEWEST_STEPS:
                found.setdefault(row[UNIT], []).append(steps)
    return {label: found[label] for label in content.networks if label in found}


def received(content: Content, row: Row) -> list[Step]:
    """Return the samples that a subscriber received over time. Empty if they were not recorded."""
    return timelines.received(content.run.raw(row["trial_id"], row["attempt"] or 1))


def _extremes(trials: Sequence[Sequence[Step]]) -> str:
    relative = []
    for steps in trials:
        mean = sum(step.mbps for step in steps) / len(steps)
        relative += [100 * step.mbps / mean for step in steps if mean > 0]
    return f"{formats.number(min(relative, default=None))} to {formats.number(max(relative, default=None))}"


@dataclass(frozen=True)
class Outside:
    """What was metered outside of trials, for all settings."""

    cores: int | None
    """Cores of the lab's machine."""
    backgrounds: Mapping[str, Row]
    """The background cost of networks on a cluster, by name."""

    @classmethod
    def of(cls, content: Content) -> Outside:
        """Read it from the run folder."""
        cores = content.run.facts.get("cpu_count")
        backgrounds = {row["network"]: row for row in background_cost.by_network(content.run)}
        return cls(cores if isinstance(cores, int) else None, backgrounds)


def cpu(content: Content, setting: Setting, folder: Path, outside: Outside) -> Figure | None:
    """Draw the CPU time per delivered megabyte, one panel per place, in the setting's first test that metered it."""
    metered = [row for row in setting.trials if row["publisher_cpu_ms_per_mb"]]
    test = next((test for test in setting.tests if any(row["test"] == test for row in metered)), None)
    if test is None:
        return None
    metered = [row for row in metered if row["test"] == test]
    point = max(map(Point.of, metered), key=Point.rank)
    places = _places(content, [row for row in metered if Point.of(row) == point], outside)
    labels = content.ordered(label for cells in places.values() for label in cells)
    # The panels have one scale, so that places can be compared.
    limits = level_axis([item for cells in places.values() for item in cells.values()])
    panels = [Rows(formats.capital(place), "ms per MB", cells, limits) for place, cells in places.items()]
    drawing = row_panels(panels, labels, network_colors(content.networks), missing="–")
    title = f"CPU by place, {test} test at {setting.point_label(point)}: {setting.title}"
    texts = {
        place: {label: estimate.text for label, estimate in cells.items()} for place, cells in places.items()
    }
    alt = f"{title}, in ms per delivered MB. {formats.by_group(texts)}"
    where = "of all nodes, over whole blocks of trials" if outside.backgrounds else "of all nodes"
    caption = (
        f"CPU time per delivered MB; less is better. Softirqs (forwarding, encapsulation) and agents: {where}."
        f" {content.caption(setting, test)}."
    )
    return save(drawing, folder, setting.file_name("cpu-places"), "resources", title, f"{alt}.", caption)


def _places(content: Content, trials: list[Row], outside: Outside) -> dict[str, dict[str, Estimate]]:
    found: dict[str, dict[str, Estimate]] = {place: {} for place in cpu_places.PLACES}
    for label in content.networks:
        if own := [row for row in trials if row[UNIT] == label]:
            known = cpu_places.estimates(own, outside.cores, outside.backgrounds.get(label))
            for place, (one, values) in known.items():
                found[place][label] = Estimate(
                    one.value, one.low, one.high, values, text=formats.number(one.value)
                )
    return {place: cells for place, cells in found.items() if cells}
