"""What all figures share: size, fonts, colours, saving.

Layouts are computed in inches from the number of networks and panels instead of being searched for by
matplotlib's layout engines, which would draw every figure several times.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k8sdds.report.theme import GRID, INK, MUTED, PAPER, themed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

WIDTH = 7.2
"""Inches: the text width of an A4 page with 14 mm margins."""
DPI = 200
FONT = 8.5
_CHARACTER = 0.069
"""Mean width of a character in inches at FONT, for margins."""


@dataclass(frozen=True)
class Figure:
    """A drawn figure: files SLUG.png and SLUG.svg, and the markup that the HTML report inlines."""

    slug: str
    section: str
    title: str
    alt: str
    caption: str
    svg: str


def text_width(texts: Sequence[str], size: float = FONT) -> float:
    """Inches that the longest of the texts needs."""
    return max((len(text) for text in texts), default=0) * _CHARACTER * size / FONT


def new(width: float, height: float) -> Drawing:
    """An empty drawing of this size in inches, in the report's style."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MplFigure

    mpl.rcParams.update(_style())
    drawing = MplFigure(figsize=(width, height))
    FigureCanvasAgg(drawing)
    return drawing


def axes(drawing: Drawing, left: float, top: float, width: float, height: float) -> Axes:
    """Axes whose left upper corner is `left`, `top` inches from the drawing's."""
    full_width, full_height = drawing.get_size_inches()
    box = (left / full_width, 1 - (top + height) / full_height, width / full_width, height / full_height)
    ax = drawing.add_axes(box)
    ax.set_axisbelow(True)
    return ax


def save(
    drawing: Drawing, folder: Path, slug: str, section: str, title: str, alt: str, caption: str
) -> Figure:
    """Write SLUG.png and SLUG.svg; the inlined SVG follows the page's colours and says its `alt` text."""
    import matplotlib as mpl

    drawing.savefig(folder / f"{slug}.png", dpi=DPI, facecolor="white")
    buffer = io.StringIO()
    # Ids are hashed with the slug, so that figures on one page do not use each other's clip paths.
    with mpl.rc_context({"svg.hashsalt": slug}):
        drawing.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    # The file stands for itself, on white, because few programs but browsers know CSS variables.
    (folder / f"{slug}.svg").write_text(_on_white(svg), encoding="utf-8")
    return Figure(slug, section, title, alt, caption, _inline(svg, slug, alt))


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
        "svg.fonttype": "none", "lines.solid_capstyle": "butt", "figure.facecolor": "white",
    }  # fmt: skip


def _on_white(svg: str) -> str:
    return re.sub(r"(<svg[^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', svg, count=1)


def _inline(svg: str, slug: str, alt: str) -> str:
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    opening, rest = body.split(">", 1)
    # Points to CSS pixels, and a little larger than on paper, because the page's text is.
    width = float(re.search(r'width="([\d.]+)pt"', opening)[1]) * 96 / 72 * 1.18
    box = re.search(r'viewBox="([^"]+)"', opening)[1]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
        f' viewBox="{box}" width="{width:.0f}" role="img" aria-labelledby="{slug}-alt">'
        f'<title id="{slug}-alt">{escape(alt)}</title>'
    )
    # matplotlib names groups figure_1, axes_1, … in every file; on one page ids must be unique.
    rest = re.sub(r'<g id="[^"]*"', "<g", rest)
    rest = rest.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, Arial, sans-serif")
    return themed(head + rest)


__all__ = [
    "DPI",
    "FONT",
    "GRID",
    "INK",
    "MUTED",
    "PAPER",
    "WIDTH",
    "Figure",
    "axes",
    "new",
    "save",
    "text_width",
]
