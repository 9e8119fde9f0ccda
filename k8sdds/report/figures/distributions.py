"""Draw distributions of latencies and delays: the share of slower samples, from merged histograms, on two log axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds import workloads
from k8sdds.analysis.conditions import UNIT
from k8sdds.analysis.overhead import alike
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import (
    FONT,
    SINGLE_WIDTH,
    WIDTH,
    Figure,
    grid,
    legend,
    legend_height,
    save,
    spread,
)
from k8sdds.report.figures.estimates import Limits, Styles, axis_unit, scale
from k8sdds.report.settings import Point, Setting
from k8sdds.report.theme import network_colors
from k8sdds.results import histograms
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.grouping import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PANELS = 6
_STEPS = 24
"""Points per decade of 1 - quantile: enough for a smooth curve on a printed page."""
_PERCENTILES = (50, 90, 99, 99.9, 99.99, 99.999)


@dataclass(frozen=True)
class Distribution:
    """Latency in µs at each quantile (from 0 to just below 1), with the number of samples and of trials."""

    quantiles: list[float]
    latency_us: list[float]
    samples: int
    trials: int


def distribution(run: RunFolder, attempts: Iterable[tuple[str, int, Sequence[str]]]) -> Distribution | None:
    """Return the distribution merged from the logs of some attempts, for figures only, or None if no log is readable.

    Of each attempt, `attempts` has trial, number and the tags of its latencies.
    """
    candidates = [histograms.read(run.raw(trial_id, attempt), tags) for trial_id, attempt, tags in attempts]
    known = [histogram for histogram in candidates if histogram is not None]
    whole = histograms.merged(known)
    if whole is None:
        return None
    samples = whole.total
    quantiles = []
    # Further quantiles have too few values above them.
    step = 0
    while (rest := 10 ** (-step / _STEPS)) >= min(1, histograms.VALUES_BEYOND / samples):
        quantiles.append(1 - rest)
        step += 1
    values = [value / 1000 for value in whole.percentiles([100 * q for q in quantiles])]
    return Distribution(quantiles, values, samples, len(known))


def draw(content: Content, setting: Setting, folder: Path, test: str) -> Figure | None:
    """Draw what a test timed at each percentile: one panel per point, one line per network."""
    panels = _distributions(content, setting, test)
    if not panels:
        return None
    timed = METRICS[workloads.find(test).metrics[0]].group
    every = [merged for networks in panels.values() for merged in networks.values()]
    factor, unit = axis_unit("µs", max(merged.latency_us[-1] for merged in every))
    styles = network_colors(content.networks)
    labels = content.ordered(label for networks in panels.values() for label in networks)
    columns = min(3 if len(panels) > 2 else 2, len(panels))
    drawing, axes = grid(
        [1.6 if columns == 3 else 2.2] * len(panels), columns, min(WIDTH / columns, SINGLE_WIDTH),
        left=0.62, right=0.22, head=0.3, foot=0.45, below=legend_height(labels),
    )  # fmt: skip
    legend(drawing, [(label, styles[label].marker, styles[label].light, "-") for label in labels])
    for ax, (point, networks) in zip(axes, panels.items(), strict=True):
        _panel(ax, networks, styles, factor)
        ax.set(title=setting.point_label(point), xlabel="percentile", ylabel=f"one-way {timed}, {unit}")
    caption = (
        f"Samples of all repetitions are merged ({formats.range_of([one.samples for one in every])} per line), to show"
        f" the shape only. Logarithmic axes. {content.caption(setting, test, interval=False)}."
    )
    title = f"{formats.capital(timed)} distribution: {setting.title}"
    slug = setting.file_name(f"{timed}-distribution")
    return save(drawing, folder, slug, test, title, _alt(title, setting, panels), caption)


def _distributions(content: Content, setting: Setting, test: str) -> dict[Point, dict[str, Distribution]]:
    workload = workloads.find(test)
    trials: dict[Point, dict[str, list[Row]]] = {}
    for row in setting.trials:
        if row["test"] == test and row["attempt"] is not None:
            trials.setdefault(Point.of(row), {}).setdefault(row[UNIT], []).append(row)
    panels = {}
    for point in spread(sorted(trials), MAX_PANELS):
        found = {}
        # A panel contains only values that were measured by the same method.
        comparable = alike(METRICS[workload.metrics[0]], *trials[point].values())
        for label, rows in zip(trials[point], comparable, strict=True):
            attempts = [
                (row["trial_id"], row["attempt"], workload.shown(row.get("delay_method"))) for row in rows
            ]
            merged = distribution(content.run, attempts)
            if merged is not None and len(merged.quantiles) > 1:
                found[label] = merged
        if found:
            panels[point] = found
    return panels


def _panel(ax: Axes, networks: Mapping[str, Distribution], styles: Styles, factor: float) -> None:
    for label, merged in networks.items():
        # Too few samples are slower than the last quantile, so the line ends there.
        ax.step(
            [1.0, *(1 - quantile for quantile in merged.quantiles)],
            [factor * value for value in (merged.latency_us[0], *merged.latency_us)],
            where="pre", color=styles[label].light, linewidth=1.3, marker=styles[label].marker, ms=3.4, mew=0,
            markevery=(6, 12),
        )  # fmt: skip
    most = max(merged.quantiles[-1] for merged in networks.values())
    shown = [p for p in _PERCENTILES if p / 100 <= most]
    ax.set_xscale("log")
    ax.set_xlim(1, 1 - most if most < 1 else 0.1)
    ax.set_xticks([1 - p / 100 for p in shown], [f"{p:g}" for p in shown])
    low = factor * min(merged.latency_us[0] for merged in networks.values())
    high = factor * max(merged.latency_us[-1] for merged in networks.values())
    scale(ax, "y", Limits(low * 0.93, high * 1.08, True))
    ax.tick_params(axis="y", labelsize=FONT - 0.5)
    ax.grid()


def _alt(title: str, setting: Setting, panels: Mapping[Point, Mapping[str, Distribution]]) -> str:
    texts = {
        setting.point_label(point): {
            label: f"{formats.number(_value(merged, 0.5))} and {formats.number(_value(merged, 0.99))}"
            for label, merged in networks.items()
        }
        for point, networks in panels.items()
    }
    return f"{title}, median and 99th percentile in µs. {formats.by_group(texts)}."


def _value(merged: Distribution, quantile: float) -> float | None:
    """Return the value at a quantile; None if too few values are above it."""
    return next((v for q, v in zip(merged.quantiles, merged.latency_us, strict=True) if q >= quantile), None)
