"""Print the result of a reading command as text, JSON, YAML, CSV, Markdown or LaTeX."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from k8sdds.cli.commands import output_option
from k8sdds.cli.terminal import console, print_text
from k8sdds.report.export import to_csv, to_json
from k8sdds.system.errors import InputError

TABLE = "table"
Form = TypeVar("Form", bound=str)

Json = Annotated[bool, output_option("--json", help="Print the result as JSON.")]


def _format(*names: str) -> Any:
    # Typer would show the choices as a metavar, which does not fit 80 columns.
    help_text = f"Format of the result: table (text for people), {', '.join(names)}."
    return output_option("--format", metavar="FORMAT", help=help_text)


RowsFormat = Annotated[Literal["table", "json", "yaml", "csv"], _format("json", "yaml", "csv")]
"""Format of a result that consists of rows."""
TablesFormat = Annotated[
    Literal["table", "json", "yaml", "csv", "markdown", "latex"],
    _format("json", "yaml", "csv", "markdown", "latex"),
]
"""Format of a result that consists of rows, and is also printed as tables."""
ReportFormat = Annotated[
    Literal["table", "json", "yaml", "markdown", "latex"], _format("json", "yaml", "markdown", "latex")
]
"""Format of a report."""
DataFormat = Annotated[Literal["table", "json", "yaml"], _format("json", "yaml")]
"""Format of any other result."""


def choose(form: Form, as_json: bool) -> Form:
    """Return the format that `--format` and `--json` select.

    Raises:
        InputError: The two options contradict each other.
    """
    if not as_json:
        return form
    if form not in (TABLE, "json"):
        raise InputError(f"--json and --format {form} exclude each other", "leave out one of them")
    return cast(Form, "json")


def print_result(
    form: str,
    data: Any,
    show: Callable[[], None] | None = None,
    rows: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Print the result of a command.

    Args:
        form: The format, from `choose`.
        data: The whole result, for JSON and YAML.
        show: Prints the result as text; None: the command has no text.
        rows: The rows for CSV; None: `data`.
    """
    if form == TABLE and show is not None:
        show()
    elif form in ("markdown", "latex") and show is not None:
        from k8sdds.report import markup

        print_text(markup.render(form, show, console()))
    elif form == "csv":
        if rows := data if rows is None else rows:
            print_text(to_csv(rows).rstrip("\n"))
    elif form == "yaml":
        from k8sdds.system import yaml_text

        print_text(yaml_text.dump(json.loads(to_json(data))).rstrip("\n"))
    else:
        print_text(to_json(data))


def print_paths(paths: Sequence[Path], form: str = TABLE) -> None:
    """Print the paths of written files, in lines that can be copied; to stderr if stdout has a result for programs."""
    for path in paths:
        console(stderr=form != TABLE).print(str(path), soft_wrap=True)


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows, which have the same columns, as a table."""
    from k8sdds.report.text import TextTable

    heads = [column.replace("_", " ") for column in rows[0]] if rows else []
    TextTable(heads, [[*map(_cell, row.values())] for row in rows]).print(console())


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return "–" if value is None or value == "" else str(value)
