"""Draw a flame graph for each profiled trial: width is CPU time, the outermost function is at the bottom.

The drawing is SVG without scripts: the name and share of a narrow function are in its tooltip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from k8sdds.analysis import profile as profiles
from k8sdds.analysis.components import COMPONENTS, Component
from k8sdds.analysis.conditions import UNIT
from k8sdds.model.axis import payload
from k8sdds.report import formats
from k8sdds.report.content import Content
from k8sdds.report.figures.canvas import Figure
from k8sdds.report.profiles import basis, profiled
from k8sdds.report.theme import GRID, INK, PAPER, themed
from k8sdds.results.profile import ProfileSummary
from k8sdds.system.files import write_atomically
from k8sdds.system.grouping import Row
from k8sdds.system.reading import UnreadableError

WIDTH, ROW, LEGEND_ROW, FONT = 1000, 16, 20, 11
MIN_WIDTH = 0.6
"""Frames narrower than this are not drawn."""
MAX_DEPTH = 80
_CHARACTER = 6.2
"""Mean width of a character of size FONT."""
_LEGEND_COLUMN = 160
SECTION = "profile"
_COLORS = (
    "#8fd3ff", "#ff8a80", "#5aa9e6", "#b39ddb", "#f06292", "#80cbc4", "#ffd54f", "#ffab40", "#d7a8c9", "#a5d6a7",
    "#66bb6a", "#c8b48a", "#e0876a", "#bcaaa4", "#dce775", "#b0bec5", "#ffe0b2", "#ce93d8", "#9e9e9e",
)  # fmt: skip
COLORS = dict(zip((component.name for component in COMPONENTS), _COLORS, strict=True))
"""Light colors, the same on dark screens, with dark text."""
ON_COLOR = "#111111"


@dataclass
class Frame:
    """A function with the functions that it called."""

    name: str
    component: Component | None = None
    weight: int = 0
    children: dict[tuple[str, Component | None], Frame] = field(default_factory=dict)

    def add(self, stack: list[tuple[str, Component | None]], weight: int) -> None:
        """Add the samples of a stack below this frame."""
        frame = self
        frame.weight += weight
        for key in stack[:MAX_DEPTH]:
            frame = frame.children.setdefault(key, Frame(*key))
            frame.weight += weight

    def depth(self, smallest: float) -> int:
        """Return the number of rows of the frames of at least this weight."""
        below = (child.depth(smallest) for child in self.children.values() if child.weight >= smallest)
        return 1 + max(below, default=0)


def draw(content: Content, folder: Path) -> list[Figure]:
    """Write and return the flame graphs of all profiles whose raw files exist."""
    figures = []
    for row, summary in profiled(content):
        try:
            profile = profiles.read(content.run.raw(row["trial_id"], int(row["attempt"] or 1)))
        except (OSError, UnreadableError):
            continue
        root = Frame("all")
        for stack, weight in profiles.stacks(profile):
            root.add(stack, weight)
        if root.weight:
            figures.append(_figure(content, folder, row, summary, root))
    return figures


def _figure(content: Content, folder: Path, row: Row, summary: ProfileSummary, root: Frame) -> Figure:
    title = f"{row[UNIT]}, {row['test']}, {payload(row['payload_bytes'] or 0)}"
    name = formats.slug(f"{row[UNIT]}-{row['test']}")
    slug = f"flame-{name}-{formats.slug(row['trial_id'][:6])}"
    alt = f"Flame graph of {title}: CPU time by function"
    svg = _svg(root, slug, alt)
    write_atomically(folder / f"{slug}.svg", svg)
    caption = f"{content.testbed} · {basis(summary)} · a function is above its caller; colors: component"
    return Figure(slug, SECTION, title, alt, caption, themed(svg))


def _svg(root: Frame, slug: str, alt: str) -> str:
    smallest = MIN_WIDTH * root.weight / WIDTH
    shown = list(dict.fromkeys(_components(root, smallest)))
    per_row = WIDTH // _LEGEND_COLUMN
    legend_height = LEGEND_ROW * (-(-len(shown) // per_row)) + 6
    height = root.depth(smallest) * ROW + legend_height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img"'
        f' aria-labelledby="{slug}-alt" font-family="\'DejaVu Sans\', Verdana, Arial, sans-serif"'
        f' font-size="{FONT}" fill="{INK}"><title id="{slug}-alt">{escape(alt)}</title>'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>'
    ]
    for index, component in enumerate(sorted(shown, key=COMPONENTS.index)):
        x, y = index % per_row * _LEGEND_COLUMN, index // per_row * LEGEND_ROW
        parts.append(
            f'<rect x="{x + 2}" y="{y + 4}" width="12" height="12" fill="{COLORS[component.name]}"/>'
            f'<text x="{x + 19}" y="{y + 14}">{escape(component.name)}</text>'
        )
    parts += _rectangles(root, 0.0, height - ROW, WIDTH / root.weight, root.weight)
    return "\n".join([*parts, "</svg>\n"])


def _components(frame: Frame, smallest: float) -> Iterator[Component]:
    if frame.component:
        yield frame.component
    for child in frame.children.values():
        if child.weight >= smallest:
            yield from _components(child, smallest)


def _rectangles(frame: Frame, x: float, y: float, scale: float, total: int) -> Iterator[str]:
    width = frame.weight * scale
    if width < MIN_WIDTH:
        return
    of = f", {frame.component.name}" if frame.component else ""
    tip = escape(f"{frame.name}: {frame.weight / total * 100:.1f} %{of}")
    fill = COLORS[frame.component.name] if frame.component else GRID
    ink = f' fill="{ON_COLOR}"' if frame.component else ""
    room = int((width - 4) / _CHARACTER)
    name = frame.name if len(frame.name) <= room else f"{frame.name[: room - 1]}…"
    text = f'<text x="{x + 2:.1f}" y="{y + 12:.1f}"{ink}>{escape(name)}</text>' if room >= 3 else ""
    box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width - 0.4, 0.3):.1f}" height="{ROW - 1}"'
    yield f'<g><title>{tip}</title><rect {box} fill="{fill}"/>{text}</g>'
    for child in sorted(frame.children.values(), key=lambda child: (-child.weight, child.name)):
        yield from _rectangles(child, x, y - ROW, scale, total)
        x += child.weight * scale
