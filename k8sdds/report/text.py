"""Lay out text for a terminal of any width: numbers, intervals and words are never cut or broken."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_GAP = 2
"""Spaces between columns."""
_GLUED = re.compile(r"(?<=[~\d]) +(?=\S)| +(?=\[)|(?<=,) +(?=[^\[\]]*\])")
"""Spaces at which no line ends: after numbers, before and within intervals."""
_SPACE = "\0"
_MAX_LINES = 4
"""Lines of a cell that has one line in a wide terminal. With more, rows are easier to read as blocks."""


def wrap(text: str, width: int, indent: str = "", mark: str = "") -> list[str]:
    """Return text as lines of at most so many columns; a longer word has a longer line of its own.

    Line breaks of the text are kept. `mark` begins the first line, `indent` all others.
    """
    glued = _GLUED.sub(lambda match: _SPACE * len(match[0]), text)
    lines = [
        line
        for part in glued.split("\n")
        for line in textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False,
                                  initial_indent=mark, subsequent_indent=indent) or [""]
    ]  # fmt: skip
    return [line.replace(_SPACE, " ") for line in lines]


def paragraph(console: Console, text: str, mark: str = "", style: str = "") -> None:
    """Print text in lines of at most 100 columns, with a mark such as `- ` in front."""
    from rich.text import Text

    lines = wrap(text, min(console.width, 100), " " * len(mark), mark)
    console.print(Text("\n".join(lines), style=style), soft_wrap=True)


@dataclass
class TextTable:
    """A table for a terminal: with columns if they fit, otherwise each row as a block of lines."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: Sequence[str] = ()
    """Style of each row."""
    right: Collection[int] = ()
    """Columns that are aligned to the right."""
    keys: int = 1
    """Number of first columns that identify a row. Those before the last one are shown where they change."""
    rules: bool = False
    """Whether there is a rule between the rows."""

    def print(self, console: Console) -> None:
        """Print the table."""
        # Words that are longer than a line are not broken, so that they can be copied.
        console.print(self, soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Render for rich."""
        widths = self._widths(options.max_width)
        yield from self._stacked(options.max_width) if widths is None else [self._columns(widths)]

    def _widths(self, available: int) -> list[int] | None:
        """Return the widths of the columns; None if they do not fit without breaking a word."""
        columns = list(zip(self.heads, *self.rows, strict=True))
        widths = [max(max(map(len, cell.split("\n"))) for cell in column) for column in columns]
        gaps = _GAP * (len(widths) - 1)
        if sum(widths) + gaps <= available:
            return widths
        least = [max(len(line) for cell in column for line in wrap(cell, 1)) for column in columns]
        while sum(widths) + gaps > available:
            widest = max(range(len(widths)), key=lambda n: (widths[n] > least[n], widths[n]))
            if widths[widest] == least[widest]:
                return None
            widths[widest] -= 1
        tall = any(
            len(wrap(cell, width)) > _MAX_LINES * (1 + cell.count("\n"))
            for column, width in zip(columns, widths, strict=True)
            for cell in column
        )
        return None if tall else widths

    def _columns(self, widths: Sequence[int]) -> RenderableType:
        from rich import box
        from rich.table import Table

        table = Table(
            box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), pad_edge=False, show_edge=False,
            show_lines=self.rules,
        )  # fmt: skip
        for number, width in enumerate(widths):
            head = "\n".join(wrap(self.heads[number], width))
            table.add_column(
                head, justify="right" if number in self.right else "left", no_wrap=True, min_width=width
            )
        before: Sequence[str] = ()
        for number, row in enumerate(self.rows):
            key = row[: self.keys - 1]
            cells = [*([""] * len(key) if key == before else key), *row[self.keys - 1 :]]
            if number and key != before:
                table.add_section()
            before = key
            shown = [
                cell if len(cell) <= width else "\n".join(wrap(cell, width))
                for cell, width in zip(cells, widths, strict=True)
            ]
            table.add_row(*shown, style=self.styles[number] if self.styles else "")
        return table

    def _stacked(self, width: int) -> Iterator[RenderableType]:
        from rich.text import Text

        for number, row in enumerate(self.rows):
            cells = ["; ".join(" ".join(line.split()) for line in cell.split("\n") if line) for cell in row]
            named = list(zip(self.heads, cells, strict=True))
            key = cells[0] if self.keys == 1 else ", ".join(f"{n} {v}" for n, v in named[: self.keys])
            fields = [f"{name}: {cell}" for name, cell in named[self.keys :] if cell not in ("", "–")]
            # A field is not broken if it fits on a line.
            text = "; ".join(f.replace(" ", _SPACE) if len(f) < width - _GAP else f for f in fields)
            style = self.styles[number] if self.styles else ""
            yield Text("\n".join(wrap(key, width, "  ")), style=f"bold {style}")
            yield Text("\n".join(wrap(text, width, "  ", "  ")), style=style)
