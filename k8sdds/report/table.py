"""Tables of results, which terminals and HTML pages show."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from k8sdds.report.text import TextTable

if TYPE_CHECKING:
    from rich.console import Console

_COLORS = {
    "better": "green", "worse": "red", "supported": "green", "contradicted": "red", "undecided": "yellow",
    "consistent with the model": "cyan", "not enough data": "yellow", "not testable here": "dim",
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
    """A table of a result. The first cell of a row is its head."""

    caption: str
    heads: Sequence[str | tuple[str, str]]
    """Titles of the columns, with their units if they have some."""
    rows: Sequence[Sequence[Cell]]
    under: str = ""
    """Text below the table."""
    bases: int = 0
    """Number of first rows that the others refer to; they keep their place when the table is sorted."""

    def is_number(self, index: int) -> bool:
        """Return whether a column has only numbers. The first one never counts."""
        return index > 0 and all(re.match(r"(~ )?[-+±]?\d|–|$", row[index].text) for row in self.rows)

    def print(self, console: Console, most: int | None = None) -> None:
        """Print the first rows without the caption. There are rules between rows of several lines.

        A row has the color of its marks if all of them have the same one.
        """
        rows = self.rows[:most]
        heads = [head if isinstance(head, str) else " ".join(head) for head in self.heads]
        marks = [{cell.mark for cell in row if cell.mark} for row in rows]
        styles = [_COLORS.get(next(iter(found)), "") if len(found) == 1 else "" for found in marks]
        cells = [[cell.plain for cell in row] for row in rows]
        rules = any("\n" in cell for row in cells for cell in row)
        right = [*filter(self.is_number, range(len(heads)))]
        TextTable(heads, cells, styles, right, rules=rules).print(console)
        if len(rows) < len(self.rows):
            console.print(f"… and {len(self.rows) - len(rows)} more")


def judged(texts: Sequence[str], row: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of a row that is `better`, `worse` or neither, as its last cell states."""
    mark = "better" if row["better"] else "worse" if row["worse"] else ""
    return [*map(Cell, texts[:-1]), Cell(texts[-1], mark=mark)]
