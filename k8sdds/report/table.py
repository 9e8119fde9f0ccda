"""Tables of results, which terminals and HTML pages show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from k8sdds.report.text import SPACE, wrap

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_GAP = 2
"""Spaces between columns."""
_MAX_LINES = 4
"""Lines of a cell that has one line in a wide terminal. With more, rows are easier to read as blocks."""
_COLORS = {
    "better": "green", "worse": "red", "supported": "green", "contradicted": "red", "undecided": "yellow",
    "consistent with the model": "cyan", "not enough data": "yellow", "not testable here": "dim", "no result": "dim",
}  # fmt: skip
"""Colors of a terminal by mark."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: its text, up to two small lines below it, and how it looks."""

    text: str = "–"
    small: str = ""
    more: str = ""
    mark: str = ""
    """Classes of the style sheet, which also color the row in a terminal."""
    sign: str = ""
    """A sign before the text, which has the mark instead of the text."""
    meaning: str = ""
    """What the sign means."""
    href: str = ""
    """Address of a link."""
    swatch: str = ""
    """Color of a network: the name of its CSS variable after `c-`."""
    shade: float = 0
    """0 to 1: the shade of the background."""

    @property
    def plain(self) -> str:
        """The lines of the cell, as a terminal prints them."""
        text = f"{self.sign} {self.text}" if self.sign else self.text
        return "\n".join(filter(None, (text, self.small, self.more)))


@dataclass(frozen=True)
class Table:
    """A table of a result. The first cell of a row is its head.

    A terminal shows it with columns if they fit, otherwise each row as a block of lines. A row has the color of its
    marks if all of them have the same one, and there are rules between rows of several lines.
    """

    caption: str
    heads: Sequence[str | tuple[str, str]]
    """Titles of the columns, with their units if they have some."""
    rows: Sequence[Sequence[Cell]]
    under: str = ""
    """Text below the table."""
    bases: int = 0
    """Number of first rows that the others refer to; they keep their place when the table is sorted."""
    keys: int = 1
    """Number of first columns that identify a row. Those before the last one are shown where they change."""

    @classmethod
    def of(cls, heads: Sequence[str], rows: Iterable[Sequence[str]], keys: int = 1) -> Table:
        """Return a table of texts without a caption."""
        return cls("", heads, [[*map(Cell, row)] for row in rows], keys=keys)

    def is_number(self, index: int) -> bool:
        """Return whether a column has only numbers. The first one never counts."""
        return index > 0 and all(re.match(r"(~ )?[-+±]?\d|–|$", row[index].text) for row in self.rows)

    @property
    def texts(self) -> list[list[str]]:
        """The lines of all cells, the head first."""
        heads = [head if isinstance(head, str) else " ".join(head) for head in self.heads]
        return [heads, *([cell.plain for cell in row] for row in self.rows)]

    def print(self, console: Console, most: int | None = None) -> None:
        """Print the first rows, without the caption."""
        # Words that are longer than a line are not broken, so that they can be copied.
        console.print(replace(self, rows=self.rows[:most]), soft_wrap=True)
        if most is not None and most < len(self.rows):
            console.print(f"… and {len(self.rows) - most} more")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Render for rich."""
        widths = self._widths(options.max_width)
        yield from self._stacked(options.max_width) if widths is None else [self._columns(widths)]

    def _style(self, row: Sequence[Cell]) -> str:
        marks = {cell.mark for cell in row if cell.mark}
        return _COLORS.get(marks.pop(), "") if len(marks) == 1 else ""

    def _widths(self, available: int) -> list[int] | None:
        """Return the widths of the columns; None if they do not fit without breaking a word."""
        columns = list(zip(*self.texts, strict=True))
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
        from rich.table import Table as RichTable

        heads, *rows = self.texts
        table = RichTable(
            box=box.SIMPLE_HEAD, padding=(0, _GAP - 1, 0, 0), pad_edge=False, show_edge=False,
            show_lines=any("\n" in cell for row in rows for cell in row),
        )  # fmt: skip
        for index, (head, width) in enumerate(zip(heads, widths, strict=True)):
            side: Literal["left", "right"] = "right" if self.is_number(index) else "left"
            table.add_column("\n".join(wrap(head, width)), justify=side, no_wrap=True, min_width=width)
        before: Sequence[str] = ()
        for number, row in enumerate(rows):
            key = row[: self.keys - 1]
            cells = [*([""] * len(key) if key == before else key), *row[self.keys - 1 :]]
            if number and key != before:
                table.add_section()
            before = key
            shown = [
                cell if len(cell) <= width else "\n".join(wrap(cell, width))
                for cell, width in zip(cells, widths, strict=True)
            ]
            table.add_row(*shown, style=self._style(self.rows[number]))
        return table

    def _stacked(self, width: int) -> Iterator[RenderableType]:
        from rich.text import Text

        heads, *rows = self.texts
        for row, texts in zip(self.rows, rows, strict=True):
            cells = ["; ".join(" ".join(line.split()) for line in cell.split("\n") if line) for cell in texts]
            named = list(zip(heads, cells, strict=True))
            key = cells[0] if self.keys == 1 else ", ".join(f"{n} {v}" for n, v in named[: self.keys])
            fields = [f"{name}: {cell}" for name, cell in named[self.keys :] if cell not in ("", "–")]
            # A field is not broken if it fits on a line.
            text = "; ".join(f.replace(" ", SPACE) if len(f) < width - _GAP else f for f in fields)
            yield Text("\n".join(wrap(key, width, "  ")), style=f"bold {self._style(row)}")
            yield Text("\n".join(wrap(text, width, "  ", "  ")), style=self._style(row))


def judged(texts: Sequence[str], row: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of a row that is `better`, `worse` or neither, as its last cell states."""
    mark = "better" if row["better"] else "worse" if row["worse"] else ""
    return [*map(Cell, texts[:-1]), Cell(texts[-1], mark=mark)]
