"""`bundle`: all the software of a cluster in one folder, for labs without internet."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say
from k8sdds.errors import InputError

app = typer.Typer(help="All the software of a cluster in one folder with checksums.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(help="The bundle's folder, or a .tar of it.")]


@app.command()
def create(
    output: Annotated[Path, typer.Argument(help="The folder to make.")],
    arch: Annotated[str, typer.Option("--arch", help="Architectures, comma-separated: amd64, arm64.")] = "",
) -> None:
    """Build a bundle from Go modules and Debian packages: about 20 minutes at first, then seconds."""
    from k8sdds import bundle
    from k8sdds.bundle.create import ARCH_HERE

    made = bundle.create(
        output,
        (arch or ARCH_HERE).split(","),
        lambda text: console(stderr=True).print(text, highlight=False),
    )
    console().print(f"wrote {made.folder}: {len(made.items)} items", highlight=False)


@app.command()
def verify(folder: Folder) -> None:
    """Read all of a bundle and compare it with its checksums."""
    from k8sdds import bundle

    opened = bundle.Bundle.open(folder)
    problems = opened.verify()
    if problems:
        raise InputError("\n".join(problem.what for problem in problems), problems[0].remedy)
    console().print(f"{folder}: {len(opened.items)} items as they should be", highlight=False)


@app.command("list")
def list_(folder: Folder, as_json: Json = False) -> None:
    """List what is in a bundle."""
    from k8sdds import bundle

    opened = bundle.Bundle.open(folder)
    if as_json:
        say(json.dumps([asdict(item) for item in opened.items], indent=1))
        return
    console().print(f"Kubernetes {opened.kubernetes}, {opened.toolchain}", highlight=False)
    for item in opened.items:
        size = f"{item.size_bytes / 1e6:.1f} MB"
        console().print(f"{item.arch}  {item.kind:7} {size:>9}  {item.name}", highlight=False, markup=False)
