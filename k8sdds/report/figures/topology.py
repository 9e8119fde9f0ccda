"""Draw the path of samples through each network, with MTUs and the places where packets were dropped."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.analysis.conditions import UNIT
from k8sdds.networks.datapath import LINK_MTU
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import FONT, WIDTH, Figure, grid, save, text_width
from k8sdds.report.settings import Setting
from k8sdds.report.theme import INK, MUTED, PAPER, network_colors
from k8sdds.results import fingerprint as fingerprints
from k8sdds.system.grouping import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

SECTION = "topology"
_HEAD, _ROW = 0.42, 0.46
_SMALL = FONT - 1

_PLACES = (
    ("send buffer", "udp_send_buffer_errors"), ("pods' interfaces", "interface_drops"), ("network", ""),
    ("nodes' links", ""), ("reassembly", "ip_reassembly_fails"), ("receive buffer", "udp_receive_buffer_errors"),
    ("samples lost", ""),
)  # fmt: skip
"""Places on the path from publisher to subscriber, with the counter of packets that were dropped there."""


@dataclass(frozen=True)
class _Path:
    """The path through one network. MTUs are None if they are unknown."""

    pod_mtu: int | None
    link_mtu: int | None
    network: str
    """What the network adds, in up to three lines."""
    too_large: bool
    """Whether the largest packet of a pod exceeds the link's MTU once the network has added its headers."""
    drops: dict[str, int]
    """Dropped packets by counter, over all trials; a counter that was not read is missing."""
    lost: int
    trials: int

    def above(self) -> list[str]:
        """Return the text above each place."""
        pod, link = (f"MTU {mtu}" if mtu else "MTU ?" for mtu in (self.pod_mtu, self.link_mtu))
        return ["", pod, self.network, link, "", "", ""]

    def below(self) -> list[str]:
        """Return the count below each place."""
        counts = [self.drops.get(counter) for _, counter in _PLACES[:-1]]
        return [
            *("" if not counter else "–" if count is None else f"{count:,}"
              for (_, counter), count in zip(_PLACES, counts, strict=False)),
            f"{self.lost:,}",
        ]  # fmt: skip


def draw(content: Content, folder: Path) -> list[Figure]:
    """Draw the path of each network over which samples crossed a link, once for all settings with the same paths."""
    groups: dict[tuple[Any, ...], list[Setting]] = {}
    for setting in content.settings:
        if paths := _paths(content, [setting]):
            groups.setdefault(tuple((label, *path.above()) for label, path in paths.items()), []).append(
                setting
            )
    return [_figure(content, settings, folder, index) for index, settings in enumerate(groups.values())]


def _paths(content: Content, settings: Sequence[Setting]) -> dict[str, _Path]:
    crossing = [row for one in settings for row in one.trials if row["transport"] != "shared-memory"]
    by_network = {label: [row for row in crossing if row[UNIT] == label] for label in content.networks}
    return {label: _path(rows) for label, rows in by_network.items() if any(row["drops"] for row in rows)}


def _figure(content: Content, settings: Sequence[Setting], folder: Path, index: int) -> Figure:
    paths = _paths(content, settings)
    title = "Paths, MTUs and dropped packets"
    if len(settings) < len(content.settings):
        title += f": {settings[0].title}"
        title += f", and {len(settings) - 1} more" if len(settings) > 1 else ""
    alt = f"{title}. " + "; ".join(
        f"{label}: "
        + ", ".join(
            f"{name} {' '.join(part for part in (above.replace(chr(10), ' '), below and f'dropped {below}') if part)}"
            for (name, _), above, below in zip(_PLACES[:-1], path.above(), path.below(), strict=False)
        )
        + f", samples lost {path.lost:,}"
        for label, path in paths.items()
    )
    counts = formats.range_of([path.trials for path in paths.values()])
    caption = (
        "Above: MTU in bytes, and what the network adds. Below: packets dropped there in the measured intervals of"
        f" all valid trials (n = {counts} for each network); – not counted."
    )
    slug = SECTION + (f"-{index + 1}" if index else "")
    return save(_drawing(content, paths), folder, slug, SECTION, title, f"{alt}.", caption)


def _path(trials: Sequence[Row]) -> _Path:
    drops: dict[str, int] = {}
    for row in trials:
        for counter, value in (row["drops"] or {}).items():
            if value is not None:
                drops[counter] = drops.get(counter, 0) + value
    last = trials[-1]
    pod_mtu, link_mtu = last["mtu_bytes"], _link_mtu(last)
    added, network = None, ""
    if fingerprint := fingerprints.first(trials):
        added = fingerprint.added_bytes
        network = fingerprint.value("outer_protocol").replace("none", "as sent")
    too_large = bool(added and pod_mtu and link_mtu and pod_mtu + added > link_mtu)
    if added:
        network += f"\n+{added} B" + (",\ntoo large" if too_large else "")
    lost = sum(row["lost"] or 0 for row in trials)
    return _Path(pod_mtu, link_mtu, network, too_large, drops, lost, len(trials))


def _link_mtu(row: Row) -> int | None:
    """Return the MTU of the nodes' links; None means a cluster's, which only trials with `link.mtu` record."""
    links = (row["node_links"] or {}).values()
    recorded = [link.get("mtu_bytes") for link in links if isinstance(link, dict)]
    known = [int(mtu) for mtu in (*recorded, row.get("link_mtu")) if isinstance(mtu, int | float)]
    return min(known) if known else LINK_MTU if row["testbed"] == "lab" else None


def _drawing(content: Content, paths: dict[str, _Path]) -> Drawing:
    margin = text_width(list(paths)) + 0.15
    step = (WIDTH - margin) / len(_PLACES)
    drawing, (ax,) = grid([_ROW * len(paths)], 1, WIDTH - margin, left=margin, right=0, head=_HEAD, foot=0.05)
    ax.set(xlim=(0, len(_PLACES)), ylim=(len(paths), 0))
    ax.axis("off")
    most = max(int(step / text_width("x", _SMALL)) - 1, 6)
    for column, (name, _) in enumerate(_PLACES):
        head = "\n".join(textwrap.wrap(name, most, break_long_words=False))
        ax.text(column + 0.5, -0.12, head, ha="center", va="bottom", size=_SMALL, color=MUTED)
    styles = network_colors(content.networks)
    for row, (label, path) in enumerate(paths.items()):
        color, y = styles[label].light, row + 0.5
        ax.plot([0.5, len(_PLACES) - 1.5], [y, y], color=color, linewidth=1.4, zorder=1)
        ax.plot(
            [column + 0.5 for column in range(len(_PLACES) - 1)], [y] * (len(_PLACES) - 1), "o", color=color,
            markersize=5, markeredgecolor=PAPER, markeredgewidth=0.8, zorder=2,
        )  # fmt: skip
        ax.text(-0.1, y, label, ha="right", va="center", size=FONT, color=INK)
        for column, text in enumerate(path.above()):
            ax.text(
                column + 0.5, y - 0.14, text, ha="center", va="bottom", size=_SMALL - 0.5, color=INK, linespacing=0.95,
                weight="bold" if path.too_large and column == 2 else "normal",
            )  # fmt: skip
        for column, text in enumerate(path.below()):
            dropped = text.strip("0–") != ""
            at = y if column == len(_PLACES) - 1 else y + 0.16
            ax.text(
                column + 0.5, at, text, ha="center", va="center" if at == y else "top", size=_SMALL,
                color=INK if dropped else MUTED, weight="bold" if dropped else "normal",
            )  # fmt: skip
    return drawing
