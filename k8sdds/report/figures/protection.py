"""Draw the headline metrics by payload with protection in the middleware, in the network, and without protection.

A variant is a network with or without a DDS Security level. The figures are drawn only if a campaign contains
a level other than `none`. There is one figure for each link, number of subscribers and middleware.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.analysis.conditions import describe
from k8sdds.model.axis import payload
from k8sdds.networks.network import NetworkColor
from k8sdds.report import formats
from k8sdds.report.content import PROTECTION_GROUP, Content, protected_name
from k8sdds.report.figures.canvas import FONT, PART_WIDTH, WIDTH, Figure, axes, new, save, text_width
from k8sdds.report.figures.estimates import Estimate, along, reach, scale
from k8sdds.report.settings import Row
from k8sdds.report.theme import variant_colors
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_HEAD, _FOOT, _LEFT, _HEIGHT = 0.3, 0.62, 0.65, 2.6


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
    protected = {protected_name(row) for name in names for row in levels[name] if _protects(row)}
    plain = [label for label in variants if label not in protected]
    legend = text_width(variants, FONT - 0.5) + 0.4
    width = (WIDTH - len(names) * _LEFT) / len(names) - 0.05
    rows = -(-len(variants) // max(1, int(PART_WIDTH // legend)))
    drawing = new(WIDTH, _HEAD + _HEIGHT + _FOOT + 0.17 * rows + 0.1)
    for column, name in enumerate(names):
        ax = axes(drawing, _LEFT + column * (_LEFT + width + 0.05), _HEAD, width, _HEIGHT)
        _panel(ax, levels[name], variants, styles, plain)
        ax.set_title(formats.capital(METRICS[name].title))
        ax.set_ylabel(METRICS[name].unit, labelpad=2)
    drawing.legend(
        handles=[_handle(label, styles[label], label in plain) for label in variants], loc="lower center",
        ncols=max(1, int(PART_WIDTH // legend)), fontsize=FONT - 0.5, frameon=False, handlelength=1.8,
        columnspacing=1.2, borderpad=0,
    )  # fmt: skip
    n = formats.range_of([row["n"] for name in names for row in levels[name]])
    title = f"Protection: {describe(group)}"
    caption = f"Dashed: no protection. Dots: single trials. Logarithmic axes. n = {n} · 95 % interval."
    alt = f"{title}. " + "; ".join(
        f"{protected_name(row)} {payload(row['payload_bytes'])} {METRICS[name].title}"
        f" {formats.number(row['mean'])} {METRICS[name].unit}"
        for name in names for row in levels[name]
    )  # fmt: skip
    return save(drawing, folder, f"protection-{index + 1}", "protection", title, alt, caption)


def _handle(label: str, style: NetworkColor, dashed: bool) -> Line2D:
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=style.light, linestyle="--" if dashed else "-", linewidth=0.9, marker=style.marker,
        markersize=4.2, markeredgewidth=0, label=label,
    )  # fmt: skip


def _panel(
    ax: Axes, rows: list[Row], variants: list[str], styles: dict[str, NetworkColor], plain: list[str]
) -> None:
    sizes = sorted({row["payload_bytes"] for row in rows})
    series: dict[str, dict[float, Estimate]] = {label: {} for label in variants}
    for row in sorted(rows, key=lambda row: row["payload_bytes"]):
        series[protected_name(row)][float(sizes.index(row["payload_bytes"]))] = Estimate.of_level(row)
    series = {label: estimates for label, estimates in series.items() if estimates}
    scale(
        ax,
        "y",
        *reach([item for items in series.values() for item in items.values()], ratio=True),
        logarithmic=True,
    )
    along(ax, series, styles, 0.6 / len(variants), dashed=plain)
    ax.set_xticks(range(len(sizes)), [payload(size).replace(" ", "\n") for size in sizes])
    ax.set_xlabel("payload", labelpad=2)
    ax.grid(axis="y")


def _protects(row: Row) -> bool:
    # Encrypting networks record their engine, but so do others, such as Weave Net's datapath.
    encrypts = any(kind in str(row["engine"]) for kind in ("ESP", "WireGuard"))
    return row["security"] not in (None, "none") or encrypts
