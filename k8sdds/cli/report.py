"""`report`: what a run folder says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say


def report(
    folder: Annotated[Path, typer.Argument(help="A run folder, such as runs/TIME-EXPERIMENT.")],
    as_json: Json = False,
) -> None:
    """Report a run folder: the answer, tables, figures and one HTML file. Needs no measurement."""
    from k8sdds import report as room
    from k8sdds.results.run_folder import RunFolder

    run = RunFolder.open(folder)
    if as_json:
        say(json.dumps(room.summarize(run), indent=1))
        return
    room.write_report(run, console())
