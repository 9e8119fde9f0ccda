"""Draw distributions of latencies and delays: the share of slower samples, from merged histograms, on two log axes."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds import workloads
from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.histograms import Distribution, distribution
from k8sdds.analysis.overhead import alike
from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import FONT, SINGLE_WIDTH, WIDTH, Figure, grid, legend, legend_height, save
from k8sdds.report.figures.estimates import axis_unit
from k8sdds.report.figures.estimates import scale as set_scale
from k8sdds.report.settings import Point, Row, Setting
from k8sdds.report.theme import network_colors
from k8sdds.results.columns import Metric
from k8sdds.results.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS = 6
_HEAD, _FOOT, _LEFT, _RIGHT = 0.3, 0.45, 0.62, 0.22
_PERCENTILES = (50, 90, 99, 99.9, 99.99, 99.999)


def draw(content: Content, setting: Setting, folder: Path, test: str) -> Figure | None:
    """Draw what a test timed at each percentile: one panel per point, one line per network."""
    panels = _distributions(content, setting, test)
    if not panels:
        return None
    timed = _timed(test).group
    longest_us = max(d.latency_us[-1] for merged in panels.values() for d in merged.values())
    scale, unit = axis_unit("µs", longest_us)
    styles = network_colors(content.networks)
    labels = content.ordered(label for merged in panels.values() for label in merged)
    columns = min(3 if len(panels) > 2 else 2, len(panels))
    width = min(WIDTH / columns, SINGLE_WIDTH) - _LEFT - _RIGHT
    drawing, every = grid(
        len(panels), columns, width, 1.6 if columns == 3 else 2.2, left=_LEFT, right=_RIGHT, head=_HEAD, foot=_FOOT,
        below=legend_height(labels),
    )  # fmt: skip
    legend(drawing, [(label, styles[label].marker, styles[label].light, "-") for label in labels])
    for ax, (point, merged) in zip(every, panels.items(), strict=True):
        _panel(ax, merged, styles, scale)
        ax.set_title(setting.point_label(point))
        ax.set_ylabel(f"one-way {timed}, {unit}", labelpad=2)
        ax.set_xlabel("percentile", labelpad=2)
    samples = [d.samples for merged in panels.values() for d in merged.values()]
    caption = (
        f"Samples of all repetitions are merged ({formats.range_of(samples)} per line), to show the shape only."
        f" Logarithmic axes. {content.caption(setting, test, interval=False)}."
    )
    title = f"{formats.capital(timed)} distribution: {setting.title}"
    slug = setting.file_name(f"{timed}-distribution")
    return save(drawing, folder, slug, test, title, _alt(title, setting, panels), caption)


def _distributions(content: Content, setting: Setting, test: str) -> dict[Point, dict[str, Distribution]]:
    trials: dict[Point, dict[str, list[Row]]] = {}
    for row in setting.trials:
        if row["test"] == test and row["attempt"] is not None:
            trials.setdefault(Point.of(row), {}).setdefault(row[UNIT], []).append(row)
    points = sorted(trials)
    if len(points) > MAX_PANELS:
        step = (len(points) - 1) / (MAX_PANELS - 1)
        points = [points[round(i * step)] for i in range(MAX_PANELS)]
    panels = {}
    for point in points:
        distributions = {}
        # A panel contains only values that were measured by the same method.
        comparable = alike(_timed(test), *trials[point].values())
        for label, rows in zip(trials[point], comparable, strict=True):
            merged = distribution(content.run, [_attempt(row, test) for row in rows])
            if merged is not None and len(merged.quantiles) > 1:
                distributions[label] = merged
        if distributions:
            panels[point] = distributions
    return panels


def _timed(test: str) -> Metric:
    return METRICS[workloads.find(test).metrics[0]]


def _attempt(row: Row, test: str) -> tuple[str, int, tuple[str, ...]]:
    return row["trial_id"], row["attempt"], workloads.find(test).shown(row.get("delay_method"))


def _panel(
    ax: Axes, distributions: dict[str, Distribution], styles: dict[str, NetworkColor], scale: float
) -> None:
    import pandas as pd
    import seaborn as sns
    from matplotlib.colors import to_rgba

    # Share of the samples between two quantiles; the last value is that of all samples beyond the last quantile.
    steps = [
        (label, value * scale, share)
        for label, merged in distributions.items()
        for value, share in zip(
            [*merged.latency_us, merged.latency_us[-1]],
            [b - a for a, b in itertools.pairwise([0, *merged.quantiles, 1])],
            strict=True,
        )
    ]
    sns.ecdfplot(
        pd.DataFrame(steps, columns=["network", "latency_us", "share"]),
        y="latency_us", weights="share", hue="network", complementary=True, legend=False, linewidth=1.3,
        palette={label: styles[label].light for label in distributions}, ax=ax,
    )  # fmt: skip
    labels = {to_rgba(styles[label].light): label for label in distributions}
    for line in ax.lines:
        label = labels[to_rgba(line.get_color())]
        marker = styles[label].marker
        # Too few samples are slower than the last quantile.
        shares, values = line.get_data()
        known = shares >= 0.999 * (1 - distributions[label].quantiles[-1])
        line.set_data(shares[known], values[known])
        line.set(marker=marker, markersize=3.4, markeredgewidth=0, markevery=(6, 12))
    ax.set(xlabel="", ylabel="")
    most = max(max(merged.quantiles) for merged in distributions.values())
    shown = [p for p in _PERCENTILES if p / 100 <= most]
    ax.set_xscale("log")
    ax.set_xlim(1, 1 - most if most < 1 else 0.1)
    ax.set_xticks([1 - p / 100 for p in shown], [f"{p:g}" for p in shown])
    ax.minorticks_off()
    low = scale * min(merged.latency_us[0] for merged in distributions.values())
    high = scale * max(merged.latency_us[-1] for merged in distributions.values())
    set_scale(ax, "y", low * 0.93, high * 1.08, logarithmic=True)
    ax.tick_params(axis="y", labelsize=FONT - 0.5)
    ax.grid(axis="both")


def _alt(title: str, setting: Setting, panels: dict[Point, dict[str, Distribution]]) -> str:
    texts = []
    for point, distributions in panels.items():
        values = [
            f"{label} {formats.number(_value(merged, 0.5))} and {formats.number(_value(merged, 0.99))}"
            for label, merged in distributions.items()
        ]
        texts.append(f"{setting.point_label(point)}: {', '.join(values)}")
    return f"{title}, median and 99th percentile in µs. {'; '.join(texts)}."


def _value(merged: Distribution, quantile: float) -> float | None:
    """Return the value at a quantile; None if too few values are above it."""
    return next((v for q, v in zip(merged.quantiles, merged.latency_us, strict=True) if q >= quantile), None)
