"""`k8sdds report`: write the report of a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.output import TABLE, DataFormat, Json, choose, print_result
from k8sdds.cli.terminal import console


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/TIME-EXPERIMENT.")
    ],
    as_json: Json = False,
    form: DataFormat = "table",
) -> None:
    """Write the report of a run folder: summary, tables, figures and one HTML file.

    With --format json or yaml, prints the report's content instead, and writes nothing.
    """
    from k8sdds import report as reports
    from k8sdds.results.run_folder import RunFolder

    form = choose(form, as_json)
    run = RunFolder.open(folder)
    if form == TABLE:
        reports.write_report(run, console())
    else:
        print_result(form, reports.summarize(run))
