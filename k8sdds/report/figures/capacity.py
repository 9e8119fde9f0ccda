"""Draw the delay by offered rate, or number of subscribers, of capacity searches, with the knee of each network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis.capacities import Found
from k8sdds.analysis.capacity import Probe
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import FONT, SINGLE_WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.figures.estimates import scale
from k8sdds.report.settings import Row
from k8sdds.report.theme import MUTED, network_colors
from k8sdds.workloads.capacity import RATE, SUBSCRIBERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEAD, _FOOT, _LEFT = 0.3, 0.5, 0.62
_HEIGHT = 2.6
_AXES = {RATE: ("rate", "offered samples/s"), SUBSCRIBERS: ("number of subscribers", "subscribers")}
"""What the delay is drawn by in words, and the label of its axis, by what was searched."""


def draw(content: Content, folder: Path) -> list[Figure]:
    """Draw one figure per condition: p99 of the delay by what was searched, with the capacity of each network."""
    groups: dict[tuple[Any, ...], list[Found]] = {}
    for one in content.searches:
        if any(_drawn(one)):
            groups.setdefault(tuple(one.condition.values()), []).append(one)
    order = content.networks.index
    return [
        _figure(content, sorted(searches, key=lambda one: order(one.network)), folder, index)
        for index, searches in enumerate(groups.values())
    ]


def _drawn(one: Found) -> list[tuple[Row, Probe]]:
    """Return the probes of a search that have a delay."""
    return [pair for pair in zip(one.trials, one.probes, strict=True) if pair[1].value and _delay_us(pair[0])]


def _delay_us(row: Row) -> float:
    """Return p99 of the delay; of too few samples the maximum; 0: there is none."""
    return row["delay_p99_us"] or row["delay_max_us"] or 0.0


def _figure(content: Content, searches: Sequence[Found], folder: Path, index: int) -> Figure:
    import pandas as pd

    names = {one.network: _name(one) for one in searches}
    margin = text_width([line for name in names.values() for line in name.split("\n")], FONT - 0.5) + 0.25
    width = SINGLE_WIDTH - _LEFT - margin
    drawing = new(_LEFT + width + margin, _HEAD + _HEIGHT + _FOOT)
    ax = axes(drawing, _LEFT, _HEAD, width, _HEIGHT)
    probes = pd.DataFrame(
        [
            (one.network, probe.value, _delay_us(row) / 1000, _met(one, probe))
            for one in searches
            for row, probe in _drawn(one)
        ],
        columns=["network", "value", "delay", "met"],
    )
    _panel(ax, probes, searches, names, content)
    first = searches[0]
    strictest = first.search.goals[0]
    offered, label = _AXES[first.searched]
    ax.set_title("p99 of the delay")
    ax.set_xlabel(label, labelpad=2)
    ax.set_ylabel("ms", labelpad=2)
    caption = (
        f"p99 of the delay by {offered}. Dots: probes that met"
        f" {strictest.describe()}; crosses: probes that missed it. Line: median of equal probes. Band:"
        " interval of the capacity. Large marker: its lower end, the knee."
        " Of fewer than 1,000 samples, the maximum is shown."
        f" {content.testbed} · {formats.count(len(probes), 'probe')} of {first.search.duration_s:g} s or shorter."
    )
    alt = f"p99 of the delay by {offered}. " + "; ".join(
        f"{row['network_label']}, loss at most {row['goal_loss_percent']:g} %: {formats.capacity(row)}"
        for row in content.capacities
        if any(
            row["network_label"] == one.network and all(row[k] == v for k, v in one.condition.items())
            for one in searches
        )
    )
    slug = "capacity" + (f"-{index + 1}" if index else "")
    title = f"Latency by {offered}: {first.title}"
    return save(drawing, folder, slug, "capacity", title, alt, caption)


def _name(one: Found) -> str:
    bounds = one.bounds[one.search.goals[0]]
    low = formats.with_unit(one.searched, bounds.low) if bounds.low else "no capacity found"
    return f"{one.network}\n{low}"


def _met(one: Found, probe: Probe) -> bool:
    return bool(probe.excess(one.search.goals[0]) <= 1)


def _panel(ax: Axes, probes: Any, searches: Sequence[Found], names: dict[str, str], content: Content) -> None:
    import seaborn as sns

    styles = network_colors(content.networks)
    palette = {one.network: styles[one.network].light for one in searches}
    limit_ms = searches[0].search.goals[0].p99_ms
    shown = [*probes["delay"], *([] if limit_ms is None else [limit_ms])]
    low, high = min(shown), max(shown)
    pad = (high / low) ** 0.06
    scale(ax, "y", low / pad, high * pad, logarithmic=True)
    left, right = probes["value"].min(), probes["value"].max()
    margin = max((right / left) ** 0.04, 1.05)
    scale(ax, "x", left / margin, right * margin, logarithmic=True)
    ax.grid(axis="y")
    common = {"hue": "network", "palette": palette, "legend": False, "ax": ax}
    medians = probes.groupby(["network", "value"], as_index=False)["delay"].median()
    sns.lineplot(
        medians, x="value", y="delay", estimator=None, errorbar=None, linewidth=0.8, alpha=0.75, **common
    )
    sns.scatterplot(
        probes, x="value", y="delay", style="met", markers={True: "o", False: "X"}, s=11, linewidth=0, alpha=0.85,
        **common,
    )  # fmt: skip
    if limit_ms is not None:
        ax.axhline(limit_ms, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    for one in searches:
        _knee(ax, one, medians, palette[one.network], styles[one.network].marker)
    _labels(ax, searches, names, palette)


def _knee(ax: Axes, one: Found, medians: Any, color: str, marker: str) -> None:
    """Mark the interval of the capacity for each goal, and the delay at the lower end for the strictest."""
    for goal, bounds in one.bounds.items():
        if bounds.low and bounds.high:
            strict = goal is one.search.goals[0]
            ax.axvspan(bounds.low, bounds.high, color=color, alpha=0.22 if strict else 0.1, linewidth=0)
    low = one.bounds[one.search.goals[0]].low
    at = medians[(medians["network"] == one.network) & (medians["value"] == low)]
    if len(at):
        ax.plot(at["value"], at["delay"], marker=marker, markersize=8, color=color, markeredgecolor="white")


def _labels(ax: Axes, searches: Sequence[Found], names: dict[str, str], palette: dict[str, str]) -> None:
    """List the networks with their capacity to the right, the largest capacity first."""
    ordered = sorted(searches, key=lambda one: -(one.bounds[one.search.goals[0]].low or 0))
    for line, one in enumerate(ordered):
        ax.annotate(
            names[one.network], (1, 1), xytext=(7, -4 - 25 * line), xycoords="axes fraction",
            textcoords="offset points", color=palette[one.network], fontsize=FONT - 0.5, va="top",
            annotation_clip=False,
        )  # fmt: skip
