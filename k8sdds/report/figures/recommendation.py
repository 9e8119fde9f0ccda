"""Draw an answer about an application: its requirements, all configurations, and what each choice is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from k8sdds.analysis.requirements import MET, NOT_MET, UNDECIDED, Judgement, Verdict
from k8sdds.analysis.selection import TITLES, share_of_limit
from k8sdds.analysis.statistics import Contrast
from k8sdds.model.application import Optimize
from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.figures.canvas import FONT, SINGLE_WIDTH, Figure, grid, legend, legend_height, save
from k8sdds.report.figures.estimates import Against, Estimate, reach, scale, spans_a_decade, stacked
from k8sdds.report.theme import INK, PAPER, network_colors

STYLES: Mapping[Verdict, NetworkColor] = {
    MET: NetworkColor("#117733", "#6fd08c", "o"),
    UNDECIDED: NetworkColor("#b8860b", "#f0c04a", "d"),
    NOT_MET: NetworkColor("#a11d33", "#ff7f8f", "X"),
}
"""Colors that `theme` knows, and markers."""
_SECTION = "recommendation"
MAX_PERCENT = 300
"""Largest share of a limit that is drawn."""


@dataclass(frozen=True)
class Point:
    """A configuration with its verdict and its scores."""

    network: str
    verdict: Verdict
    scores: Mapping[Optimize, Contrast]


def requirements(judged: Sequence[tuple[Judgement, str]], role: str, confidence: str, folder: Path) -> Figure:
    """Draw the interval of each requirement as a share of its limit.

    Each judgement has its value as text. `role` is what the configuration is, such as `recommended`.
    """
    estimates = {}
    for judgement, text in judged:
        requirement, numbers = judgement.requirement, (judgement.value, judgement.low, judgement.high)
        # A value far beyond its limit must not make those near theirs indistinguishable.
        value, *bounds = (
            None if number is None else min(100 * share_of_limit(requirement, number), MAX_PERCENT)
            for number in numbers
        )
        known = sorted(bound for bound in bounds if bound is not None)
        if value is not None:
            low, high = known if len(known) == 2 else (None, None)
            estimates[requirement.describe()] = Estimate(value, low, high, text=text)
    styles = {judgement.requirement.describe(): STYLES[judgement.verdict] for judgement, _ in judged}
    drawing = stacked([Against("", "share of the limit, %", 100, estimates, styles, "no value")])
    caption = (
        f"Markers: mean; lines: {confidence} interval (cut off at the axis). The vertical line is the limit: left of it"
        f" is within; what is beyond {MAX_PERCENT} % is drawn there. Of a rate to reach, the figure has what is missing"
        " to 100 %. Circle: met; diamond: undecided; cross: not met."
    )
    alt = "; ".join(
        f"{judgement.requirement.describe()}: {text}, {judgement.verdict}" for judgement, text in judged
    )
    title = f"The {role} configuration: each requirement against its limit"
    return save(drawing, folder, "recommendation-requirements", _SECTION, title, alt, caption)


def worth(rows: Sequence[tuple[str, Optimize, Contrast | None]], folder: Path) -> Figure:
    """Draw what each choice is worth: the change of each quantity, with its 95 % interval."""
    panels = []
    for quantity in dict.fromkeys(quantity for _, quantity, _ in rows):
        found = {what: contrast for what, own, contrast in rows if own == quantity}
        estimates = {
            what: Estimate.of_ratio(contrast.ratio, contrast.interval())
            for what, contrast in found.items()
            if contrast
        }
        styles = {what: STYLES[_direction(estimate)] for what, estimate in estimates.items()}
        styles = {what: styles.get(what, STYLES[UNDECIDED]) for what in found}
        if estimates:
            panels.append(
                Against(formats.capital(TITLES[quantity]), "change, %", 0, estimates, styles, "not compared")
            )
    caption = (
        "Markers: mean ratio of configurations that differ only in this choice; lines: 95 % interval (cut off at the"
        " axis). Left of 0 is better. Circle: better; cross: worse; diamond: undecided. Without a line: no interval."
    )
    alt = "; ".join(
        f"{panel.title}, {what}: {estimate.text}"
        for panel in panels
        for what, estimate in panel.estimates.items()
    )
    title = "What each choice is worth"
    return save(stacked(panels), folder, "recommendation-worth", _SECTION, title, alt, caption)


def configurations(points: Sequence[Point], role: str, folder: Path) -> Figure:
    """Draw the CPU time of all configurations against their delay, and mark the first one."""
    networks = list(dict.fromkeys(point.network for point in points))
    colors = network_colors(networks)
    used = dict.fromkeys(point.verdict for point in points)
    styles = [(name, "s", colors[name].light, "none") for name in networks]
    styles += [(verdict, STYLES[verdict].marker, INK, "none") for verdict in used]
    drawing, (ax,) = grid(
        [2.4], 1, SINGLE_WIDTH, left=0.75, right=0.2, head=0.3, foot=0.5,
        below=legend_height([name for name, *_ in styles]),
    )  # fmt: skip
    placed = [(point.scores["cpu"].ratio, 100 * point.scores["delay"].ratio) for point in points]
    for point, at in reversed([*zip(points, placed, strict=True)]):
        ax.plot(*at, STYLES[point.verdict].marker, color=colors[point.network].light, ms=5, mew=0)
    x, y = placed[0]
    ax.plot(x, y, "o", ms=11, markerfacecolor="none", markeredgecolor=INK)
    axes: tuple[Literal["x", "y"], ...] = ("x", "y")
    for axis, values in zip(axes, zip(*placed, strict=True), strict=True):
        shown = [*map(Estimate, values)]
        scale(ax, axis, reach(shown, ratio=spans_a_decade(shown)))
    on_the_right = ax.transAxes.inverted().transform(ax.transData.transform((x, y)))[0] > 0.6
    ax.annotate(
        role, (x, y), xytext=(0, 11), textcoords="offset points", color=INK, size=FONT,
        ha="right" if on_the_right else "left", bbox={"facecolor": PAPER, "alpha": 0.8, "linewidth": 0, "pad": 1},
    )  # fmt: skip
    ax.grid()
    ax.set(xlabel=f"{TITLES['cpu']}, % of one core", ylabel="largest delay, % of its limit")
    legend(drawing, styles)
    title = "CPU time against delay of the configurations"
    caption = (
        f"Lower left is best. The ring marks the {role} one. Means as if all had been measured together."
    )
    alt = f"{title}. {formats.capital(role)}: {x:.3g} % of one core, {y:.3g} % of the limit."
    return save(drawing, folder, "recommendation-configurations", _SECTION, title, alt, caption)


def _direction(estimate: Estimate) -> Verdict:
    if estimate.low is None or estimate.high is None or estimate.low <= 0 <= estimate.high:
        return UNDECIDED
    return MET if estimate.high < 0 else NOT_MET
