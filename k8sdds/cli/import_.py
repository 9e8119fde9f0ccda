"""`k8sdds import`: import published logs or tables as a run folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import DryRun
from k8sdds.cli.output import Json
from k8sdds.cli.terminal import console, print_step, print_text
from k8sdds.report.export import to_json
from k8sdds.report.text import paragraph
from k8sdds.results.run_folder import RUNS
from k8sdds.system.files import require_new

if TYPE_CHECKING:
    from k8sdds.importing import Import

app = Commands()

MAX_SHOWN = 8
"""Largest number of files or copies that the text output lists; import.json lists all."""

Folder = Annotated[
    Path, "FOLDER: A folder with RTI PerfTest logs at any depth, or MininetResults.csv of OSRF."
]
Maps = Annotated[
    list[str] | None,
    "--map GLOB:KEY=VALUE,…: Settings of some folders (repeatable), such as"
    " 'vx*:network=flannel-vxlan,repetition=2'.",
]


@app.add(
    "k8sdds import published-logs --output runs/paper",
    "k8sdds import logs -o runs/other --map 'vx*:network=flannel-vxlan'",
    "k8sdds import TSC-RMW-Reports/galactic/MininetResults.csv -o runs/osrf",
)
def import_(
    path: Folder,
    output: Annotated[
        Path | None, "--output -o FOLDER: Run folder to create. Default: runs/TIME-FOLDER."
    ] = None,
    layout: Annotated[
        str, "--layout LAYOUT: Meaning of the folder names: k8sdds (the paper's artifact), or auto."
    ] = "auto",
    maps: Maps = None,
    skip: Annotated[list[str] | None, "--skip GLOB: Leave out these files or folders (repeatable)."] = None,
    baseline: Annotated[str, "--baseline NETWORK: Label of the baseline network for overheads."] = "host",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Import published RTI PerfTest logs, or OSRF's table, as a run folder and report how each file was used."""
    from k8sdds import importing
    from k8sdds.campaign.start import campaign_name

    output = output or RUNS / campaign_name(path.resolve().name)
    if dry_run:
        require_new(output)
    with TemporaryDirectory() as scratch:
        target = Path(scratch, output.name) if dry_run else output
        imported = importing.import_folder(
            path, target, layout, maps or (), skip or (), baseline, command=["k8sdds", *sys.argv[1:]]
        )
        if as_json:
            print_text(to_json({"run": str(output), "copies": imported.copies, **imported.account}))
            return
        _print_account(imported)
        _print_tables(imported)
    print_step(f"would write {output}" if dry_run else f"Next: k8sdds report {output}")


def _print_account(imported: Import) -> None:
    """Print what became of the files: read, invalid, duplicate or not understood."""
    from k8sdds.report import formats

    account = imported.account
    kinds = {"log": "log", "metrics": "kubectl top table", "note": "note", "table": "table of OSRF"}
    read = ", ".join(
        formats.count(account["by_kind"][kind], noun)
        for kind, noun in kinds.items()
        if kind in account["by_kind"]
    )
    paragraph(console(), f"{formats.count(account['files'], 'file')} read (layout {imported.layout}): {read}")
    paragraph(console(), f"{formats.count(account['trials'], 'trial')}, {account['valid']} valid")
    for code, n in sorted(account["invalid"].items(), key=lambda item: -item[1]):
        reasons = [str(trial.record.reason) for trial in imported.trials if not trial.record.valid]
        details = {detail.strip() for kind, _, detail in (r.partition(":") for r in reasons) if kind == code}
        example = "for example, " if len(details) > 1 else ""
        paragraph(console(), f"{n} invalid, {code}: {example}{sorted(details)[0]}", "  ")
    subject = "repetitions are copies" if len(imported.copies) > 1 else "repetition is a copy"
    _print_some(f"{len(imported.copies)} {subject} of another run and count once:", imported.copies)
    unknown = [
        f"{each.path}: {each.why}" for each in imported.sources if each.kind in ("other", "unreadable")
    ]
    _print_some(f"{formats.count(len(unknown), 'file')} not recognized:", unknown)
    with_warnings = [trial for trial in imported.trials if trial.record.warnings]
    if with_warnings:
        example = (with_warnings[0].record.warnings or [""])[0]
        paragraph(
            console(), f"{formats.count(len(with_warnings), 'trial')} with a warning, for example: {example}"
        )


def _print_some(title: str, lines: Sequence[str]) -> None:
    """Print a title and the first of these lines; nothing if there are none."""
    if lines:
        paragraph(console(), title)
    more = f"and {len(lines) - MAX_SHOWN} more; import.json lists all"
    for line in [*lines[:MAX_SHOWN], *([more] if len(lines) > MAX_SHOWN else [])]:
        paragraph(console(), line, "  ")


def _print_tables(imported: Import) -> None:
    """Print the overheads of the first run, as a paper prints them, and the number of repeated runs."""
    from k8sdds.report import content, tables

    read = content.read(imported.run)
    found = tables.single_runs(read)
    per_quantity = {one.quantity: one for one in reversed(found) if one.repetition == found[0].repetition}
    for one in sorted(per_quantity.values(), key=lambda one: one.quantity, reverse=True):
        paragraph(console(), f"\n{one.table.caption}")
        one.table.print(console())
    if found:
        repeated = sum(row["n"] > 1 for row in read.overheads)
        paragraph(
            console(),
            f"A single run has no confidence interval. {repeated} of {len(read.overheads)} overheads were"
            " measured in more than one run; the report shows their 95 % intervals."
            if repeated
            else "A single run has no confidence interval: any difference here can be chance.",
        )
