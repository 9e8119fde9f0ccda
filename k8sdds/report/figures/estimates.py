"""Draw estimates: means as markers, their 95 % intervals as lines, and single trials as small dots.

seaborn draws the means along an axis and the trials. It estimates nothing: the means and the intervals come from
`k8sdds.analysis`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.figures.canvas import FONT, SINGLE_WIDTH, WIDTH, grid, text_width
from k8sdds.report.theme import INK, MUTED, PAPER
from k8sdds.system.grouping import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Styles = Mapping[str, NetworkColor]
"""Color and marker by label."""


@dataclass(frozen=True)
class Estimate:
    """A mean, its 95 % interval (None for a single trial), and the values of the trials."""

    mean: float
    low: float | None = None
    high: float | None = None
    values: Sequence[float] = ()
    marks: tuple[float, ...] = ()
    """Further values to mark, such as other percentiles."""
    text: str = ""
    """The mean, or the mean with its interval, as text."""

    @classmethod
    def of_level(cls, row: Row, marks: Iterable[float] = (), scale: float = 1) -> Estimate:
        """Return a level in the unit of its quantity, multiplied by a scale."""
        low, high = (None if row[key] is None else row[key] * scale for key in ("ci_low", "ci_high"))
        mean, values = row["mean"] * scale, [value * scale for value in row["values"]]
        return cls(mean, low, high, values, tuple(mark * scale for mark in marks), formats.number(mean))

    @classmethod
    def of_overhead(cls, row: Row) -> Estimate:
        """Return an overhead in percent."""
        mean, low, high = (row[key] for key in ("overhead_percent", "ci_low_percent", "ci_high_percent"))
        return cls(mean, low, high, row["values"], text=formats.overhead(row).partition(" ")[0])

    @classmethod
    def of_ratio(cls, ratio: float, bounds: tuple[float | None, float | None]) -> Estimate:
        """Return the change in percent that a ratio and the bounds of its interval mean."""
        mean, (low, high) = (
            100 * (ratio - 1),
            (None if bound is None else 100 * (bound - 1) for bound in bounds),
        )
        return cls(mean, low, high, text=formats.change(mean, low, high))

    @property
    def measured(self) -> tuple[float, ...]:
        """The mean, the values of the trials and the marks."""
        return (self.mean, *self.values, *self.marks)


Series = Mapping[float, Estimate]
"""Estimates by their position on the axis."""


class Limits(NamedTuple):
    """The limits of an axis, and whether it is logarithmic."""

    low: float
    high: float
    logarithmic: bool = False


def along(
    ax: Axes, series: Mapping[str, Series], styles: Styles, step: float, dashed: Collection[str] = ()
) -> None:
    """Draw each series as a line along the x axis, which has the final scales.

    Neighboring series are shifted sideways by a step, so that intervals do not cover each other.
    """
    import seaborn as sns

    for index, (label, estimates) in enumerate(series.items()):
        at = [x + (index - (len(series) - 1) / 2) * step for x in estimates]
        style, items = styles[label], list(estimates.values())
        sns.lineplot(
            x=at, y=[item.mean for item in items], estimator=None, color=style.light, marker=style.marker,
            markersize=4.6, markeredgewidth=0, linewidth=0.8, linestyle=(0, (4, 2)) if label in dashed else "-", ax=ax,
        )  # fmt: skip
        # The dots are next to the interval, so that its line does not cover them.
        _spread(ax, at, items, style.light, 0.42 * step)


def _spread(
    ax: Axes, at: Sequence[float], items: Sequence[Estimate], color: str, shift: float, upright: bool = True
) -> None:
    """Draw the trials, marks and intervals of estimates, which are upright or in rows; trials are shifted."""
    import seaborn as sns

    lines = ax.vlines if upright else ax.hlines

    def dots(points: list[tuple[float, float]], marker: str, size: float, width: float, alpha: float) -> None:
        if points:
            x, y = zip(*(point if upright else point[::-1] for point in points), strict=True)
            sns.scatterplot(x=x, y=y, s=size, color=color, marker=marker, linewidth=width, alpha=alpha, ax=ax)

    def strokes(spans: list[tuple[float, float | None, float | None]], **style: Any) -> None:
        if spans:
            places, lows, highs = zip(*spans, strict=True)
            lines(places, lows, highs, colors=color, **style)

    placed = list(zip(at, items, strict=True))
    dots([(place + shift, value) for place, item in placed for value in item.values], "o", 6, 0, 0.8)
    dots(
        [(place, mark) for place, item in placed for mark in item.marks], "_" if upright else "|", 14, 0.8, 1
    )
    marked = [(place, item.mean, *item.marks) for place, item in placed if item.marks]
    strokes(
        [(place, min(ends), max(ends)) for place, *ends in marked], linewidth=0.6, linestyles=(0, (1, 1.5))
    )
    bounded = [(place, item.low, item.high) for place, item in placed if None not in (item.low, item.high)]
    strokes(bounded, linewidth=1.1 if upright else 1.3)


def rows(
    ax: Axes,
    estimates: Mapping[str, Estimate],
    labels: Sequence[str],
    styles: Styles,
    missing: str = "no value",
    above: bool = False,
) -> None:
    """Draw one row per label, with the estimate as text, or `missing` without one.

    Labels and texts are left and right of the row, or above it.
    """
    beside: dict[str, Any] = {"va": "center", "size": FONT - 1, "transform": ax.get_yaxis_transform()}
    box: dict[str, Any] = (
        {"bbox": {"facecolor": PAPER, "alpha": 0.8, "linewidth": 0, "pad": 0}} if above else {}
    )
    for place, label in enumerate(labels):
        item = estimates.get(label)
        if item:
            style = styles[label]
            ax.plot(item.mean, place, color=style.light, marker=style.marker, ms=4.6, mew=0, ls="none")
            _spread(ax, [place], [item], style.light, 0.28, upright=False)
        text, color = (item.text, INK) if item else (missing, MUTED)
        if above:
            ax.text(0, place - 0.42, label, color=INK, **beside, **box)
            ax.text(1, place - 0.42, text, color=color, ha="right", **beside, **box)
        else:
            ax.text(1.02, place, text, color=color, **beside)
    ax.set_ylim(len(labels) - 0.5, -0.5 - 0.25 * above)
    ax.set_yticks(range(len(labels)), [""] * len(labels) if above else labels)
    ax.spines["left"].set_visible(not above)
    ax.tick_params(axis="y", length=0, pad=4)


def reach(estimates: Iterable[Estimate], ratio: bool = False) -> Limits:
    """Return the limits of an axis that shows all trials; with `ratio` a logarithmic one, of positive values.

    The interval of two trials can be huge, so an interval may extend the range only by 60 %, and is otherwise
    cut off at the axis.
    """
    estimates = list(estimates)
    forward = math.log if ratio else float
    measured = [forward(value) for item in estimates for value in item.measured]
    bounds = [
        forward(bound)
        for item in estimates
        for bound in (item.low, item.high)
        if bound is not None and (bound > 0 or not ratio) and math.isfinite(bound)
    ]
    low, high = min(measured), max(measured)
    room = 0.6 * max(high - low, 0.02 if ratio else 0.02 * max(abs(low), abs(high)))
    low, high = max(min([low, *bounds]), low - room), min(max([high, *bounds]), high + room)
    pad = 0.06 * max(high - low, 0.05 if ratio else 0.05 * max(abs(low), abs(high)))
    low, high = low - pad, high + (pad or 1)  # all values are 0
    return Limits(math.exp(low), math.exp(high), True) if ratio else Limits(low, high)


def axis_unit(unit: str, largest: float) -> tuple[float, str]:
    """Return the scale and the unit of an axis: long times are in milliseconds, because more digits have no room."""
    return (1e-3, "ms") if unit == "µs" and largest >= 100_000 else (1, unit)


def spans_a_decade(estimates: Iterable[Estimate]) -> bool:
    """Return whether an axis of these estimates is logarithmic."""
    values = [value for estimate in estimates for value in estimate.measured]
    return bool(values) and min(values) > 0 and max(values) >= 10 * min(values)


def level_axis(estimates: Collection[Estimate], logarithmic: bool | None = None) -> Limits:
    """Return the limits of an axis of levels, which begins at 0 unless it is logarithmic."""
    if spans_a_decade(estimates) if logarithmic is None else logarithmic:
        return reach(estimates, ratio=True)
    return Limits(0, reach([*estimates, Estimate(0)]).high)


def scale(ax: Axes, axis: Literal["x", "y"], limits: Limits, most: int = 6) -> None:
    """Set the limits of an axis, and label three or more round positions. Values of 0 lie below a logarithmic axis."""
    low, high, logarithmic = limits
    if logarithmic:
        low = max(low, high * 1e-6)
        ax.set(**{f"{axis}scale": "log"})
    ticks = _ticks(low, high, logarithmic, most)
    labels = [f"{tick:,.10g}".replace("-", "\N{MINUS SIGN}") for tick in ticks]
    ax.set(**{f"{axis}lim": (low, high), f"{axis}ticks": ticks, f"{axis}ticklabels": labels})
    ax.minorticks_off()


def _ticks(low: float, high: float, logarithmic: bool, most: int) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    if logarithmic:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        choices: tuple[tuple[float, ...], ...] = ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))
        for steps in choices:
            ticks = [tick for d in decades for step in steps if low <= (tick := step * 10.0**d) <= high]
            if len(ticks) >= 3:
                return ticks[:: -(-len(ticks) // most)]
    found = MaxNLocator(most - 1, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3).tick_values(low, high)
    return [float(f"{tick:.10g}") for tick in found if low <= tick <= high]


@dataclass(frozen=True)
class Against:
    """A panel with one row per style, and a line at the value that the estimates are compared with."""

    title: str
    axis: str
    at: float
    estimates: Mapping[str, Estimate]
    styles: Styles
    missing: str = ""
    """Text of a row without an estimate."""


def stacked(panels: Sequence[Against]) -> Drawing:
    """Draw panels one below the other, each row below its label, so that a phone shows them whole."""
    texts = [
        f"{label}  {panel.estimates[label].text if label in panel.estimates else panel.missing}"
        for panel in panels
        for label in panel.styles
    ]
    side = 0.15
    across = min(max(text_width(texts, FONT - 1) + 2 * side, SINGLE_WIDTH), WIDTH)
    heights = [0.36 * (len(panel.styles) + 0.25) for panel in panels]
    drawing, every = grid(heights, 1, across, left=side, right=side, head=0.3, foot=0.5)
    for ax, panel in zip(every, panels, strict=True):
        rows(ax, panel.estimates, list(panel.styles), panel.styles, panel.missing, above=True)
        limits = reach([*panel.estimates.values(), Estimate(panel.at), Estimate(0)])
        # Without any change, the axis still has a range. A limit is left of the values at its end.
        high = max(limits.high, 1, 1.3 * panel.at)
        scale(ax, "x", Limits(min(limits.low, -1) if panel.at == 0 else -0.02 * high, high))
        ax.axvline(panel.at, color=INK, linewidth=0.8)
        ax.grid(axis="x")
        ax.set(title=panel.title, xlabel=panel.axis)
    return drawing


@dataclass(frozen=True)
class Rows:
    """A panel with one row per network."""

    title: str
    axis: str
    estimates: Mapping[str, Estimate]
    limits: Limits


def row_panels(
    panels: Sequence[Rows], labels: Sequence[str], styles: Styles, missing: str = "no value"
) -> Drawing:
    """Draw panels with one row per label, two side by side."""
    margin, right = text_width(labels) + 0.2, 0.65
    heights = [0.23 * len(labels) + 0.08] * len(panels)
    across = min(WIDTH / 2, margin + 3.2 + right)
    drawing, every = grid(heights, min(2, len(panels)), across, left=margin, right=right, head=0.3, foot=0.5)
    for ax, panel in zip(every, panels, strict=True):
        rows(ax, panel.estimates, labels, styles, missing)
        scale(ax, "x", panel.limits, most=5)
        if panel.limits.low < 0:
            ax.axvline(0, color=INK, linewidth=0.8)
        ax.grid(axis="x")
        ax.set(title=panel.title, xlabel=panel.axis)
    return drawing


def end_labels(ax: Axes, series: Mapping[str, Series], styles: Styles) -> None:
    """Write the labels to the right of the last points, moved apart so that they do not overlap.

    The axes have the final scales and limits.
    """
    to_axes = ax.transScale + ax.transLimits
    ends = {
        label: float(to_axes.transform((0, list(estimates.values())[-1].mean))[1])
        for label, estimates in series.items()
    }
    room = (FONT + 1.5) / 72 / (ax.bbox.height / ax.figure.dpi)
    labels = sorted(ends, key=ends.__getitem__)
    placed = [ends[label] for label in labels]
    for _ in range(100):
        moved = False
        for below, above in itertools.pairwise(range(len(placed))):
            overlap = room - (placed[above] - placed[below])
            if overlap > room * 0.01:
                placed[below] -= overlap / 2
                placed[above] += overlap / 2
                moved = True
        placed = [min(max(y, room / 2), 1 - room / 2) for y in placed]
        if not moved:
            break
    for y, label in zip(placed, labels, strict=True):
        color = styles[label].light
        ax.plot(
            [1.0, 1.025], [ends[label], y], color=color, linewidth=0.7, clip_on=False, transform=ax.transAxes
        )
        ax.text(1.035, y, label, color=color, va="center", size=FONT - 0.5, transform=ax.transAxes)
