"""Write a result, such as a comparison, as CSV, JSON and one self-contained HTML page."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pydantic_core

from k8sdds.system.faults import explained
from k8sdds.system.files import write_atomically

if TYPE_CHECKING:
    from k8sdds.report.figures import Figure


def write(
    folder: Path,
    name: str,
    data: dict[str, Any],
    rows: Sequence[dict[str, Any]],
    columns: Sequence[str],
    page: dict[str, Any],
    draw: Callable[[Path], list[Figure]] | None = None,
) -> list[Path]:
    """Write NAME.html, NAME.csv and NAME.json and the figures to a folder, and return the paths of the first three.

    `data` is the content of the JSON file, `rows` and `columns` that of the CSV file. `page` has the variables of
    page.html.j2. `draw` draws figures to the folder; without the packages for figures, a note replaces them.
    """
    from k8sdds.report import document
    from k8sdds.report.figures import inline_svg, missing_note

    missing = missing_note() if draw else []
    paths = [folder / f"{name}.{kind}" for kind in ("html", "csv", "json")]
    with explained(f"cannot write to {folder}", "choose another folder: --output"):
        folder.mkdir(parents=True, exist_ok=True)
        figures, rules = inline_svg.share_styles(draw(folder) if draw and not missing else [])
        variables = {**page, "figures": figures, "notes": [*page["notes"], *missing]}
        write_atomically(paths[0], document.render("page.html.j2", variables, figure_rules=rules))
        write_atomically(paths[1], to_csv(rows, columns))
        write_atomically(paths[2], to_json(data) + "\n")
    return paths


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
