"""Draw a graph: its nodes in layers from origins to ends, with what was measured of each node and each flow."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from k8sdds.analysis.flows import mbit_between, of_flow
from k8sdds.analysis.requirements import judge
from k8sdds.model import graph as graphs
from k8sdds.model.application import Requirement
from k8sdds.model.graph import Graph
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import FONT, WIDTH, Figure, grid, save
from k8sdds.report.settings import Setting
from k8sdds.report.theme import GRID, INK, MUTED, PAPER
from k8sdds.results import tidy
from k8sdds.results.aggregate import mean
from k8sdds.system.grouping import Row, grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

SECTION = "graph"
MAX_LANES = 4
"""Most machines that have a lane of their own; of more, each node names its machine."""
MAX_NAMED = 12
"""Most edges that have the names of their flows; of more, only nodes have them."""
MAX_LINKS = 12
"""Most links whose load is stated, those with the most load."""
_SMALL, _LINE, _PAD, _GAP, _BETWEEN = 6.6, 0.115, 0.06, 0.34, 0.16
"""Font size of the text in a node; in inches: height of a line, room around text, between rows, and between nodes."""
_BOX = (WIDTH - 3 * _BETWEEN) / 4
_CHARACTERS = 30
"""Characters of _SMALL that a node of the width _BOX has room for."""
_SWEEPS = 8

Pair = tuple[str, str]


@dataclass(frozen=True)
class Drawn:
    """A graph with its trials in one configuration."""

    graph: Graph
    trials: Sequence[Row]
    """Rows of whole trials."""
    machines: Mapping[str, str]
    """The machine of each node; empty if it is unknown."""
    failing: Mapping[str, Sequence[str]]
    """The requirements that a flow does not meet, by its name."""
    lanes: bool = True
    """Whether the application or experiment places the nodes."""

    @property
    def columns(self) -> list[str]:
        """The machines that have a lane; one without a name if there are none."""
        found = list(dict.fromkeys(self.machines.values()))
        return found if self.lanes and 1 < len(found) <= MAX_LANES else [""]

    def lane(self, node: str) -> str:
        """Return the lane of a node."""
        return self.machines.get(node, "") if self.columns != [""] else ""

    @property
    def edges(self) -> dict[Pair, list[str]]:
        """The flows from each node to each other one."""
        found: dict[Pair, list[str]] = defaultdict(list)
        for flow in self.graph.flows:
            for node in self.graph.subscribers(flow.name):
                found[self.graph.publisher(flow.name).name, node.name].append(flow.name)
        return found

    @property
    def links(self) -> dict[Pair, float]:
        """The payload that flows deliver from each machine to each other one, in Mbit/s; the largest first."""
        loads = mbit_between(self.graph, self.trials, self.machines)
        return dict(sorted(loads.items(), key=lambda item: -item[1]))

    def value(self, flow: str, metric: str) -> float | None:
        """Return the mean of a metric of a flow over the trials, as in tables; None if it is not known."""
        return judge(Requirement(flow, metric, math.inf), self._rows[flow]).value

    @cached_property
    def _rows(self) -> dict[str, Sequence[Row]]:
        return {
            flow.name: tidy.comparable([of_flow(row, flow.name) for row in self.trials])
            for flow in self.graph.flows
        }

    def load(self, node: str) -> str:
        """Return the CPU time and the memory of a node."""
        own = [(row.get("by_node") or {}).get(node) or {} for row in self.trials]
        cpu, memory = (mean(each.get(name) for each in own) for name in ("cpu_percent", "rss_bytes"))
        used = "CPU –" if cpu is None else f"CPU {cpu:.3g} %"
        return used if memory is None else f"{used}, {memory / 2**20:.0f} MiB"

    def measured(self, flow: str, milliseconds: bool) -> str:
        """Return the p50 and p90 delay of a flow, and the shares of its samples that were late or lost."""
        scale, unit = (1e-3, "ms") if milliseconds else (1, "µs")
        delays = [self.value(flow, f"delay_{name}_us") for name in ("p50", "p90")]
        text = " / ".join("–" if value is None else f"{scale * value:.3g}" for value in delays)
        shares = (("missed", "deadline_missed_percent"), ("lost", "lost_percent"))
        known = [(name, self.value(flow, metric)) for name, metric in shares]
        return f"{text} {unit}; " + ", ".join(
            f"{name} {'–' if value is None else f'{value:.2g} %'}" for name, value in known
        )

    @cached_property
    def is_slow(self) -> bool:
        """Whether delays are stated in milliseconds."""
        values = [
            self.value(flow.name, f"delay_{name}_us") for flow in self.graph.flows for name in ("p50", "p90")
        ]
        return max((value for value in values if value is not None), default=0) >= 1000


def layers(graph: Graph) -> list[list[str]]:
    """Return the nodes in layers: each one below all from which it receives, except those that close a cycle.

    The order in a layer has few crossings: each node is near the mean place of its neighbors in the other layers.
    """
    targets = {
        node.name: [end.name for flow in node.publishes for end in graph.subscribers(flow)]
        for node in graph.nodes
    }
    forward = _without_cycles(
        [node.name for node in sorted(graph.nodes, key=lambda node: len(node.subscribes))], targets
    )
    sources: dict[str, list[str]] = {
        name: [source for source, ends in forward.items() if name in ends] for name in targets
    }
    depth: dict[str, int] = {}
    for node in TopologicalSorter(sources).static_order():
        depth[node] = 1 + max((depth[source] for source in sources[node]), default=-1)
    found = grouped(depth, depth.__getitem__)
    ordered = [found[level] for level in sorted(found)]
    near: dict[str, list[str]] = defaultdict(list)
    for node, own in sources.items():
        for source in own:
            near[node].append(source)
            near[source].append(node)
    for _ in range(_SWEEPS):
        places = {node: (i + 0.5) / len(layer) for layer in ordered for i, node in enumerate(layer)}
        for layer in ordered:
            layer.sort(
                key=lambda node: fmean(places[one] for one in near[node]) if near[node] else places[node]
            )
            places |= {node: (i + 0.5) / len(layer) for i, node in enumerate(layer)}
    return ordered


def _without_cycles(order: Sequence[str], targets: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the targets of each node without edges to nodes on the path by which a walk from the origins came."""
    kept: dict[str, list[str]] = {}
    path: list[str] = []

    def visit(node: str) -> None:
        kept[node] = []
        path.append(node)
        for end in targets[node]:
            if end not in path:
                kept[node].append(end)
                if end not in kept:
                    visit(end)
        path.pop()

    for node in order:
        if node not in kept:
            visit(node)
    return kept


def of_setting(content: Content, setting: Setting, folder: Path) -> list[Figure]:
    """Draw the graph of each network of a setting of a report."""
    figures = []
    rows = [row for row in setting.trials if row.get("by_flow")]
    for label, trials in grouped(rows, lambda row: str(row["network_label"])).items():
        cell = (content.run.planned.get(trials[0]["trial_id"]) or {}).get("cell") or {}
        if not isinstance(text := cell.get("graph"), str):
            continue
        drawn = Drawn(graphs.parse(text), trials, machines_of(trials), {}, cell.get("placement") != "spread")
        title = f"Nodes and flows over {label}: {setting.title}"
        slug = setting.file_name(f"graph-{formats.slug(label)}")
        figures.append(draw(drawn, title, slug, SECTION, folder))
    return figures


def machines_of(trials: Sequence[Row]) -> dict[str, str]:
    """Return the node of the testbed on which each node of a graph ran; those whose place is not known are missing."""
    own = (trials[0].get("by_node") or {}) if trials else {}
    return {name: node["machine"] for name, node in own.items() if node.get("machine")}


def draw(drawn: Drawn, title: str, slug: str, section: str, folder: Path) -> Figure:
    """Draw a graph and return the figure."""
    caption = (
        "From top to bottom: from origins to ends. Each node has its CPU time in percent of a core, its peak memory,"
        " the flows that it receives (←) and those that it publishes (▸), with p50 / p90 delay, and samples that missed"
        f" the deadline or were lost; means of n = {len(drawn.trials)}, – not known."
    )
    if any(drawn.failing.values()):
        caption += " ✗ and a thick dashed line: not met."
    if drawn.links:
        caption += " Between machines: payload that arrived, without headers."
    alt = f"{title}. " + "; ".join(
        f"{flow.name} from {drawn.graph.publisher(flow.name).name} to"
        f" {formats.join([node.name for node in drawn.graph.subscribers(flow.name)])}:"
        f" {drawn.measured(flow.name, drawn.is_slow)}{' not met' if drawn.failing.get(flow.name) else ''}"
        for flow in drawn.graph.flows
    )
    return save(_drawing(drawn), folder, slug, section, title, f"{alt}.", caption)


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    width: float
    lines: Sequence[tuple[str, bool, str]]
    """Text, whether it is bold, and its color."""

    @property
    def height(self) -> float:
        return 2 * _PAD + _LINE * len(self.lines)


def _lines(drawn: Drawn, node: graphs.GraphNode, milliseconds: bool) -> list[tuple[str, bool, str]]:
    place = drawn.machines.get(node.name, "") if drawn.columns == [""] else ""
    lines = [
        (f"{node.name}{f' on {place}' if place else ''}", True, INK),
        (drawn.load(node.name), False, INK),
    ]
    received = textwrap.wrap(f"← {', '.join(node.subscribes)}", _CHARACTERS) if node.subscribes else []
    lines += [(line, False, MUTED) for line in received]
    for flow in node.publishes:
        delays, _, shares = drawn.measured(flow, milliseconds).partition("; ")
        fails = drawn.failing.get(flow) or ()
        own = [f"{'✗' if fails else '▸'} {flow} {delays}"]
        if len(own[0]) > _CHARACTERS:
            own = [own[0].removesuffix(f" {delays}")[:_CHARACTERS], f"   {delays}"]
        own += [f"   {shares}", *(f"   not met: {text}"[:_CHARACTERS] for text in fails)]
        lines += [(line, bool(fails), INK) for line in own]
    return lines


def _boxes(drawn: Drawn) -> tuple[dict[str, _Box], float]:
    """Return the box of each node, and the height of all."""
    columns, milliseconds = drawn.columns, drawn.is_slow
    lane_width = WIDTH / len(columns)
    each = max(1, int((lane_width + _BETWEEN) / (_BOX + _BETWEEN) + 1e-9))
    width = min(_BOX, lane_width - _BETWEEN)
    nodes = {node.name: _lines(drawn, node, milliseconds) for node in drawn.graph.nodes}
    boxes: dict[str, _Box] = {}
    y = 0.0 if columns == [""] else 0.26
    for layer in layers(drawn.graph):
        lanes = {column: [node for node in layer if drawn.lane(node) == column] for column in columns}
        for row in range(max(-(-len(own) // each) for own in lanes.values())):
            tallest = 0.0
            for index, own in enumerate(lanes.values()):
                part = own[row * each : (row + 1) * each]
                step = lane_width / max(len(part), 1)
                for place, node in enumerate(part):
                    x = index * lane_width + (place + 0.5) * step - width / 2
                    boxes[node] = _Box(x, y, width, nodes[node])
                    tallest = max(tallest, boxes[node].height)
            y += tallest + _GAP
    return boxes, y - _GAP


def _drawing(drawn: Drawn) -> Drawing:
    boxes, height = _boxes(drawn)
    loads = [f"{source} → {end} {load:.3g}" for (source, end), load in list(drawn.links.items())[:MAX_LINKS]]
    more = len(drawn.links) - len(loads)
    text = (
        f"Between machines, Mbit/s: {'; '.join(loads)}{f'; {more} others less' if more else ''}"
        if loads
        else ""
    )
    notes = textwrap.wrap(text, int(4 * _CHARACTERS))
    full = height + 0.1 + _LINE * 1.2 * len(notes)
    side = 0.04
    drawing, (ax,) = grid([full], 1, WIDTH + 2 * side, left=side, right=side, head=0.05, foot=0.05)
    ax.set(xlim=(0, WIDTH), ylim=(full, -0.04))
    ax.axis("off")
    _draw_lanes(ax, drawn.columns, height)
    _draw_edges(ax, drawn, boxes)
    for box in boxes.values():
        _draw_box(ax, box)
    for index, line in enumerate(notes):
        ax.text(0, height + 0.1 + _LINE * 1.2 * index, line, size=FONT - 1.5, color=INK, va="top")
    return drawing


def _draw_lanes(ax: Axes, columns: Sequence[str], height: float) -> None:
    from matplotlib.patches import Rectangle

    width = WIDTH / len(columns)
    for index, name in enumerate(columns if columns != [""] else ()):
        ax.add_patch(
            Rectangle(
                (index * width + 0.02, 0),
                width - 0.04,
                height + 0.04,
                facecolor="none",
                edgecolor=GRID,
                lw=0.9,
            )
        )
        ax.text(
            index * width + width / 2,
            0.12,
            name,
            ha="center",
            va="center",
            size=FONT,
            weight="bold",
            color=INK,
        )


def _draw_box(ax: Axes, box: _Box) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(
        Rectangle((box.x, box.y), box.width, box.height, facecolor=PAPER, edgecolor=MUTED, lw=0.8, zorder=3)
    )
    for index, (line, bold, color) in enumerate(box.lines):
        ax.text(
            box.x + _PAD, box.y + _PAD + _LINE * (index + 0.5), line, size=_SMALL, color=color, va="center",
            weight="bold" if bold else "normal", zorder=4, clip_on=True,
        )  # fmt: skip


def _draw_edges(ax: Axes, drawn: Drawn, boxes: Mapping[str, _Box]) -> None:
    """Draw an arrow between each two nodes with flows, which leaves a node at the bottom and arrives at the top."""
    from matplotlib.patches import FancyArrowPatch

    edges = drawn.edges
    leaving, arriving = grouped(edges, lambda pair: pair[0]), grouped(edges, lambda pair: pair[1])
    for pair, flows in edges.items():
        first, last = boxes[pair[0]], boxes[pair[1]]
        out = sorted(leaving[pair[0]], key=lambda one: boxes[one[1]].x).index(pair) + 1
        into = sorted(arriving[pair[1]], key=lambda one: boxes[one[0]].x).index(pair) + 1
        start = (first.x + first.width * out / (len(leaving[pair[0]]) + 1), first.y + first.height)
        end = (last.x + last.width * into / (len(arriving[pair[1]]) + 1), last.y)
        fails = any(drawn.failing.get(flow) for flow in flows)
        upward = last.y <= first.y
        ax.add_patch(
            FancyArrowPatch(
                start, end, arrowstyle="-|>", mutation_scale=6, shrinkA=0, shrinkB=0, zorder=2,
                connectionstyle="arc3,rad=0.35" if upward else "arc3,rad=0.04", color=INK if fails else MUTED,
                lw=1.6 if fails else 0.7, linestyle=(0, (4, 2)) if fails else "-",
            )
        )  # fmt: skip
        named = ", ".join(flows) if len(edges) <= MAX_NAMED else ""
        if text := " ".join(part for part in ("✗" if fails else "", named) if part):
            x, y = end[0] + 0.25 * (start[0] - end[0]), end[1] + 0.5 * min(_GAP, abs(end[1] - start[1]))
            y = end[1] - 0.5 * _GAP if not upward else y
            ax.text(
                x, y, text, size=_SMALL, color=INK, ha="center", va="center", zorder=5,
                weight="bold" if fails else "normal",
                bbox={"facecolor": PAPER, "alpha": 0.85, "linewidth": 0, "pad": 0.6},
            )  # fmt: skip
