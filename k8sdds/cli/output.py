"""Print the result of a reading command as text, JSON, YAML, CSV, Markdown or LaTeX."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from k8sdds.cli.commands import option
from k8sdds.cli.terminal import console, print_text
from k8sdds.report.export import to_csv, to_json
from k8sdds.system.errors import ConditionMet, InputError

if TYPE_CHECKING:
    from k8sdds.report.export import Findings


def _format(*names: str) -> Any:
    # Typer would show the choices as a metavar, which does not fit 80 columns.
    help_text = f"Format of the result: table (text for people), {', '.join(names)}."
    return option(f"--format FORMAT: {help_text}", "Output")


Json = Annotated[bool, "--json: Print the result as JSON.", "Output"]


@dataclass
class Output:
    """The options that select the format of a result, and how it is printed."""

    as_json: Json = False
    form: str = "table"

    def __post_init__(self) -> None:
        if self.as_json and self.form not in ("table", "json"):
            raise InputError(f"--json and --format {self.form} exclude each other", "leave out one of them")
        if self.as_json:
            self.form = "json"

    @property
    def is_text(self) -> bool:
        """Whether the result is printed as text for people."""
        return self.form == "table"

    def print(
        self,
        data: Any,
        show: Callable[[], None] | None = None,
        rows: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Print the result of a command: `data` as JSON and YAML, `rows` (else `data`) as CSV.

        `show` prints it as text; without it, text is the rows as a table.
        """
        rows = data if rows is None else rows
        show = show or (lambda: print_table(rows))
        if self.is_text:
            show()
        elif self.form in ("markdown", "latex"):
            from k8sdds.report import markup

            print_text(markup.render(self.form, show, console()))
        elif self.form == "csv":
            if rows:
                print_text(to_csv(rows).rstrip("\n"))
        elif self.form == "yaml":
            from k8sdds.system import yaml_text

            print_text(yaml_text.dump(json.loads(to_json(data))).rstrip("\n"))
        else:
            print_text(to_json(data))

    def print_paths(self, paths: Sequence[Path]) -> None:
        """Print the paths of written files, in lines that can be copied; to stderr if a program reads stdout."""
        for path in paths:
            console(stderr=not self.is_text).print(str(path), soft_wrap=True)


@dataclass
class RowsOutput(Output):
    """Format of a result that consists of rows."""

    form: Annotated[Literal["table", "json", "yaml", "csv"], _format("json", "yaml", "csv")] = "table"


@dataclass
class TablesOutput(Output):
    """Format of a result that consists of rows, and is also printed as tables."""

    form: Annotated[
        Literal["table", "json", "yaml", "csv", "markdown", "latex"],
        _format("json", "yaml", "csv", "markdown", "latex"),
    ] = "table"


@dataclass
class ReportOutput(Output):
    """Format of a report."""

    form: Annotated[
        Literal["table", "json", "yaml", "markdown", "latex"], _format("json", "yaml", "markdown", "latex")
    ] = "table"


@dataclass
class DataOutput(Output):
    """Format of any other result."""

    form: Annotated[Literal["table", "json", "yaml"], _format("json", "yaml")] = "table"


@dataclass(frozen=True)
class Consequences:
    """The options that say what else becomes of the rows of a result."""

    output: Annotated[
        Path | None,
        "--output -o FOLDER: Also write the result as HTML, CSV and JSON to this new folder.",
        "Output",
    ] = None
    fail_if: Annotated[
        str | None,
        "--fail-if CONDITION: Exit with code 6 if a row of the result meets this condition, an expression in"
        " pandas syntax with the columns of --format csv.",
        "Output",
    ] = None

    def print(self, found: Findings, out: Output) -> None:
        """Print a result, write it to the folder of `--output`, and end with exit code 6 if `--fail-if` applies."""
        columns = found.columns
        rows = [{name: row.get(name) for name in columns} for row in found.rows]
        out.print(found.data, lambda: found.show(console()), rows)
        if self.output is not None:
            out.print_paths(found.write(self.output))
        if self.fail_if is not None:
            fail_if(found.rows, self.fail_if)


def fail_if(rows: Sequence[Mapping[str, Any]], condition: str) -> None:
    """Raise ConditionMet if a row meets the condition, a pandas `query` expression on the columns."""
    import pandas as pd

    table = pd.DataFrame(list(rows))
    columns = ", ".join(table.columns)
    remedy = f"such as: worse and change_percent < -5; columns: {columns}"
    # `@name` would access the variables of this function, and `__name` the internals of Python objects.
    if "@" in condition or "__" in condition or not condition.strip():
        raise InputError(f"--fail-if {condition!r}: not a condition on columns", remedy)
    try:
        met = table.eval(condition, engine="python")
    except Exception as error:  # the parser of pandas raises many types
        raise InputError(f"--fail-if {condition!r}: {error}", remedy) from error
    # A column of Booleans that contains nulls has the type object, so each value is checked.
    if not isinstance(met, pd.Series) or not met.dropna().map(lambda value: isinstance(value, bool)).all():
        raise InputError(f"--fail-if {condition!r}: the result is not true or false for each row", remedy)
    count = sum(value is True for value in met.astype(object))
    if count:
        raise ConditionMet(f"{count} of {len(table)} rows meet --fail-if {condition!r}")


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows, which have the same columns, as a table."""
    from k8sdds.report.table import Table

    heads = [column.replace("_", " ") for column in rows[0]] if rows else []
    Table.of(heads, [[*map(_cell, row.values())] for row in rows]).print(console())


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value)
    return "–" if value is None or value == "" else str(value)
