"""Create and save figures in the style of the report: size, fonts and colors.

Layouts are computed in inches from the number of networks and panels. matplotlib's layout engines would draw
every figure several times.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from k8sdds.report.figures import inline_svg
from k8sdds.report.theme import GRID, INK, MUTED
from k8sdds.system.files import replacing, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

Item = TypeVar("Item")

WIDTH = 7.2
"""Width in inches, chosen to match the text width of an A4 page with 14 mm margins."""
MIN_WIDTH = 0.4
"""Least width of axes in inches, next to long labels."""
DPI = 200
FONT = 8.5
PART_WIDTH = 3.9
"""Largest width in inches of a part that is readable on a phone."""
SINGLE_WIDTH = 4.2
"""Width in inches of a single panel: a phone shows it whole, wide pages show two side by side."""
_CHARACTER = 0.069
"""Mean width of a character in inches at font size FONT."""

_STYLE: dict[Any, Any] = {
    "font.size": FONT, "font.family": ["DejaVu Sans"], "axes.titlesize": FONT, "axes.labelsize": FONT,
    "xtick.labelsize": FONT - 0.5, "ytick.labelsize": FONT, "text.color": INK, "axes.labelcolor": INK,
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "axes.edgecolor": MUTED, "axes.linewidth": 0.7, "axes.facecolor": "none", "axes.axisbelow": True,
    "grid.color": GRID, "grid.linewidth": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.minor.size": 0, "ytick.minor.size": 0,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left", "axes.labelpad": 2,
    "axes.titleweight": "bold", "axes.titlepad": 5, "axes.unicode_minus": True,
    "svg.fonttype": "none", "pdf.fonttype": 42, "text.parse_math": False,
    "lines.solid_capstyle": "butt", "figure.facecolor": "white",
}  # fmt: skip

AS_PDF = ContextVar("AS_PDF", default=True)
"""Whether figures are also written as PDF. Embedding the fonts takes longer than PNG and SVG together."""


@dataclass(frozen=True)
class Figure:
    """A drawn figure: the files SLUG.png and SLUG.svg, and the SVG markup for the HTML report."""

    slug: str
    section: str
    title: str
    alt: str
    caption: str
    svg: str
    parts: tuple[str, ...] = ()
    """View boxes of its legend and panels, which narrow pages show one below the other; empty if they are too wide."""
    narrow: bool = False
    """Whether a wide page shows it next to another figure."""
    drawing: str = ""
    """Id of what is drawn in `svg`, once `share_styles` has given it one."""


def text_width(texts: Sequence[str], size: float = FONT) -> float:
    """Return the width of the longest text in inches."""
    return max((len(text) for text in texts), default=0) * _CHARACTER * size / FONT


@cache
def _set_style() -> None:
    import seaborn as sns

    sns.set_theme(style="ticks", rc=_STYLE)


def grid(
    heights: Sequence[float], columns: int, across: float, *, left: float, right: float, head: float, foot: float,
    below: float = 0,
) -> tuple[Drawing, list[Axes]]:  # fmt: skip
    """Return a drawing with panels in rows of some columns; sizes are in inches.

    `heights` has that of the axes of each panel, and a panel is `across` wide. The others are the room around the axes
    of each panel, and below all of them.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MplFigure

    _set_style()
    tops = [0, *itertools.accumulate(head + height + foot for height in heights[::columns])]
    full_width, full_height = columns * across, tops[-1] + below
    drawing = MplFigure(figsize=(full_width, full_height))
    FigureCanvasAgg(drawing)
    panels = []
    for index, height in enumerate(heights):
        line, column = divmod(index, columns)
        x, bottom = column * across + left, tops[line] + head + height
        box = (
            x / full_width,
            1 - bottom / full_height,
            max(across - left - right, MIN_WIDTH) / full_width,
            height / full_height,
        )
        panels.append(drawing.add_axes(box))
    return drawing, panels


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """Return as many items as a figure has room for, evenly spread, with the first and the last one."""
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / (most - 1)
    return [items[round(index * step)] for index in range(most)]


def _legend_columns(labels: Sequence[str]) -> int:
    return max(1, int(PART_WIDTH // (text_width(labels, FONT - 0.5) + 0.4)))


def legend_height(labels: Sequence[str]) -> float:
    """Return the room in inches that `legend` needs."""
    return 0.17 * -(-len(labels) // _legend_columns(labels)) + 0.1


def legend(drawing: Drawing, entries: Sequence[tuple[str, str, str, str]]) -> None:
    """Draw a legend at the bottom that fits a phone, with label, marker, color and line style of each entry."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=color, ls=line, lw=0.9, marker=marker, ms=4.4, mew=0, label=label)
        for label, marker, color, line in entries
    ]
    columns = _legend_columns([label for label, *_ in entries])
    drawing.legend(
        handles=handles, loc="lower center", ncols=columns, fontsize=FONT - 0.5, frameon=False, handlelength=1.8,
        columnspacing=1.2, borderpad=0,
    )  # fmt: skip


def save(
    drawing: Drawing, folder: Path, slug: str, section: str, title: str, alt: str, caption: str
) -> Figure:
    """Write SLUG.png, SLUG.svg and, if AS_PDF, SLUG.pdf, and return the figure.

    The SVG for the HTML report uses the colors of the page and contains the `alt` text.
    """
    import matplotlib as mpl

    # The default compression takes twice as long for files that are a quarter smaller.
    with replacing(folder / f"{slug}.png") as unfinished:
        drawing.savefig(unfinished, format="png", dpi=DPI, pil_kwargs={"compress_level": 1})
    if AS_PDF.get():
        with replacing(folder / f"{slug}.pdf") as unfinished:
            drawing.savefig(unfinished, format="pdf", metadata={"CreationDate": None})
    buffer = io.StringIO()
    # Ids contain a hash of the slug, so that figures on one page do not share clip paths.
    with mpl.rc_context({"svg.hashsalt": slug}):
        drawing.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    # The file has no CSS variables, which few programs except browsers support.
    write_atomically(folder / f"{slug}.svg", buffer.getvalue())
    svg = inline_svg.inline(buffer.getvalue(), slug, alt)
    is_narrow = drawing.get_size_inches()[0] <= SINGLE_WIDTH + 0.01
    return Figure(slug, section, title, alt, caption, svg, _parts(drawing), is_narrow)


def _parts(drawing: Drawing) -> tuple[str, ...]:
    from matplotlib.transforms import Bbox

    if len(drawing.axes) < 2:
        return ()
    boxes = [box for ax in drawing.axes if (box := ax.get_tightbbox())]
    if legend := [artist.get_window_extent() for artist in (*drawing.texts, *drawing.legends)]:
        box = Bbox.union(legend)
        boxes.insert(0 if box.y1 > boxes[0].y1 else len(boxes), box)
    if any(box.width > PART_WIDTH * drawing.dpi for box in boxes):
        return ()
    scale, height, pad = 72 / drawing.dpi, drawing.bbox.height, 3
    return tuple(
        f"{box.x0 * scale - pad:.0f} {(height - box.y1) * scale - pad:.0f}"
        f" {box.width * scale + 2 * pad:.0f} {box.height * scale + 2 * pad:.0f}"
        for box in boxes
    )
