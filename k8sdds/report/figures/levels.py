"""Draw overheads and levels along the payload or the number of subscribers, also those of protected networks.

A setting with a single point gets one row per network instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.analysis.conditions import describe
from k8sdds.model.axis import payload
from k8sdds.report import formats
from k8sdds.report.content import PROTECTION_GROUP, Content, protected_name
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
    text_width,
)
from k8sdds.report.figures.estimates import (
    Estimate,
    Limits,
    Rows,
    Series,
    Styles,
    along,
    axis_unit,
    end_labels,
    level_axis,
    reach,
    row_panels,
    scale,
    spans_a_decade,
)
from k8sdds.report.settings import THROUGHPUT, Cell, Curve, Point, Setting
from k8sdds.report.theme import INK, network_colors, variant_colors
from k8sdds.results.metrics import METRICS
from k8sdds.system.grouping import Row, grouped
from k8sdds.workloads import HEADLINES, of_metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_HEAD, _FOOT, _LEFT = 0.3, 0.62, 0.62
_MAX_GROUPS = 3


@dataclass(frozen=True)
class _Quantity:
    title: str
    axis: str
    estimates: Mapping[Cell, Estimate]
    logarithmic: bool = False
    gain: bool | None = None
    """Of overheads: whether more of the metric is better. They have a line at 0."""

    def limits(self, shown: Collection[Estimate]) -> Limits:
        """Return the limits of an axis that shows some of the estimates."""
        if self.gain is None:
            return level_axis(shown, self.logarithmic)
        low, high, _ = reach([*shown, Estimate(0)])
        # The overhead of a rate cannot exceed 100 %, and that of a time cannot fall below -100 %.
        return Limits(low, min(high, 104)) if self.gain else Limits(max(low, -104), high)


def overheads(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw the overhead of each headline metric in percent, as in Fig. 5 of the paper."""
    names = [name for name in HEADLINES if setting.overheads(name)]
    if not names:
        return None
    quantities = [
        _Quantity(
            formats.capital(METRICS[name].title),
            f"overhead relative to {content.baseline}, %",
            {cell: Estimate.of_overhead(row) for cell, row in setting.overheads(name).items()},
            gain=METRICS[name].gain,
        )
        for name in names
    ]
    alt = formats.by_group({
        METRICS[name].title: {
            f"{label} at {setting.point_label(at)}": formats.overhead(row)
            for (label, at), row in sorted(setting.overheads(name).items())
        }
        for name in names
    })  # fmt: skip
    return save(
        _drawing(content, setting, quantities), folder, setting.file_name("overhead"), "overheads",
        f"Overhead: {setting.title}", f"Overhead in percent relative to {content.baseline}. {alt}.",
        f"Positive values are worse. Dots: single repetitions. {content.caption(setting, None, relative=True)}.",
    )  # fmt: skip


def headline(content: Content, setting: Setting, folder: Path, name: str) -> Figure | None:
    """Draw the levels of a headline metric. The 90th percentile is shown with the 50th and the 99th."""
    levels = setting.levels(name)
    if not levels:
        return None
    metric, test = METRICS[name], of_metric(name, setting.tests)
    others = [setting.levels(name.replace("_p90_", mark)) for mark in ("_p50_", "_p99_") if "_p90_" in name]
    factor, unit = axis_unit(metric.unit, max(row["mean"] for row in levels.values()))
    estimates = {
        cell: Estimate.of_level(row, [other[cell]["mean"] for other in others if cell in other], factor)
        for cell, row in levels.items()
    }
    logarithmic = spans_a_decade(estimates.values())
    drawing = _drawing(content, setting, [_Quantity("", f"{metric.title}, {unit}", estimates, logarithmic)])
    title = f"{formats.capital(metric.title)}: {setting.title}"
    alt = formats.by_group({
        f"{setting.point_label(point)} ({metric.unit})": {
            label: formats.number(row["mean"]) for (label, at), row in levels.items() if at == point
        }
        for point in sorted({at for _, at in levels})
    })  # fmt: skip
    caption = (
        f"{'More' if metric.gain else 'Less'} is better."
        f"{' Dotted lines end at the 50th and 99th percentile.' if others else ''} Dots: single trials."
        f"{' Logarithmic axis.' if logarithmic else ''} {content.caption(setting, test)}."
    )
    # The first headline metric of a test has the name of the test.
    first = next(one for one in HEADLINES if of_metric(one, setting.tests) == test)
    kind = test if name == first else f"{test}-{formats.slug(metric.title)}"
    return save(drawing, folder, setting.file_name(kind), test, title, f"{title}. {alt}.", caption)


def _drawing(content: Content, setting: Setting, quantities: Sequence[_Quantity]) -> Drawing:
    points = sorted({at for quantity in quantities for _, at in quantity.estimates})
    labels = content.ordered(label for quantity in quantities for label, _ in quantity.estimates)
    styles = network_colors(content.networks)
    if len(points) > 1:
        return _lines(setting, quantities, points, labels, styles)
    panels = []
    for one in quantities:
        estimates = {label: item for (label, _), item in one.estimates.items()}
        title = one.title or setting.point_label(points[0])
        panels.append(Rows(title, one.axis, estimates, one.limits(estimates.values())))
    return row_panels(panels, labels, styles)


def _lines(
    setting: Setting, quantities: Sequence[_Quantity], points: list[Point], labels: list[str], styles: Styles
) -> Drawing:
    """Draw quantities along an axis: one panel for each quantity and group of points."""
    by_payload = len({at.payload_bytes for at in points}) > 1
    groups = _grouped(points, by_payload)
    margin = text_width(labels, FONT - 0.5) + 0.25
    ticks = [
        [_tick(at.payload_bytes) if by_payload else str(at.subscribers) for at in group] for group in groups
    ]
    # Side by side if there is room for the tick labels and for the networks, otherwise one below the other.
    panels = [
        (group, tick, quantity) for group, tick in zip(groups, ticks, strict=True) for quantity in quantities
    ]
    needed = max(
        len(group) * max(text_width(group[0].split()) + 0.05, 0.055 * len(labels)) for group in ticks
    )
    columns = min(2, len(panels)) if WIDTH / 2 - _LEFT - margin >= needed else 1
    full = WIDTH / 2 if columns > 1 else SINGLE_WIDTH if len(panels) == 1 and needed < 2.5 else WIDTH
    heights = [max(1.9, 0.17 * len(labels) + 0.3)] * len(panels)
    drawing, every = grid(
        heights, columns, min(full, _LEFT + 5.4 + margin), left=_LEFT, right=margin, head=_HEAD, foot=_FOOT
    )
    for ax, (group, tick, quantity) in zip(every, panels, strict=True):
        placed: dict[str, dict[float, Estimate]] = {label: {} for label in labels}
        for x, at in enumerate(group):
            for label in labels:
                if (label, at) in quantity.estimates:
                    placed[label][float(x)] = quantity.estimates[label, at]
        series = {label: estimates for label, estimates in placed.items() if estimates}
        shown = [estimate for estimates in series.values() for estimate in estimates.values()]
        _panel(ax, series, styles, quantity.limits(shown), min(0.13, 0.7 / len(labels)))
        if quantity.gain is not None:
            ax.axhline(0, color=INK, linewidth=0.8)
        ax.set_xticks(range(len(tick)), tick)
        ax.set_xlim(-0.5, len(tick) - 0.5)
        fixed = (
            payload(group[0].payload_bytes) if not by_payload
            else "" if "subscribers" in setting.values else formats.count(group[0].subscribers, "subscriber")
        )  # fmt: skip
        title = ", ".join(filter(None, (quantity.title, fixed)))
        ax.set(title=title, xlabel="payload" if by_payload else "subscribers", ylabel=quantity.axis)
        end_labels(ax, series, styles)
    return drawing


def _panel(
    ax: Axes, series: Mapping[str, Series], styles: Styles, limits: Limits, step: float, dashed: Sequence[str] = ()
) -> None:  # fmt: skip
    scale(ax, "y", limits)
    along(ax, series, styles, step, dashed)
    ax.grid(axis="y")


def _tick(size: int) -> str:
    return payload(size).replace(" ", "\n")


def _grouped(points: Sequence[Point], by_payload: bool) -> list[list[Point]]:
    """Group points along one axis; with many groups, return the first, middle and last one."""
    lines = grouped(points, lambda at: at.subscribers if by_payload else at.payload_bytes)
    return spread(list(lines.values()), _MAX_GROUPS)


# -- throughput by number of subscribers ------------------------------------------------------------------

_Key = tuple[str, str, int]
"""(network_label, transport, payload_bytes)"""


def subscribers(content: Content, folder: Path) -> list[Figure]:
    """Draw the throughput by number of subscribers: unicast solid, multicast dashed, one panel per payload.

    There is one figure for each combination of the other conditions, such as reliability and middleware.
    """
    groups: dict[tuple[object, ...], dict[_Key, Curve]] = {}
    for (label, transport, size, rest), curve in content.curves.items():
        groups.setdefault(rest, {})[label, transport, size] = curve
    order = content.networks.index
    ordered = [dict(sorted(group.items(), key=lambda item: order(item[0][0]))) for group in groups.values()]
    return [_subscribers(content, curves, folder, index) for index, curves in enumerate(ordered)]


def _subscribers(content: Content, curves: dict[_Key, Curve], folder: Path, index: int) -> Figure:
    measured = sorted({size for _, _, size in curves})
    several = len({transport for _, transport, _ in curves}) > 1
    names = {key: f"{key[0]} {key[1]}" if several else key[0] for key in curves}
    margin = text_width(list(names.values()), FONT - 0.5) + 0.25
    # Two columns only if the panels remain wide enough to read.
    columns = 2 if len(measured) > 1 and WIDTH / 2 - _LEFT - margin > 1.6 else 1
    sizes = spread(measured, 4 if columns == 2 else 2)
    heights = [max(2.3, 0.17 * len([key for key in curves if key[2] == sizes[0]]) + 0.3)] * len(sizes)
    across = min(WIDTH / columns, _LEFT + 4.2 + margin)
    drawing, panels = grid(heights, columns, across, left=_LEFT, right=margin, head=_HEAD, foot=0.45)
    for ax, size in zip(panels, sizes, strict=True):
        shown = {names[key]: curve for key, curve in curves.items() if key[2] == size}
        counts = sorted({n for curve in shown.values() for n in curve})
        # Curves are shifted sideways by less than the smallest distance between two numbers of subscribers.
        gap = min(b - a for a, b in itertools.pairwise(counts))
        series = {
            name: {float(n): Estimate.of_level(row) for n, row in curve.items()}
            for name, curve in shown.items()
        }
        styles = {name: network_colors(content.networks)[key[0]] for key, name in names.items()}
        dashed = [name for key, name in names.items() if key[1] != "unicast"]
        limits = level_axis([item for estimates in series.values() for item in estimates.values()])
        _panel(ax, series, styles, limits, min(0.06 * gap, 0.35 * gap / len(shown)), dashed)
        ax.set_xlim(min(0, counts[0] - gap / 2), counts[-1] + gap / 2)
        ax.set_xticks(counts)
        ax.set(title=f"{payload(size)} payload", xlabel="subscribers", ylabel="Mbit/s per subscriber")
        end_labels(ax, series, styles)
    first = next(iter(next(iter(curves.values())).values()))
    setting = next(
        one for one in content.settings if any(row is first for row in one.levels(THROUGHPUT).values())
    )
    what = describe({key: value for key, value in setting.values.items() if key != "transport"})
    some = f" {len(sizes)} of {len(measured)} payloads." if len(sizes) < len(measured) else ""
    caption = (
        f"Throughput of each subscriber. Solid: unicast. Dashed: multicast. Dots: single trials.{some}"
        f" {content.caption(setting, of_metric(THROUGHPUT, setting.tests))}."
    )
    alt = "Throughput per subscriber in Mbit/s. " + formats.by_group({
        f"{label} {transport} {payload(size)}": {
            f"{n} subscribers": formats.number(row["mean"]) for n, row in curve.items()
        }
        for (label, transport, size), curve in curves.items()
    })  # fmt: skip
    title = "Throughput by number of subscribers" + (f": {what}" if what else "")
    slug = "subscribers" + (f"-{index + 1}" if index else "")
    return save(drawing, folder, slug, "subscribers", title, alt, caption)


# -- protection in the middleware and in the network ------------------------------------------------------


def protection(content: Content, folder: Path) -> list[Figure]:
    """Draw the headline metrics by payload with and without protection, if a campaign contains a level of DDS Security.

    A variant is a network with or without a level. There is one figure for each link, number of subscribers and
    middleware.
    """
    groups: dict[tuple[object, ...], dict[str, list[Row]]] = {}
    for setting in content.settings:
        for name in HEADLINES:
            for row in setting.levels(name).values():
                key = tuple(row[column] for column in PROTECTION_GROUP)
                groups.setdefault(key, {}).setdefault(name, []).append(row)
    every = (row for levels in groups.values() for rows in levels.values() for row in rows)
    if all(row["security"] in (None, "none") for row in every):
        return []
    return [
        _protection(content, dict(zip(PROTECTION_GROUP, key, strict=True)), levels, folder, index)
        for index, (key, levels) in enumerate(sorted(groups.items(), key=lambda item: str(item[0])))
    ]


def _protection(
    content: Content, group: dict[str, object], levels: dict[str, list[Row]], folder: Path, index: int
) -> Figure:
    names = [name for name in HEADLINES if name in levels]
    rows = [row for name in names for row in levels[name]]
    order = {label.split(" ")[0]: place for place, label in reversed([*enumerate(content.networks)])}
    variants = sorted(
        {protected_name(row) for row in rows},
        key=lambda label: (order.get(label.split(" ")[0], len(order)), label),
    )
    styles = variant_colors(variants)
    protected = {protected_name(row) for row in rows if _protects(row)}
    plain = [label for label in variants if label not in protected]
    drawing, panels = grid(
        [2.6] * len(names), len(names), WIDTH / len(names), left=0.65, right=0.05, head=_HEAD, foot=_FOOT,
        below=legend_height(variants),
    )  # fmt: skip
    for ax, name in zip(panels, names, strict=True):
        sizes = sorted({row["payload_bytes"] for row in levels[name]})
        series: dict[str, dict[float, Estimate]] = {}
        for row in sorted(
            levels[name], key=lambda row: (variants.index(protected_name(row)), row["payload_bytes"])
        ):
            x = float(sizes.index(row["payload_bytes"]))
            series.setdefault(protected_name(row), {})[x] = Estimate.of_level(row)
        limits = reach([item for items in series.values() for item in items.values()], ratio=True)
        _panel(ax, series, styles, limits, 0.6 / len(variants), plain)
        ax.set_xticks(range(len(sizes)), map(_tick, sizes))
        ax.set(title=formats.capital(METRICS[name].title), xlabel="payload", ylabel=METRICS[name].unit)
    legend(
        drawing,
        [(label, styles[label].marker, styles[label].light, "--" if label in plain else "-") for label in variants],
    )  # fmt: skip
    title = f"Protection: {describe(group)}"
    n = formats.range_of([row["n"] for row in rows])
    caption = f"Dashed: no protection. Dots: single trials. Logarithmic axes. n = {n} · 95 % interval."
    alt = f"{title}. " + "; ".join(
        f"{protected_name(row)} {payload(row['payload_bytes'])} {METRICS[name].title}"
        f" {formats.number(row['mean'])} {METRICS[name].unit}"
        for name in names for row in levels[name]
    )  # fmt: skip
    return save(drawing, folder, f"protection-{index + 1}", "protection", title, alt, caption)


def _protects(row: Row) -> bool:
    # Encrypting networks record their engine, but so do others, such as Weave Net's datapath.
    encrypts = any(kind in str(row["engine"]) for kind in ("ESP", "WireGuard"))
    return row["security"] not in (None, "none") or encrypts
