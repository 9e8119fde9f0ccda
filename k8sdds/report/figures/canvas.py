"""Create and save figures in the style of the report: size, fonts and colors.

Layouts are computed in inches from the number of networks and panels. matplotlib's layout engines would draw
every figure several times.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.report.figures import inline_svg
from k8sdds.report.theme import GRID, INK, MUTED
from k8sdds.system.files import replacing, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

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


def text_width(texts: Sequence[str], size: float = FONT) -> float:
    """Return the width of the longest text in inches."""
    return max((len(text) for text in texts), default=0) * _CHARACTER * size / FONT


def new(width: float, height: float) -> Drawing:
    """Return an empty drawing in the style of the report; the size is in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MplFigure

    _set_theme()
    drawing = MplFigure(figsize=(width, height))
    FigureCanvasAgg(drawing)
    return drawing


def axes(drawing: Drawing, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes; positions and sizes are in inches from the upper left corner of the drawing."""
    full_width, full_height = drawing.get_size_inches()
    width = max(width, MIN_WIDTH)
    box = (left / full_width, 1 - (top + height) / full_height, width / full_width, height / full_height)
    ax = drawing.add_axes(box)
    ax.set_axisbelow(True)
    # seaborn labels axes that have no labels, and first creates all ticks to find out whether they are visible.
    ax.set(xlabel=" ", ylabel=" ")
    return ax


def grid(
    count: int, columns: int, width: float, height: float, *, left: float, right: float, head: float, foot: float,
    below: float = 0,
) -> tuple[Drawing, list[Axes]]:  # fmt: skip
    """Return a drawing with panels in rows of some columns; sizes are in inches.

    Args:
        count: Number of panels.
        columns: Number of columns.
        width: Width of the axes of a panel.
        height: Height of the axes of a panel.
        left: Room to the left of the axes of each panel.
        right: Room to the right.
        head: Room above.
        foot: Room below.
        below: Room below all panels, such as for a legend.
    """
    across, down = left + width + right, head + height + foot
    drawing = new(columns * across, -(-count // columns) * down + below)
    places = (divmod(index, columns) for index in range(count))
    return drawing, [
        axes(drawing, column * across + left, line * down + head, width, height) for line, column in places
    ]


def _legend_columns(labels: Sequence[str]) -> int:
    return max(1, int(PART_WIDTH // (text_width(labels, FONT - 0.5) + 0.4)))


def legend_height(labels: Sequence[str]) -> float:
    """Return the room in inches that `legend` needs."""
    return 0.17 * -(-len(labels) // _legend_columns(labels)) + 0.1


def legend(drawing: Drawing, entries: Sequence[tuple[str, str, str, str]]) -> None:
    """Draw a legend at the bottom that fits a phone, with label, marker, color and line style of each entry."""
    from matplotlib.lines import Line2D

    drawing.legend(
        handles=[
            Line2D([], [], color=color, linestyle=line, linewidth=0.9, marker=marker, markersize=4.4,
                   markeredgewidth=0, label=label)
            for label, marker, color, line in entries
        ],
        loc="lower center", ncols=_legend_columns([label for label, *_ in entries]), fontsize=FONT - 0.5,
        frameon=False, handlelength=1.8, columnspacing=1.2, borderpad=0,
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
        drawing.savefig(
            unfinished, format="png", dpi=DPI, facecolor="white", pil_kwargs={"compress_level": 1}
        )
    if AS_PDF.get():
        with replacing(folder / f"{slug}.pdf") as unfinished:
            drawing.savefig(unfinished, format="pdf", metadata={"CreationDate": None})
    buffer = io.StringIO()
    # Ids contain a hash of the slug, so that figures on one page do not share clip paths.
    with mpl.rc_context({"svg.hashsalt": slug}):
        drawing.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    # The file has a white background and no CSS variables, which few programs except browsers support.
    write_atomically(folder / f"{slug}.svg", _on_white(svg))
    is_narrow = drawing.get_size_inches()[0] <= SINGLE_WIDTH + 0.01
    return Figure(
        slug, section, title, alt, caption, inline_svg.inline(svg, slug, alt), _parts(drawing), is_narrow
    )  # fmt: skip


def _parts(drawing: Drawing) -> tuple[str, ...]:
    from matplotlib.transforms import Bbox

    if len(drawing.axes) < 2:
        return ()
    renderer = drawing.canvas.get_renderer()
    boxes = [ax.get_tightbbox(renderer) for ax in drawing.axes]
    if legend := [
        artist.get_window_extent(renderer) for artist in (*drawing.texts, *drawing.legends, *drawing.artists)
    ]:
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


@cache
def _set_theme() -> None:
    import seaborn as sns

    sns.set_theme(style="ticks", rc=_style())


def _style() -> dict[str, Any]:
    return {
        "font.size": FONT, "font.family": ["DejaVu Sans"], "axes.titlesize": FONT, "axes.labelsize": FONT,
        "xtick.labelsize": FONT - 0.5, "ytick.labelsize": FONT, "text.color": INK, "axes.labelcolor": INK,
        "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
        "axes.edgecolor": MUTED, "axes.linewidth": 0.7, "axes.facecolor": "none",
        "grid.color": GRID, "grid.linewidth": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
        "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.minor.size": 0, "ytick.minor.size": 0,
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
        "axes.titleweight": "bold", "axes.titlepad": 5, "axes.unicode_minus": True,
        "svg.fonttype": "none", "pdf.fonttype": 42, "text.parse_math": False,
        "lines.solid_capstyle": "butt", "figure.facecolor": "white",
    }  # fmt: skip


def _on_white(svg: str) -> str:
    return re.sub(r"(<svg[^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', svg, count=1)
