"""Draw lines: overhead by payload or subscribers, and throughput by number of subscribers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.analysis.conditions import describe, payload
from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.content import THROUGHPUT, Content, Curve, Point, Row, Setting, test_of
from k8sdds.report.figures.canvas import FONT, WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.theme import INK, network_colors
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEAD, _FOOT, _LEFT = 0.3, 0.45, 0.55
_MAX_LINES = 3


def overheads(content: Content, setting: Setting, folder: Path) -> Figure | None:
    """Draw the overhead of each headline metric in percent, side by side, as in Fig. 5 of the paper."""
    names = [name for name in HEADLINES if setting.overheads(name)]
    if not names:
        return None
    points = sorted({at for name in names for _, at in setting.overheads(name)})
    by_payload = len({at.payload_bytes for at in points}) > 1 or len(points) == 1
    lines = _grouped(points, by_payload)
    styles = network_colors(content.networks)
    labels = [label for label in content.networks
              if any(other == label for name in names for other, _ in setting.overheads(name))]  # fmt: skip
    margin = text_width(labels, FONT - 0.5) + 0.25
    ticks = [
        [payload(at.payload_bytes) if by_payload else str(at.subscribers) for at in group] for group in lines
    ]
    # Side by side if there is room for the payload labels, otherwise one below the other.
    needed = max(len(group) * (text_width(group) + 0.1) for group in ticks)
    columns = len(names) if WIDTH / len(names) - _LEFT - margin >= needed else 1
    width = min(WIDTH / columns - _LEFT - margin, 3.4 if columns > 1 else 4.8)
    height = max(1.9, 0.17 * len(labels) + 0.3)
    panels = [(group, tick, name) for group, tick in zip(lines, ticks, strict=True) for name in names]
    full_height = -(-len(panels) // columns) * (_HEAD + height + _FOOT)
    drawing = new(columns * (_LEFT + width + margin), full_height)
    for index, (group, tick, name) in enumerate(panels):
        line, column = divmod(index, columns)
        left, top = _LEFT + column * (_LEFT + width + margin), _HEAD + line * (_HEAD + height + _FOOT)
        ax = axes(drawing, left, top, width, height)
        _overhead_panel(ax, setting.overheads(name), group, labels, styles, height)
        ax.set_title(formats.capital(METRICS[name].title) + _fixed(setting, group, by_payload))
        ax.set_ylabel(f"overhead relative to {content.baseline}, %", labelpad=2)
        ax.set_xticks(range(len(tick)), tick)
        ax.set_xlim(-0.5, len(tick) - 0.5)
        ax.set_xlabel("payload" if by_payload else "subscribers", labelpad=2)
    title = f"Overhead: {setting.title}"
    caption = (
        f"Positive values are worse than {content.baseline}. Markers: mean ratio. Vertical lines: 95 %"
        " interval (cut off at the axis). Small dots: single repetitions."
        f" {content.caption(setting, None, relative=True)}."
    )
    slug = "-".join(part for part in ("overhead", setting.slug) if part)
    return save(drawing, folder, slug, "overheads", title, _overhead_alt(content, setting, names), caption)


def _grouped(points: Sequence[Point], by_payload: bool) -> list[list[Point]]:
    """Group points into lines along one axis; with many groups, return the first, middle and last one."""
    groups: dict[int, list[Point]] = {}
    for at in points:
        groups.setdefault(at.subscribers if by_payload else at.payload_bytes, []).append(at)
    lines = list(groups.values())
    if len(lines) <= _MAX_LINES:
        return lines
    return [lines[0], lines[len(lines) // 2], lines[-1]]


def _fixed(setting: Setting, group: Sequence[Point], by_payload: bool) -> str:
    if by_payload and "subscribers" not in setting.values:
        return f", {formats.count(group[0].subscribers, 'subscriber')}"
    return "" if by_payload else f", {payload(group[0].payload_bytes)}"


def _overhead_panel(
    ax: Axes, rows: dict[tuple[str, Point], Row], group: Sequence[Point],
    labels: Sequence[str], styles: dict[str, NetworkColor], height: float,
) -> None:  # fmt: skip
    ends = []
    # Networks are shifted sideways at each point, so that intervals do not cover each other.
    step = min(0.13 if len(group) > 1 else 0.2, 0.7 / max(len(labels), 1))
    reach = [0.0]
    for index, label in enumerate(labels):
        style, shift = styles[label], (index - (len(labels) - 1) / 2) * step
        shown = [(x + shift, rows[label, at]) for x, at in enumerate(group) if (label, at) in rows]
        for x, row in shown:
            values = row["values"]
            # The dots are next to the interval, so that its line does not cover them.
            dots_x = [x + 0.42 * step] * len(values)
            ax.plot(dots_x, values, "o", markersize=2.4, color=style.light, alpha=0.8, markeredgewidth=0)
            reach += [row["overhead_percent"], *values]
            if row["ci_low_percent"] is not None:
                ax.plot(
                    [x, x], [row["ci_low_percent"], row["ci_high_percent"]], color=style.light, linewidth=1.1
                )
        if shown:
            xs, ys = [x for x, _ in shown], [row["overhead_percent"] for _, row in shown]
            ax.plot(xs, ys, "-", linewidth=0.7, color=style.light, alpha=0.5)
            ax.plot(xs, ys, style.marker, markersize=4.6, color=style.light, markeredgewidth=0)
            ends.append((ys[-1], label))
    # The interval of two repetitions can be huge, so the measured values set the range of the axis.
    low, high = min(reach), max(reach)
    bounds = [
        b for row in rows.values() for b in (row["ci_low_percent"], row["ci_high_percent"]) if b is not None
    ]
    room = max(high - low, 1) * 0.6
    low, high = max(min([low, *bounds]), low - room), min(max([high, *bounds]), high + room)
    pad = max(high - low, 1) * 0.06
    # The overhead of a rate cannot exceed 100 %, and that of a time cannot fall below -100 %.
    gain = any(METRICS[row["quantity"]].gain for row in rows.values())
    low, high = (low - pad, min(high + pad, 104)) if gain else (max(low - pad, -104), high + pad)
    ax.set_ylim(low, high)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.grid(axis="y")
    _end_labels(ax, ends, styles, height)


def _end_labels(
    ax: Axes, ends: Sequence[tuple[float, str]], styles: dict[str, NetworkColor], height: float
) -> None:
    """Write names to the right of the last points, moved apart so that they do not overlap."""
    low, high = ax.get_ylim()
    room = (FONT + 1.5) / 72 / height * (high - low)
    placed: list[list] = [[y, y, label] for y, label in sorted(ends)]
    for _ in range(100):
        moved = False
        for below, above in itertools.pairwise(placed):
            overlap = room - (above[0] - below[0])
            if overlap > room * 0.01:
                below[0] -= overlap / 2
                above[0] += overlap / 2
                moved = True
        for item in placed:
            item[0] = min(max(item[0], low + room / 2), high - room / 2)
        if not moved:
            break
    transform = ax.get_yaxis_transform()
    for y, end, label in placed:
        color = styles[label].light
        ax.plot([1.0, 1.025], [end, y], color=color, linewidth=0.7, clip_on=False, transform=transform)
        ax.text(1.035, y, label, color=color, va="center", size=FONT - 0.5, transform=transform)


def _overhead_alt(content: Content, setting: Setting, names: Sequence[str]) -> str:
    texts = []
    for name in names:
        cells = [
            f"{label} at {setting.point_label(at)} "
            + formats.percent(row["overhead_percent"], row["ci_low_percent"], row["ci_high_percent"])
            for (label, at), row in sorted(setting.overheads(name).items())
        ]
        texts.append(f"{METRICS[name].title}: {', '.join(cells)}")
    return f"Overhead in percent relative to {content.baseline}. {'; '.join(texts)}."


def subscribers(content: Content, folder: Path) -> list[Figure]:
    """Draw the throughput by number of subscribers: unicast solid, multicast dashed, one panel per payload.

    There is one figure for each combination of the other conditions, such as reliability and middleware.
    """
    groups: dict[tuple, dict[_Key, Curve]] = {}
    for (label, transport, size, rest), curve in content.curves.items():
        groups.setdefault(rest, {})[label, transport, size] = curve
    order = content.networks.index
    ordered = [dict(sorted(group.items(), key=lambda item: order(item[0][0]))) for group in groups.values()]
    return [_subscribers(content, curves, folder, index) for index, curves in enumerate(ordered)]


_Key = tuple[str, str, int]
"""(network_label, transport, payload_bytes)"""


def _subscribers(content: Content, curves: dict[_Key, Curve], folder: Path, index: int) -> Figure:
    measured = sorted({size for _, _, size in curves})
    styles = network_colors(content.networks)
    margin = text_width(list(_names(curves).values()), FONT - 0.5) + 0.25
    # Two columns only if the panels remain wide enough to read.
    columns = 2 if len(measured) > 1 and WIDTH / 2 - _LEFT - margin > 1.6 else 1
    # As many payloads as fit on a page, always with the smallest and the largest.
    most = 4 if columns == 2 else 2
    step = max((len(measured) - 1) / (most - 1), 1)
    sizes = [measured[round(i * step)] for i in range(min(most, len(measured)))]
    lines = -(-len(sizes) // columns)
    width = min(WIDTH / columns - _LEFT - margin, 4.2)
    height = max(2.3, 0.17 * len([key for key in curves if key[2] == sizes[0]]) + 0.3)
    drawing = new(columns * (_LEFT + width + margin), lines * (_HEAD + height + _FOOT))
    for position, size in enumerate(sizes):
        line, column = divmod(position, columns)
        left, top = _LEFT + column * (_LEFT + width + margin), _HEAD + line * (_HEAD + height + _FOOT)
        shown = {key: curve for key, curve in curves.items() if key[2] == size}
        _curves_panel(axes(drawing, left, top, width, height), shown, size, styles, height)
    row = next(iter(next(iter(curves.values())).values()))
    setting = next(setting for setting in content.settings if _contains(setting, row))
    what = describe({key: value for key, value in setting.values.items() if key != "transport"})
    caption = (
        "Throughput of each subscriber. Solid: unicast. Dashed: multicast. Markers: mean. Vertical lines:"
        " 95 % interval (cut off at three times the mean). Small dots: single trials."
        f"{f' {len(sizes)} of {len(measured)} payloads.' if len(sizes) < len(measured) else ''}"
        f" {content.caption(setting, test_of(THROUGHPUT, setting.tests))}."
    )
    alt = "Throughput per subscriber in Mbit/s. " + "; ".join(
        f"{label} {transport} {payload(size)}: "
        + ", ".join(f"{n} subscribers {formats.number(r['mean'])}" for n, r in curve.items())
        for (label, transport, size), curve in curves.items()
    )
    title = "Throughput by number of subscribers" + (f": {what}" if what else "")
    slug = "subscribers" + (f"-{index + 1}" if index else "")
    return save(drawing, folder, slug, "subscribers", title, alt, caption)


def _names(curves: dict[_Key, Curve]) -> dict[_Key, str]:
    """Return the names of the curves: the network, and its transport if there are several."""
    several = len({transport for _, transport, _ in curves}) > 1
    return {key: f"{key[0]} {key[1]}" if several else key[0] for key in curves}


def _contains(setting: Setting, row: Row) -> bool:
    return any(other is row for other in setting.levels(THROUGHPUT).values())


def _curves_panel(
    ax: Axes, curves: dict[_Key, Curve], size: int, styles: dict[str, NetworkColor], height: float
) -> None:
    counts = sorted({n for curve in curves.values() for n in curve})
    # Curves are shifted sideways by less than the smallest distance between two numbers of subscribers.
    gap = min(b - a for a, b in itertools.pairwise(counts))
    step = min(0.06 * gap, 0.35 * gap / len(curves))
    ends, top = [], 0.0
    names = _names(curves)
    for index, (key, curve) in enumerate(curves.items()):
        label, transport, _ = key
        color, marker = styles[label].light, styles[label].marker
        shift = (index - (len(curves) - 1) / 2) * step
        xs, ys = [n + shift for n in curve], [row["mean"] for row in curve.values()]
        ax.plot(xs, ys, "-" if transport == "unicast" else "--", color=color, linewidth=1.1)
        ax.plot(xs, ys, marker, color=color, markersize=4.6, markeredgewidth=0)
        for x, row in zip(xs, curve.values(), strict=True):
            dots_x = [x + 0.45 * step] * len(row["values"])
            ax.plot(dots_x, row["values"], "o", markersize=2.2, color=color, alpha=0.8, markeredgewidth=0)
            if row["ci_low"] is not None:
                interval = [max(row["ci_low"], 0), min(row["ci_high"], 3 * row["mean"])]
                ax.plot([x, x], interval, color=color, linewidth=1.0)
            top = max(top, row["maximum"], min(row["ci_high"] or 0, 1.5 * row["mean"]))
        ends.append((ys[-1], names[key]))
    ax.set_ylim(0, top * 1.05)
    ax.set_xlim(min(0, counts[0] - gap / 2), counts[-1] + gap / 2)
    ax.set_xticks(counts)
    ax.set_title(f"{payload(size)} payload")
    ax.set_xlabel("subscribers", labelpad=2)
    ax.set_ylabel("Mbit/s per subscriber", labelpad=2)
    ax.grid(axis="y")
    _end_labels(ax, ends, {name: styles[key[0]] for key, name in names.items()}, height)
