"""Draw estimates: means as markers, their 95 % intervals as lines, and single trials as small dots.

seaborn draws the means and the trials. It estimates nothing itself: the means and the intervals come from
`k8sdds.analysis`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.figures.canvas import FONT, SINGLE_WIDTH, WIDTH, axes, grid, new, text_width
from k8sdds.report.settings import Row
from k8sdds.report.theme import INK, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Styles = Mapping[str, NetworkColor]


@dataclass(frozen=True)
class Estimate:
    """A mean, its 95 % interval (None for a single trial), and the values of the trials."""

    mean: float
    low: float | None
    high: float | None
    values: Sequence[float]
    marks: tuple[float, ...] = ()
    """Further values to mark, such as other percentiles."""
    text: str = ""
    """The mean, or the mean with its interval, as text."""

    @classmethod
    def of_level(cls, row: Row, marks: tuple[float, ...] = (), scale: float = 1) -> Estimate:
        """Return a level in the unit of its quantity, multiplied by a scale."""
        mean, low, high = (
            None if row[key] is None else row[key] * scale for key in ("mean", "ci_low", "ci_high")
        )
        values, scaled = [value * scale for value in row["values"]], tuple(mark * scale for mark in marks)
        return cls(mean, low, high, values, scaled, formats.number(mean))

    @classmethod
    def of_overhead(cls, row: Row) -> Estimate:
        """Return an overhead in percent."""
        mean, low, high = (row[key] for key in ("overhead_percent", "ci_low_percent", "ci_high_percent"))
        text = formats.percent(mean, low, high).partition(" ")[0]
        return cls(mean, low, high, row["values"], text=text)

    @classmethod
    def of_ratio(cls, ratio: float, bounds: tuple[float | None, float | None]) -> Estimate:
        """Return the change in percent that a ratio and the bounds of its interval mean."""
        mean, low, high = (None if value is None else 100 * (value - 1) for value in (ratio, *bounds))
        return cls(100 * (ratio - 1), low, high, (), text=formats.change(mean, low, high))

    @property
    def measured(self) -> tuple[float, ...]:
        """The mean, the values of the trials and the marks."""
        return (self.mean, *self.values, *self.marks)


Series = Mapping[float, Estimate]
"""Estimates by their position on the axis."""


def along(
    ax: Axes, series: Mapping[str, Series], styles: Styles, step: float, dashed: Collection[str] = ()
) -> None:
    """Draw each series as a line along the x axis.

    Args:
        ax: Axes, with the final scales.
        series: Series by label.
        styles: Color and marker by label.
        step: Distance by which neighboring series are shifted sideways, so that intervals do not cover each other.
        dashed: Labels of the series whose line is dashed.
    """
    import pandas as pd
    import seaborn as sns

    first = -(len(series) - 1) / 2 * step
    points = [
        (label, x + first + index * step, estimate)
        for index, (label, estimates) in enumerate(series.items())
        for x, estimate in estimates.items()
    ]
    palette = {label: styles[label].light for label in series}
    means = pd.DataFrame([(label, x, item.mean) for label, x, item in points], columns=["series", "x", "y"])
    sns.lineplot(
        means, x="x", y="y", hue="series", style="series", palette=palette,
        markers={label: styles[label].marker for label in series},
        dashes={label: (4, 2) if label in dashed else "" for label in series},
        estimator=None, errorbar=None, legend=False, linewidth=0.8, markersize=4.6, markeredgewidth=0, ax=ax,
    )  # fmt: skip
    # The dots are next to the interval, so that its line does not cover them.
    dots = [(label, x + 0.42 * step, value) for label, x, item in points for value in item.values]
    trials = pd.DataFrame(dots, columns=["series", "x", "y"])
    small = {"hue": "series", "palette": palette, "legend": False, "ax": ax}
    sns.scatterplot(trials, x="x", y="y", s=6, linewidth=0, alpha=0.8, **small)
    if marks := [(label, x, mark) for label, x, item in points for mark in item.marks]:
        others = pd.DataFrame(marks, columns=["series", "x", "y"])
        sns.scatterplot(others, x="x", y="y", marker="_", s=14, linewidth=0.8, **small)
        marked = [
            (x, min(item.mean, *item.marks), max(item.mean, *item.marks), palette[label])
            for label, x, item in points
            if item.marks
        ]
        xs, lows, highs, colors = zip(*marked, strict=True)
        ax.vlines(xs, lows, highs, colors=colors, linewidth=0.6, linestyles=[(0, (1, 1.5))])
    bounded = [(x, item.low, item.high, palette[label]) for label, x, item in points if item.low is not None]
    if bounded:
        xs, lows, highs, colors = zip(*bounded, strict=True)
        ax.vlines(xs, lows, highs, colors=colors, linewidth=1.1)


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
    import pandas as pd
    import seaborn as sns

    place = {label: float(index) for index, label in enumerate(labels)}
    table = pd.DataFrame(
        [(label, place[label], item.mean) for label, item in estimates.items()], columns=["series", "y", "x"]
    )
    palette = {label: styles[label].light for label in estimates}
    sns.pointplot(
        table, x="x", y="y", hue="series", palette=palette, markers=[styles[label].marker for label in estimates],
        orient="y", native_scale=True, estimator="median", errorbar=None, linestyle="none", markersize=4.6,
        markeredgewidth=0, legend=False, ax=ax,
    )  # fmt: skip
    dots = [(label, place[label] + 0.28, value) for label, item in estimates.items() for value in item.values]
    trials = pd.DataFrame(dots, columns=["series", "y", "x"])
    if dots:
        small = {"hue": "series", "palette": palette, "legend": False, "ax": ax}
        sns.scatterplot(trials, x="x", y="y", s=6, linewidth=0, alpha=0.8, **small)
    bounded = [
        (place[label], item.low, item.high, palette[label])
        for label, item in estimates.items()
        if item.low is not None
    ]
    if bounded:
        ys, lows, highs, colors = zip(*bounded, strict=True)
        ax.hlines(ys, lows, highs, colors=colors, linewidth=1.3)
    for label, y in place.items():
        item = estimates.get(label)
        if item and item.marks:
            ax.plot(
                [min(item.mean, *item.marks), max(item.mean, *item.marks)],
                [y, y],
                color=MUTED,
                linewidth=0.6,
                linestyle=(0, (1, 1.5)),
            )
        for mark in item.marks if item else ():
            ax.plot([mark, mark], [y - 0.2, y + 0.2], color=MUTED, linewidth=0.9)
        text = item.text if item else missing
        place_of = {"va": "center", "size": FONT - 1, "transform": ax.get_yaxis_transform()}
        if above:
            place_of["bbox"] = {"facecolor": PAPER, "alpha": 0.8, "linewidth": 0, "pad": 0}
            ax.text(0, y - 0.42, label, color=INK, **place_of)
        color = INK if item else MUTED
        ax.text(
            1 if above else 1.02,
            y - 0.42 * above,
            text,
            color=color,
            ha="right" if above else "left",
            **place_of,
        )
    ax.set(ylim=(len(labels) - 0.5, -0.5 - 0.25 * above), xlabel="", ylabel="")
    ax.set_yticks(range(len(labels)), [""] * len(labels) if above else labels)
    ax.spines["left"].set_visible(not above)
    ax.tick_params(axis="y", length=0, pad=4)


def reach(estimates: Iterable[Estimate], ratio: bool = False) -> tuple[float, float]:
    """Return the range of an axis that shows all trials.

    The interval of two trials can be huge, so an interval may extend the range only by 60 %, and is otherwise
    cut off at the axis.

    Args:
        estimates: All estimates on the axis, at least one.
        ratio: Whether the axis is logarithmic; all values must then be positive.
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
    low, high = low - pad, high + pad
    return (math.exp(low), math.exp(high)) if ratio else (low, high)


def axis_unit(unit: str, largest: float) -> tuple[float, str]:
    """Return the scale and the unit of an axis: long times are in milliseconds, because more digits have no room."""
    return (1e-3, "ms") if unit == "µs" and largest >= 100_000 else (1, unit)


def spans_a_decade(estimates: Iterable[Estimate]) -> bool:
    """Return whether an axis of these estimates is logarithmic."""
    values = [value for estimate in estimates for value in estimate.measured]
    return bool(values) and min(values) > 0 and max(values) >= 10 * min(values)


def level_axis(estimates: Sequence[Estimate]) -> tuple[float, float, bool]:
    """Return the limits of an axis of levels, and whether it is logarithmic; otherwise it begins at 0."""
    if spans_a_decade(estimates):
        return *reach(estimates, ratio=True), True
    return 0, reach([*estimates, Estimate(0, None, None, ())])[1], False


def scale(
    ax: Axes, axis: Literal["x", "y"], low: float, high: float, logarithmic: bool, most: int = 6
) -> None:
    """Set the limits of an axis, and label three or more round positions. Values of 0 lie below a logarithmic axis."""
    low = max(low, high * 1e-6) if logarithmic else low
    if logarithmic:
        ax.set(**{f"{axis}scale": "log"})
    ax.set(**{f"{axis}lim": (low, high)})
    ticks = _ticks(low, high, logarithmic, most)
    ax.set(
        **{
            f"{axis}ticks": ticks,
            f"{axis}ticklabels": [f"{tick:,.10g}".replace("-", "\N{MINUS SIGN}") for tick in ticks],
        }
    )
    ax.minorticks_off()


def _ticks(low: float, high: float, logarithmic: bool, most: int) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    if logarithmic:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7)):
            ticks = [tick for d in decades for step in steps if low <= (tick := step * 10.0**d) <= high]
            if len(ticks) >= 3:
                return ticks[:: -(-len(ticks) // most)]
    steps = MaxNLocator(most - 1, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3).tick_values(low, high)
    return [float(f"{tick:.10g}") for tick in steps if low <= tick <= high]


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
    side, head, foot = 0.15, 0.3, 0.5
    across = min(max(text_width(texts, FONT - 1) + 2 * side, SINGLE_WIDTH), WIDTH)
    heights = [0.36 * (len(panel.styles) + 0.25) for panel in panels]
    drawing = new(across, sum(heights) + len(panels) * (head + foot))
    top = 0.0
    for panel, height in zip(panels, heights, strict=True):
        ax = axes(drawing, side, top + head, across - 2 * side, height)
        rows(ax, panel.estimates, list(panel.styles), panel.styles, panel.missing, above=True)
        low, high = reach(
            [*panel.estimates.values(), Estimate(panel.at, None, None, ()), Estimate(0, None, None, ())]
        )
        # Without any change, the axis still has a range. A limit is left of the values at its end.
        high = max(high, 1, 1.3 * panel.at)
        scale(ax, "x", min(low, -1) if panel.at == 0 else -0.02 * high, high, logarithmic=False)
        ax.axvline(panel.at, color=INK, linewidth=0.8)
        ax.grid(axis="x")
        ax.set_title(panel.title)
        ax.set_xlabel(panel.axis, labelpad=2)
        top += head + height + foot
    return drawing


@dataclass(frozen=True)
class Rows:
    """A panel with one row per network."""

    title: str
    axis: str
    estimates: Mapping[str, Estimate]
    limits: Sequence[float]
    logarithmic: bool = False


def row_panels(
    panels: Sequence[Rows], labels: Sequence[str], styles: Styles, missing: str = "no value"
) -> Drawing:
    """Draw panels with one row per label, two side by side."""
    margin, right, head, foot = text_width(labels) + 0.2, 0.65, 0.3, 0.5
    columns = min(2, len(panels))
    width = min(WIDTH / 2 - margin - right, 3.2)
    height = 0.23 * len(labels) + 0.08
    drawing, every = grid(len(panels), columns, width, height, left=margin, right=right, head=head, foot=foot)
    for ax, panel in zip(every, panels, strict=True):
        rows(ax, panel.estimates, labels, styles, missing)
        scale(ax, "x", *panel.limits, panel.logarithmic, most=5)
        if panel.limits[0] < 0:
            ax.axvline(0, color=INK, linewidth=0.8)
        ax.grid(axis="x")
        ax.set_title(panel.title)
        ax.set_xlabel(panel.axis, labelpad=2)
    return drawing


def end_labels(ax: Axes, series: Mapping[str, Series], styles: Styles, height: float) -> None:
    """Write the labels to the right of the last points, moved apart so that they do not overlap.

    Args:
        ax: Axes, with the final scales and limits.
        series: Series by label.
        styles: Color by label.
        height: Height of the axes in inches.
    """
    to_axes = ax.transScale + ax.transLimits
    ends = {
        label: float(to_axes.transform((0, list(estimates.values())[-1].mean))[1])
        for label, estimates in series.items()
    }
    room = (FONT + 1.5) / 72 / height
    placed: list[list] = [[y, y, label] for label, y in sorted(ends.items(), key=lambda item: item[1])]
    for _ in range(100):
        moved = False
        for below, above in itertools.pairwise(placed):
            overlap = room - (above[0] - below[0])
            if overlap > room * 0.01:
                below[0] -= overlap / 2
                above[0] += overlap / 2
                moved = True
        for item in placed:
            item[0] = min(max(item[0], room / 2), 1 - room / 2)
        if not moved:
            break
    for y, end, label in placed:
        color = styles[label].light
        ax.plot([1.0, 1.025], [end, y], color=color, linewidth=0.7, clip_on=False, transform=ax.transAxes)
        ax.text(1.035, y, label, color=color, va="center", size=FONT - 0.5, transform=ax.transAxes)
