"""Draw tables of shaded cells: one row per network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from k8sdds.report.figures.canvas import FONT, WIDTH, axes, new, text_width
from k8sdds.report.theme import INK, MUTED, PAPER

_ROW, _LINE = 0.34, 0.15


def column_width(labels: Sequence[str], columns: int) -> float:
    """Return the width in inches of each of some columns next to the labels of the rows."""
    return (WIDTH - text_width(labels) - 0.25) / max(columns, 4)


def draw(
    labels: Sequence[str],
    heads: Sequence[str],
    shades: Mapping[str, Sequence[float]],
    texts: Mapping[str, Sequence[str]],
):
    """Draw the columns, in the order of their heads: shades between 0 and 1, and a text of up to two lines per cell."""
    import pandas as pd
    import seaborn as sns
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    margin, width = text_width(labels) + 0.2, column_width(labels, len(heads))
    top = _LINE * max(head.count("\n") + 1 for head in heads) + 0.12
    height = _ROW * len(labels)
    drawing = new(margin + width * len(heads) + 0.05, top + height + 0.08)
    ax = axes(drawing, margin, top, width * len(heads), height)
    # Shades are transparent, so that the text has contrast on a light and on a dark page.
    shade = LinearSegmentedColormap.from_list("shade", [to_rgba(MUTED, 0), to_rgba(MUTED, 0.35)])
    sns.heatmap(
        pd.DataFrame(shades, index=labels), vmin=0, vmax=1, cmap=shade, annot=pd.DataFrame(texts, index=labels),
        fmt="", cbar=False, linewidths=1, linecolor=PAPER, clip_on=False,
        annot_kws={"size": FONT - 1.5, "color": INK, "linespacing": 1.1}, ax=ax,
    )  # fmt: skip
    ax.set(xlabel="", ylabel="")
    ax.xaxis.tick_top()
    ax.set_xticks([index + 0.5 for index in range(len(heads))], heads, rotation=0, fontsize=FONT - 0.5)
    ax.set_yticks([index + 0.5 for index in range(len(labels))], labels, rotation=0)
    ax.tick_params(length=0)
    return drawing
