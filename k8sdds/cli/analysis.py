"""`claims` and `compare`: what run folders say together. Neither measures anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say

Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Folder for the same as HTML, CSV and JSON; made.")
]
FailIf = Annotated[
    str | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="End with exit code 6 where a row meets it; docs/analysis.md",
    ),
]


def claims(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="Run folders, imported ones included.", show_default=False)
    ] = None,
    file: Annotated[str, typer.Option("--claims", help="Claims by name, or a YAML file.")] = "k8sdds-paper",
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="Only this claim (repeatable).")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the claims and what measures them.")] = False,
    output: Output = None,
    fail_if: FailIf = None,
    as_json: Json = False,
) -> None:
    """Judge claims by run folders: supported or contradicted, and why, each by a named test."""
    from k8sdds import claims as room
    from k8sdds.errors import InputError

    loaded = room.load(file)
    for claim_id in only or ():
        room.find(loaded, claim_id)
    if list_:
        for claim in loaded.claims:
            say(f"{claim.id}\n  {claim.claim}\n  {claim.paper}; {claim.command or claim.because}")
        return
    if not runs:
        raise InputError("which run folders?", "such as: k8sdds claims runs/*; the claims: --list")
    from k8sdds.analysis import failing
    from k8sdds.claims.judge import judge
    from k8sdds.report import claims as shown
    from k8sdds.report import pages
    from k8sdds.store import RunFolder

    judged = judge(loaded, [RunFolder.open(run) for run in runs], only or ())
    if as_json:
        say(pages.text(shown.data(loaded, judged)))
    else:
        shown.show(loaded, judged, console())
    if output is not None:
        for path in shown.write(loaded, judged, output):
            console(stderr=as_json).print(str(path), highlight=False, soft_wrap=True)
    if fail_if is not None:
        failing.fail_if(shown.rows(judged), fail_if)
