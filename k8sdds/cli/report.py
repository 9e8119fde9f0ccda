"""`k8sdds report`: write the report of a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, print_text


def report(
    folder: Annotated[Path, typer.Argument(help="A run folder, such as runs/TIME-EXPERIMENT.")],
    as_json: Json = False,
) -> None:
    """Write the report of a run folder: summary, tables, figures and one HTML file."""
    from k8sdds import report as reports
    from k8sdds.results.run_folder import RunFolder

    run = RunFolder.open(folder)
    if as_json:
        print_text(json.dumps(reports.summarize(run), indent=1))
        return
    reports.write_report(run, console())
