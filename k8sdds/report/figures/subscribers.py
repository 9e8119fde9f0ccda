"""Draw the throughput by number of subscribers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.analysis.conditions import describe
from k8sdds.model.axis import payload
from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import FONT, WIDTH, Figure, grid, save, text_width
from k8sdds.report.figures.estimates import Estimate, along, end_labels, level_axis, scale
from k8sdds.report.settings import THROUGHPUT, Curve, Row, Setting, test_of
from k8sdds.report.theme import network_colors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEAD, _FOOT, _LEFT = 0.3, 0.45, 0.55


def draw(content: Content, folder: Path) -> list[Figure]:
    """Draw the throughput by number of subscribers: unicast solid, multicast dashed, one panel per payload.

    There is one figure for each combination of the other conditions, such as reliability and middleware.
    """
    groups: dict[tuple, dict[_Key, Curve]] = {}
    for (label, transport, size, rest), curve in content.curves.items():
        groups.setdefault(rest, {})[label, transport, size] = curve
    order = content.networks.index
    ordered = [dict(sorted(group.items(), key=lambda item: order(item[0][0]))) for group in groups.values()]
    return [_figure(content, curves, folder, index) for index, curves in enumerate(ordered)]


_Key = tuple[str, str, int]
"""(network_label, transport, payload_bytes)"""


def _figure(content: Content, curves: dict[_Key, Curve], folder: Path, index: int) -> Figure:
    measured = sorted({size for _, _, size in curves})
    styles = network_colors(content.networks)
    margin = text_width(list(_names(curves).values()), FONT - 0.5) + 0.25
    # Two columns only if the panels remain wide enough to read.
    columns = 2 if len(measured) > 1 and WIDTH / 2 - _LEFT - margin > 1.6 else 1
    # As many payloads as fit on a page, always with the smallest and the largest.
    most = 4 if columns == 2 else 2
    step = max((len(measured) - 1) / (most - 1), 1)
    sizes = [measured[round(i * step)] for i in range(min(most, len(measured)))]
    width = min(WIDTH / columns - _LEFT - margin, 4.2)
    height = max(2.3, 0.17 * len([key for key in curves if key[2] == sizes[0]]) + 0.3)
    drawing, panels = grid(
        len(sizes), columns, width, height, left=_LEFT, right=margin, head=_HEAD, foot=_FOOT
    )
    for ax, size in zip(panels, sizes, strict=True):
        shown = {key: curve for key, curve in curves.items() if key[2] == size}
        _curves_panel(ax, shown, size, styles, height)
    row = next(iter(next(iter(curves.values())).values()))
    setting = next(setting for setting in content.settings if _contains(setting, row))
    what = describe({key: value for key, value in setting.values.items() if key != "transport"})
    caption = (
        "Throughput of each subscriber. Solid: unicast. Dashed: multicast. Dots: single trials."
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
    names = _names(curves)
    series = {
        names[key]: {float(n): Estimate.of_level(row) for n, row in curve.items()}
        for key, curve in curves.items()
    }
    colors = {name: styles[key[0]] for key, name in names.items()}
    along(
        ax, series, colors, min(0.06 * gap, 0.35 * gap / len(curves)),
        dashed=[name for key, name in names.items() if key[1] != "unicast"],
    )  # fmt: skip
    scale(ax, "y", *level_axis([item for estimates in series.values() for item in estimates.values()]))
    ax.set_xlim(min(0, counts[0] - gap / 2), counts[-1] + gap / 2)
    ax.set_xticks(counts)
    ax.set_title(f"{payload(size)} payload")
    ax.set_xlabel("subscribers", labelpad=2)
    ax.set_ylabel("Mbit/s per subscriber", labelpad=2)
    ax.grid(axis="y")
    end_labels(ax, series, colors, height)
