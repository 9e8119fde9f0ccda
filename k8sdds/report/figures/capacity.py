"""Draw what capacity searches measured by what they searched, such as the delay by offered rate, with each knee."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from k8sdds.analysis import capacities
from k8sdds.analysis.capacities import Found
from k8sdds.analysis.capacity import Probe
from k8sdds.model.options import MEMBERS, RATE, SUBSCRIBERS
from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import FONT, SINGLE_WIDTH, Figure, grid, save, text_width
from k8sdds.report.figures.estimates import Limits, Styles, scale
from k8sdds.report.theme import MUTED, network_colors
from k8sdds.system.grouping import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXES = {
    RATE: ("rate", "offered samples/s"),
    SUBSCRIBERS: ("number of subscribers", "subscribers"),
    MEMBERS: ("number of members", "members per process"),
}
"""What is drawn by in words, and the label of its axis, by what was searched."""
_NO_TIME = (
    " Probes in which pairs did not match, or broke and never matched again, have no time and are not drawn."
)
"""Why a figure of fleets does not show all probes, for its caption."""


def draw(content: Content, folder: Path) -> list[Figure]:
    """Draw one figure per condition: the measured times by what was searched, with the capacity of each network."""
    groups = grouped(filter(drawn, content.searches), lambda one: tuple(one.condition.values()))
    order = content.networks.index
    return [
        _figure(content, sorted(searches, key=lambda one: order(one.network)), folder, index)
        for index, searches in enumerate(groups.values())
    ]


def drawn(one: Found) -> list[tuple[Probe, float]]:
    """Return the probes of a search with p99 of their delay in ms, or the time in s.

    If a probe has no p99, it is drawn with its maximum, as all probes that are equal to it: see `Found.comparable`.
    """
    if one.searched == MEMBERS:
        return [(probe, probe.matched_s) for probe in one.probes if probe.value and probe.matched_s]
    delays = (row["delay_p99_us"] or row["delay_max_us"] or 0.0 for row in one.comparable)
    return [
        (probe, delay / 1000)
        for probe, delay in zip(one.probes, delays, strict=True)
        if probe.value and delay
    ]


def _figure(content: Content, searches: Sequence[Found], folder: Path, index: int) -> Figure:
    first = searches[0]
    offered, label = _AXES[first.searched]
    is_fleet = first.searched == MEMBERS
    what, topic, unit = (
        ("matching of all members", "Matching", "s") if is_fleet else ("p99 of the delay", "Latency", "ms")
    )
    names = [_name(one) for one in searches]
    right = text_width([line for name in names for line in name.split("\n")], FONT - 0.5) + 0.25
    drawing, (ax,) = grid([2.6], 1, SINGLE_WIDTH, left=0.62, right=right, head=0.3, foot=0.5)
    _panel(ax, searches, network_colors(content.networks))
    ax.set(title=what, xlabel=label, ylabel=unit)
    caption = (
        f"{formats.capital(what)} by {offered}. Dots: probes that met"
        f" {first.search.goals[0].describe()}; crosses: probes that missed it. Line: median of equal probes. Band:"
        " interval of the capacity. Large marker: its lower end, the knee."
        f"{_NO_TIME if is_fleet else ' If a probe has no p99, its maximum and that of equal probes is shown.'}"
        f" {content.testbed} · {formats.count(sum(len(drawn(one)) for one in searches), 'probe')} of"
        f" {first.search.duration_s:g} s{'' if is_fleet else ' or shorter'}."
    )
    alt = f"{formats.capital(what)} by {offered}. " + "; ".join(
        f"{row['network_label']}, {capacities.goal_of(row)}: {formats.capacity(row)}"
        for row in content.capacities
        if any(
            row["network_label"] == one.network and row.items() >= one.condition.items() for one in searches
        )
    )
    slug = "capacity" + (f"-{index + 1}" if index else "")
    return save(drawing, folder, slug, "capacity", f"{topic} by {offered}: {first.title}", alt, caption)


def _name(one: Found) -> str:
    low = one.bounds[one.search.goals[0]].low
    return f"{one.network}\n{formats.with_unit(one.searched, low) if low else 'no capacity found'}"


def _panel(ax: Axes, searches: Sequence[Found], styles: Styles) -> None:
    strictest = searches[0].search.goals[0]
    limit = strictest.p99_ms if strictest.matched_s is None else strictest.matched_s
    probes = [pair for one in searches for pair in drawn(one)]
    delays = [*(delay for _, delay in probes), *([] if limit is None else [limit])]
    values = [float(probe.value or 0) for probe, _ in probes]
    pad = (max(delays) / min(delays)) ** 0.06
    scale(ax, "y", Limits(min(delays) / pad, max(delays) * pad, True))
    margin = max((max(values) / min(values)) ** 0.04, 1.05)
    scale(ax, "x", Limits(min(values) / margin, max(values) * margin, True))
    ax.grid(axis="y")
    if limit is not None:
        ax.axhline(limit, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    for one in searches:
        _search(ax, one, styles[one.network])
    # The networks with their capacity are to the right, the largest capacity first.
    for line, one in enumerate(sorted(searches, key=lambda one: -(one.bounds[one.search.goals[0]].low or 0))):
        ax.annotate(
            _name(one), (1, 1), xytext=(7, -4 - 25 * line), xycoords="axes fraction", textcoords="offset points",
            color=styles[one.network].light, fontsize=FONT - 0.5, va="top", annotation_clip=False,
        )  # fmt: skip


def _search(ax: Axes, one: Found, style: NetworkColor) -> None:
    """Draw the probes, the interval of the capacity for each goal, and the delay at the lower end for the strictest."""
    import seaborn as sns

    strictest = one.search.goals[0]
    delays: dict[float, list[float]] = {}
    for met, marker in ((True, "o"), (False, "X")):
        points = [pair for pair in drawn(one) if (pair[0].excess(strictest) <= 1) is met]
        for probe, delay in points:
            delays.setdefault(float(probe.value or 0), []).append(delay)
        sns.scatterplot(
            x=[probe.value for probe, _ in points], y=[delay for _, delay in points], s=11, color=style.light,
            marker=marker, linewidth=0, alpha=0.85, zorder=2, ax=ax,
        )  # fmt: skip
    medians = {value: median(delays[value]) for value in sorted(delays)}
    ax.plot([*medians], [*medians.values()], color=style.light, linewidth=0.8, alpha=0.75)
    for goal, bounds in one.bounds.items():
        if bounds.low and bounds.high:
            alpha = 0.22 if goal is strictest else 0.1
            ax.axvspan(bounds.low, bounds.high, color=style.light, alpha=alpha, linewidth=0)
    knee = one.bounds[strictest].low
    if knee in medians:
        ax.plot(knee, medians[knee], marker=style.marker, ms=8, color=style.light, markeredgecolor="white")
