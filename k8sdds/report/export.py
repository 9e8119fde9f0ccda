"""Write a result, such as a comparison, as CSV, JSON and one self-contained HTML page."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic_core

from k8sdds.report.text import paragraph
from k8sdds.system.faults import explained
from k8sdds.system.files import write_atomically

if TYPE_CHECKING:
    from rich.console import Console

    from k8sdds.report.figures import Figure
    from k8sdds.report.table import Table


@dataclass(frozen=True)
class Findings:
    """A result, such as a comparison, as a terminal, a page, a CSV file and a JSON file show it."""

    name: str
    """Name of the files."""
    heading: str
    sub: str
    lead: Sequence[str]
    tables: Sequence[Table]
    notes: Sequence[str]
    data: dict[str, Any]
    """Content of the JSON file."""
    rows: Sequence[dict[str, Any]]
    columns: Sequence[str]
    """Columns of the CSV file, which has the rows."""
    draw: Callable[[Path], list[Figure]] | None = None
    """Draws figures to a folder. Without the packages for figures, a note replaces them."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Texts of further files, by suffix."""
    next: tuple[str, str] | None = None
    """What to do next, and the command, for the page."""

    def show(self, console: Console) -> None:
        """Print the tables, the summary and the notes."""
        paragraph(console, self.heading, style="bold")
        if self.sub:
            paragraph(console, self.sub, style="dim")
        for table in self.tables:
            paragraph(console, table.caption, style="bold")
            table.print(console)
        for sentence in self.lead:
            paragraph(console, sentence, style="bold")
        for note in self.notes:
            paragraph(console, note, style="dim")

    def write(self, folder: Path) -> list[Path]:
        """Write the files, whose paths are returned, and the figures to a folder."""
        from k8sdds.report import document
        from k8sdds.report.figures import inline_svg, missing_note

        missing = missing_note() if self.draw else []
        with explained(f"cannot write to {folder}", "choose another folder: --output"):
            folder.mkdir(parents=True, exist_ok=True)
            drawn = self.draw(folder) if self.draw and not missing else []
            figures, rules = inline_svg.share_styles(drawn)
            page = vars(self) | {"figures": figures, "notes": [*self.notes, *missing]}
            files = {
                ".html": document.render("page.html.j2", page, figure_rules=rules),
                ".csv": to_csv(self.rows, self.columns),
                ".json": to_json(self.data) + "\n",
                **self.others,
            }
            texts = {folder / f"{self.name}{suffix}": text for suffix, text in files.items()}
            for path, text in texts.items():
                write_atomically(path, text)
        return list(texts)


def to_json(data: Any) -> str:
    """Return data as JSON; what JSON does not have becomes null (infinities and NaN) or text, such as a path."""
    return pydantic_core.to_json(data, indent=1, inf_nan_mode="null", fallback=str).decode()


def to_csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Return rows as CSV with a header. Numbers have ten digits; lists are joined, mappings become JSON."""
    file, columns = StringIO(), columns or list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _csv_cell(row.get(key)) for key in columns} for row in rows)
    return file.getvalue()


def _csv_cell(value: Any) -> Any:
    match value:
        case float():
            return f"{value:.10g}" if math.isfinite(value) else ""
        case list() | tuple():
            return ", ".join(map(str, value))
        case dict():
            return json.dumps(value)
    return value
