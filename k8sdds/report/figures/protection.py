"""Draw the headline metrics by payload with protection in the middleware, in the network, and without protection.

A variant is a network with or without a DDS Security level. The figures are drawn only if a campaign contains
a level other than `none`. There is one figure for each link, number of subscribers and middleware.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.analysis.conditions import describe, payload
from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.content import PROTECTION_GROUP, Content, Row, protected_name
from k8sdds.report.figures.canvas import FONT, WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.theme import variant_colors
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEAD, _FOOT, _LEFT, _HEIGHT = 0.3, 0.45, 0.65, 2.6


def draw(content: Content, folder: Path) -> list[Figure]:
    """Draw all figures of protection, sorted by their conditions."""
    groups: dict[tuple[object, ...], dict[str, list[Row]]] = {}
    secured = False
    for setting in content.settings:
        for name in HEADLINES:
            for row in setting.levels(name).values():
                secured |= row["security"] not in (None, "none")
                key = tuple(row[column] for column in PROTECTION_GROUP)
                groups.setdefault(key, {}).setdefault(name, []).append(row)
    if not secured:
        return []
    return [
        _figure(content, dict(zip(PROTECTION_GROUP, key, strict=True)), levels, folder, index)
        for index, (key, levels) in enumerate(sorted(groups.items(), key=lambda item: str(item[0])))
    ]


def _figure(
    content: Content, group: dict[str, object], levels: dict[str, list[Row]], folder: Path, index: int
) -> Figure:
    names = [name for name in HEADLINES if name in levels]
    variants = list(dict.fromkeys(protected_name(row) for name in names for row in levels[name]))
    variants.sort(key=lambda label: (content.networks.index(label.split(" ")[0])
                                     if label.split(" ")[0] in content.networks else 99, label))  # fmt: skip
    styles = variant_colors(variants)
    legend = text_width(variants, FONT - 0.5) + 0.4
    width = (WIDTH - len(names) * _LEFT) / len(names) - 0.05
    rows = -(-len(variants) // max(1, int(WIDTH // legend)))
    drawing = new(WIDTH, _HEAD + _HEIGHT + _FOOT + 0.17 * rows + 0.1)
    for column, name in enumerate(names):
        ax = axes(drawing, _LEFT + column * (_LEFT + width + 0.05), _HEAD, width, _HEIGHT)
        _panel(ax, levels[name], variants, styles)
        ax.set_title(formats.capital(METRICS[name].title))
        ax.set_ylabel(METRICS[name].unit, labelpad=2)
    handles, labels = drawing.axes[0].get_legend_handles_labels()
    drawing.legend(
        handles, labels, loc="lower center", ncols=max(1, int(WIDTH // legend)), fontsize=FONT - 0.5,
        frameon=False, handlelength=1.8, columnspacing=1.2, borderpad=0,
    )  # fmt: skip
    n = formats.range_of([row["n"] for name in names for row in levels[name]])
    title = f"Protection: {describe(group)}"
    caption = (
        "DDS Security levels, and networks that encrypt. Dashed: no protection. Markers: mean. Vertical"
        f" lines: 95 % interval. Small dots: single trials. Logarithmic axes. {content.testbed} · n = {n}."
    )
    alt = f"{title}. " + "; ".join(
        f"{protected_name(row)} {payload(row['payload_bytes'])} {METRICS[name].title}"
        f" {formats.number(row['mean'])} {METRICS[name].unit}"
        for name in names for row in levels[name]
    )  # fmt: skip
    return save(drawing, folder, f"protection-{index + 1}", "protection", title, alt, caption)


def _panel(ax: Axes, rows: list[Row], variants: list[str], styles: dict[str, NetworkColor]) -> None:
    sizes = sorted({row["payload_bytes"] for row in rows})
    step = 0.6 / max(len(variants), 1)
    for number, label in enumerate(variants):
        own = sorted(
            (row for row in rows if protected_name(row) == label), key=lambda row: row["payload_bytes"]
        )
        style, shift = styles[label], (number - (len(variants) - 1) / 2) * step
        xs = [sizes.index(row["payload_bytes"]) + shift for row in own]
        plain = all(row["security"] in (None, "none") and not _encrypts(row) for row in own)
        ax.plot(
            xs, [row["mean"] for row in own], "--" if plain else "-", marker=style.marker, label=label,
            color=style.light, linewidth=0.9, markersize=4.2, markeredgewidth=0,
        )  # fmt: skip
        for x, row in zip(xs, own, strict=True):
            ax.plot([x] * len(row["values"]), row["values"], "o", markersize=1.8, color=style.light, alpha=0.7,
                    markeredgewidth=0)  # fmt: skip
            if row["ci_low"] is not None and row["ci_low"] > 0:
                ax.plot([x, x], [row["ci_low"], min(row["ci_high"], 3 * row["mean"])], color=style.light,
                        linewidth=0.9)  # fmt: skip
    ax.set_yscale("log")
    # All values can lie within one decade, so there are also ticks at 2 and 5.
    ax.set_yticks(_ticks(*ax.get_ylim()))
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xticks(range(len(sizes)), [payload(size) for size in sizes])
    ax.set_xlabel("payload", labelpad=2)
    ax.grid(axis="y")


def _ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for d in decades for step in (1, 2, 5) if low <= (tick := step * 10.0**d) <= high]


def _encrypts(row: Row) -> bool:
    # Encrypting networks record their engine, but so do others, such as Weave Net's datapath.
    return any(kind in str(row["engine"]) for kind in ("ESP", "WireGuard"))
