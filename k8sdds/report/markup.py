"""Write what a command prints as Markdown or LaTeX, to paste it into a README or a paper."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pandas as pd
from rich.console import Console, ConsoleRenderable, RenderHook
from rich.text import Text

from k8sdds.report.table import Table
from k8sdds.system import reading

MAX_WIDTH = 50
"""Most characters of a cell that LaTeX sets on one line."""

_LATEX = str.maketrans({
    **{letter: f"\\{letter}" for letter in "&%$#_{}"}, "\\": r"\textbackslash{}", "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}", "\N{NO-BREAK SPACE}": "~", "µ": r"$\mu$", "±": r"$\pm$", "×": r"$\times$",
    "→": r"$\to$", "≤": r"$\le$", "≥": r"$\ge$", "–": "--", "…": r"\dots{}", "·": r"$\cdot$", "✓": "yes", "✗": "no",
    "\n": "; ",
})  # fmt: skip


class _Collect(RenderHook):
    def __init__(self) -> None:
        self.printed: list[ConsoleRenderable] = []

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        self.printed += renderables
        return []


def render(form: str, show: Callable[[], None], console: Console) -> str:
    """Return the output of `show` in `markdown` or `latex`.

    Text is a paragraph in Markdown and a comment in LaTeX. The bold line before a table is the table's caption.
    """
    console.width = 1000  # no table is adapted to a narrow terminal
    hook = _Collect()
    console.push_render_hook(hook)
    show()
    console.pop_render_hook()
    parts, heading = [], ""
    captions: Counter[str] = Counter()
    for item in hook.printed:
        if isinstance(item, Table):
            cells = [[re.sub(" +", " ", cell).strip() for cell in row] for row in item.texts]
            right = [*map(item.is_number, range(len(item.heads)))]
            captions[heading] += 1
            parts.append(
                _markdown(cells, right)
                if form == "markdown"
                else _latex(cells, right, heading, captions[heading])
            )
        elif isinstance(item, Text) and (text := " ".join(item.plain.split())):
            bold = item.get_style_at_offset(console, 0).bold
            heading = text if bold else heading
            mark = "**" if bold else ""
            parts.append(f"{mark}{_in_markdown(text)}{mark}" if form == "markdown" else f"% {text}")
    return reading.printable("\n\n".join(parts))


def _markdown(cells: list[list[str]], right: list[bool]) -> str:
    heads, *rows = [[_in_markdown(cell) for cell in line] for line in cells]
    rule = ["---:" if is_right else "---" for is_right in right]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *rows))


def _in_markdown(text: str) -> str:
    return re.sub(r"([\\`*|<~]|\](?=\())", r"\\\1", text).replace("\n", "<br>")


def _latex(cells: list[list[str]], right: list[bool], caption: str, number: int) -> str:
    """Return a table, whose label is its caption, with a number if it is not the first one with this caption."""
    heads, *rows = [[_in_latex(cell) for cell in line] for line in cells]
    layout = "".join(
        r"p{0.2\linewidth}" if max(map(len, column)) > MAX_WIDTH else "r" if is_right else "l"
        for is_right, *column in zip(right, heads, *rows, strict=True)
    )
    words = [*re.findall(r"[a-z0-9]+", caption.lower()), *([str(number)] if number > 1 else [])]
    # pandas escapes no captions, and no characters that pdfTeX does not have.
    text: str = pd.DataFrame(rows, columns=heads).to_latex(
        index=False, escape=False, column_format=layout, caption=_in_latex(caption), label=f"tab:{'-'.join(words)}",
        position="htbp",
    )  # fmt: skip
    return text.rstrip()


def _in_latex(text: str) -> str:
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", text.translate(_LATEX))
