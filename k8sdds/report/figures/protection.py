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
from k8sdds.report.figures.canvas import WIDTH, Figure, grid, legend, legend_height, save
from k8sdds.report.figures.estimates import Estimate, along, reach, scale
from k8sdds.report.settings import Row
from k8sdds.report.theme import variant_colors
from k8sdds.results.metrics import METRICS
from k8sdds.workloads import HEADLINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    drawing, panels = grid(
        len(names), len(names), WIDTH / len(names) - _LEFT - 0.05, _HEIGHT, left=_LEFT, right=0.05, head=_HEAD,
        foot=_FOOT, below=legend_height(variants),
    )  # fmt: skip
    for ax, name in zip(panels, names, strict=True):
        _panel(ax, levels[name], variants, styles, plain)
        ax.set_title(formats.capital(METRICS[name].title))
        ax.set_ylabel(METRICS[name].unit, labelpad=2)
    legend(
        drawing,
        [(label, styles[label].marker, styles[label].light, "--" if label in plain else "-") for label in variants],
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
