"""`bundle`: all the software of a cluster in one folder, for labs without internet."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.options import Json, listed
from k8sdds.cli.terminal import console, say
from k8sdds.system.errors import InputError

app = typer.Typer(help="All the software of a cluster in one folder with checksums.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(help="The bundle's folder, or a .tar of it.")]


@app.command()
def create(
    output: Annotated[Path, typer.Argument(help="The folder to make.")],
    arch: Annotated[
        str,
        typer.Option("--arch", help="Architectures, comma-separated: amd64, arm64. Default: this machine's."),
    ] = "",
    profile: Annotated[
        str | None, typer.Option("--profile", help="For the machines of a profile, by its name or file.")
    ] = None,
    suite: Annotated[
        str,
        typer.Option(
            "--suite", help="Distributions of the nodes, comma-separated: bookworm, trixie, …; or none."
        ),
    ] = "",
    sources: Annotated[
        Path | None,
        typer.Option(
            "--apt-sources", help="File with apt's sources of these packages, if not this machine's."
        ),
    ] = None,
) -> None:
    """Build a bundle from Go modules and Debian packages: about 20 minutes at first, then seconds.

    What takes long is kept in the cache: `k8sdds bundle cache`.
    """
    from k8sdds import bundle
    from k8sdds.bundle import packages
    from k8sdds.bundle.create import ARCH_HERE
    from k8sdds.bundle.profile_support import arches_of
    from k8sdds.deploy import profiles

    wanted = listed(arch)
    if profile is not None:
        wanted = arches_of(profiles.load(profile), wanted)
    suites = [] if suite == "none" else listed(suite or packages.suite_here())
    made = bundle.create(
        output,
        wanted or [ARCH_HERE],
        lambda text: console(stderr=True).print(text, highlight=False),
        suites,
        sources,
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
    for suite in opened.suites:
        console().print(f"packages of {suite}", highlight=False)
    for item in opened.items:
        size = f"{item.size_bytes / 1e6:.1f} MB"
        console().print(f"{item.arch}  {item.kind:7} {size:>9}  {item.name}", highlight=False, markup=False)


@app.command("cache")
def cache_(
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove what was not used lately, as `create` does at its end.")
    ] = False,
    empty: Annotated[
        bool, typer.Option("--empty", help="Remove all: the next bundle takes about 20 minutes again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what the cache holds, or remove it. What standing local nodes use is kept."""
    from datetime import UTC, datetime

    from k8sdds.bundle import cache
    from k8sdds.system.paths import cache_folder

    if prune and empty:
        raise InputError("--prune and --empty are not given together", "--empty removes more")
    kept: list[str] = []
    if prune or empty:
        freed, kept = cache.empty() if empty else (cache.prune(), [])
        if not as_json:
            console().print(f"freed {freed / 1e6:.1f} MB", highlight=False)
    found = cache.usage()
    if as_json:
        say(json.dumps([asdict(one) for one in found], indent=1))
        return
    for one in found:
        used = datetime.fromtimestamp(one.used_s, UTC).strftime("%Y-%m-%d %H:%M") if one.things else ""
        line = f"{one.kind:10} {one.things:5} {one.size_bytes / 1e6:10.1f} MB  {used}"
        console().print(line.rstrip(), highlight=False, markup=False)
    total = sum(one.size_bytes for one in found)
    console().print(f"{cache_folder()}: {total / 1e6:.1f} MB", highlight=False, soft_wrap=True)
    if kept:
        console().print(f"kept, for local nodes use it: {', '.join(kept)}", highlight=False)
