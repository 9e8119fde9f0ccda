"""`import`: published logs of others as a run folder."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say

if TYPE_CHECKING:
    from k8sdds.importing import Import

SHOWN = 8
"""Files or copies named one by one; all of them stand in import.json."""


def import_(
    path: Annotated[Path, typer.Argument(help="A folder with logs of RTI PerfTest somewhere below it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Run folder to make.")],
    layout: Annotated[
        str,
        typer.Option("--layout", help="What folder names mean: k8sdds (the paper's artifact), or auto."),
    ] = "auto",
    maps: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="GLOB:KEY=VALUE,…",
            help="What you know of some folders: 'vx*:network=flannel-vxlan,repetition=2' (repeatable).",
        ),
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="GLOB", help="Leave these files or folders out (repeatable)."),
    ] = None,
    baseline: Annotated[
        str, typer.Option("--baseline", help="Label of the network that overheads relate to.")
    ] = "host",
    as_json: Json = False,
) -> None:
    """Bring in published logs of RTI PerfTest as a run folder, account for every file, print its tables."""
    from k8sdds import importing

    done = importing.import_folder(
        path, output, layout, maps or (), skip or (), baseline, command=["k8sdds", *sys.argv[1:]]
    )
    if as_json:
        say(json.dumps({"run": str(output), "copies": done.copies, **done.account}, indent=1))
        return
    _show(done)
    _tables(done)
    console().print(f"Next: k8sdds report {output}", soft_wrap=True, highlight=False)


def _show(done: Import) -> None:
    from k8sdds.report import formats

    account = done.account
    kinds = {"log": "log", "metrics": "kubectl top table", "note": "note"}
    read = ", ".join(
        formats.count(account["by_kind"][kind], word)
        for kind, word in kinds.items()
        if kind in account["by_kind"]
    )
    _line(f"{formats.count(account['files'], 'file')} read (layout {done.layout}): {read}")
    _line(f"{formats.count(account['trials'], 'trial')}, {account['valid']} valid")
    for word, n in sorted(account["invalid"].items(), key=lambda item: -item[1]):
        reasons = [str(trial.record["reason"]) for trial in done.trials if not trial.record["valid"]]
        details = {detail.strip() for kind, _, detail in (r.partition(":") for r in reasons) if kind == word}
        such = "such as " if len(details) > 1 else ""
        _line(f"{n} invalid, {word}: {such}{sorted(details)[0]}", "  ")
    if done.copies:
        many = "repetitions are copies" if len(done.copies) > 1 else "repetition is a copy"
        _line(f"{len(done.copies)} {many} of another run and count once:")
        for sentence in done.copies[:SHOWN]:
            _line(sentence, "  ")
        if len(done.copies) > SHOWN:
            _line(f"and {len(done.copies) - SHOWN} more, all named in import.json", "  ")
    strange = [source for source in done.sources if source.kind in ("other", "unreadable")]
    if strange:
        _line(f"{formats.count(len(strange), 'file')} not understood:")
        for source in strange[:SHOWN]:
            _line(f"{source.path}: {source.why}", "  ")
        if len(strange) > SHOWN:
            _line(f"and {len(strange) - SHOWN} more, all named in import.json", "  ")
    warned = [trial for trial in done.trials if trial.record["warnings"]]
    if warned:
        such = warned[0].record["warnings"][0]
        _line(f"{formats.count(len(warned), 'trial')} came with a warning, such as: {such}")


def _tables(done: Import) -> None:
    """The overheads of the first run, as a paper prints them, and how many runs there are."""
    from rich import box
    from rich.table import Table

    from k8sdds.report import content, runs

    read = content.read(done.run)
    tables = runs.tables(read)
    first = [table for table in tables if table.repetition == tables[0].repetition]
    shown = {table.quantity: table for table in reversed(first)}
    for table in sorted(shown.values(), key=lambda table: table.quantity, reverse=True):
        head, *rows = runs.text(table)
        drawn = Table(title=f"{table.title} ({table.setting})", title_justify="left", box=box.SIMPLE_HEAD)
        for position, words in enumerate(head):
            drawn.add_column(words, justify="right" if position else "left", no_wrap=True)
        for row in rows:
            drawn.add_row(*row)
        console().print(drawn)
    if tables:
        repeated = sum(row["n"] > 1 for _, row in read.overheads.iterrows())
        _line(
            f"One run carries no interval. {repeated} of {len(read.overheads)} overheads were measured in"
            " more than one run and have a 95 % interval in the report."
            if repeated
            else "One run carries no interval: nothing here can be told from chance."
        )


def _line(text: str, indent: str = "") -> None:
    out = console()
    wrapped = textwrap.fill(
        text, max(40, min(out.width, 110)), initial_indent=indent, subsequent_indent=indent + "  ",
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip
    out.print(wrapped, soft_wrap=True, highlight=False, markup=False)
