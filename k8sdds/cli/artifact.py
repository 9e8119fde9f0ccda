"""`artifact`: pack run folders for others, and check what others packed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say
from k8sdds.system.errors import InputError

app = typer.Typer(
    no_args_is_help=True, help="Pack run folders for others to check, and check what was packed."
)

SHOWN = 50
"""Findings that are told one by one; `--json` has them all."""


@app.command("pack")
def pack(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The ZIP file to make.")],
    title: Annotated[str | None, typer.Option("--title", help="What this artifact is called.")] = None,
    license_: Annotated[
        str | None,
        typer.Option("--license", metavar="SPDX-ID", help="Licence of the data, such as CC-BY-4.0."),
    ] = None,
    author: Annotated[list[str] | None, typer.Option("--author", help="An author (repeatable).")] = None,
    claims: Annotated[
        str, typer.Option("--claims", help="Claims to judge the runs by: a name, or a YAML file.")
    ] = "k8sdds-paper",
    as_json: Json = False,
) -> None:
    """Pack run folders into one file that a stranger can check, analyse and measure again.

    Raw data, resolved experiments, versions, expected tables, checksums, RO-Crate metadata and an evaluator's
    README. The same content gives the same bytes. Keys and tokens are never packed.
    """
    from k8sdds import artifact

    description = artifact.Description(licence=license_, authors=tuple(author or ()), claims=claims)
    if title:
        description = dataclasses.replace(description, title=title)
    packed = artifact.pack(runs, output, description)
    if as_json:
        say(json.dumps({**dataclasses.asdict(packed), "path": str(packed.path)}, indent=1))
        return
    console().print(
        f"{packed.path}: {packed.files} files, {packed.size_bytes / 1e6:.1f} MB",
        highlight=False,
        soft_wrap=True,
    )
    console().print(f"content id: {packed.content_id}", highlight=False, soft_wrap=True)
    for path, why in packed.left_out[:SHOWN]:
        console().print(f"left out: {path}: {why}", highlight=False, markup=False, soft_wrap=True)
    if len(packed.left_out) > SHOWN:
        console().print(f"… and {len(packed.left_out) - SHOWN} more; its README.md names all")
    if license_ is None:
        console().print("No licence is stated: nobody may use it yet. See --license.")


@app.command("verify")
def verify(
    file: Annotated[
        Path, typer.Argument(help="An artifact: the ZIP file, or the folder it was unpacked to.")
    ],
    expect: Annotated[
        str | None, typer.Option("--expect", metavar="ID", help="The content id that its authors published.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which files of an artifact are changed, missing or added."""
    from k8sdds import artifact

    found = artifact.verify(file, expect)
    if as_json:
        say(json.dumps(dataclasses.asdict(found), indent=1))
    if not found.findings:
        if not as_json:
            console().print(
                f"{file} is whole: {found.files} files, content id {found.content_id}",
                highlight=False, soft_wrap=True,
            )  # fmt: skip
        return
    lines = [str(finding) for finding in found.findings[:SHOWN]]
    if len(found.findings) > SHOWN:
        lines.append(f"… and {len(found.findings) - SHOWN} more; all: --json")
    raise InputError("\n".join([f"{file} is not whole:", *lines]), "get it again from where it was published")
