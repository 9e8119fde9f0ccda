"""`claims` and `compare`: what run folders say together. Neither measures anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

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
    from k8sdds.system.errors import InputError

    loaded = room.load(file)
    for claim_id in only or ():
        room.find(loaded, claim_id)
    if list_:
        for claim in loaded.claims:
            say(f"{claim.id}\n  {claim.claim}\n  {claim.paper}; {claim.command or claim.because}")
        return
    if not runs:
        raise InputError("which run folders?", "such as: k8sdds claims runs/*; the claims: --list")
    from k8sdds.analysis import fail_condition
    from k8sdds.claims.judge import judge
    from k8sdds.report import claims as shown
    from k8sdds.report import pages
    from k8sdds.results.run_folder import RunFolder

    judged = judge(loaded, [RunFolder.open(run) for run in runs], only or ())
    if as_json:
        say(pages.text(shown.data(loaded, judged)))
    else:
        shown.show(loaded, judged, console())
    if output is not None:
        for path in shown.write(loaded, judged, output):
            console(stderr=as_json).print(str(path), highlight=False, soft_wrap=True)
    if fail_if is not None:
        fail_condition.fail_if(shown.rows(judged), fail_if)


def compare(
    a: Annotated[str, typer.Argument(help="A run folder, or one network of it: FOLDER@LABEL.", metavar="A")],
    b: Annotated[str, typer.Argument(help="What is compared with it, likewise.", metavar="B")],
    overheads: Annotated[
        bool, typer.Option("--overheads", help="Compare overheads against each side's baseline, not levels.")
    ] = False,
    quantity: Annotated[
        list[str] | None,
        typer.Option("--quantity", metavar="NAME", help="Compare this, such as latency_p99_us (repeatable)."),
    ] = None,
    output: Output = None,
    fail_if: FailIf = None,
    as_json: Json = False,
) -> None:
    """Compare two run folders, or two networks of one, cell by cell: ratio, interval, corrected test."""
    from k8sdds.analysis import comparison, fail_condition
    from k8sdds.analysis.overhead import QUANTITIES
    from k8sdds.report import comparison as shown
    from k8sdds.report import pages
    from k8sdds.system.errors import InputError
    from k8sdds.system.yaml_text import nearest

    for name in quantity or ():
        if name not in QUANTITIES or not QUANTITIES[name].log:
            known = [one.name for one in QUANTITIES.values() if one.log]
            raise InputError(f"--quantity {name}: cannot be compared{nearest(name, known)}")
    sides = _side(a), _side(b)
    if overheads and any(side.label for side in sides):
        raise InputError("--overheads compares folders, not networks of them", "leave @LABEL out")
    found = comparison.compare(*sides, quantity or (), overheads)
    if as_json:
        say(pages.text(shown.data(*sides, found, overheads)))
    else:
        shown.show(*sides, found, overheads, console())
    if output is not None:
        for path in shown.write(*sides, found, overheads, output):
            console(stderr=as_json).print(str(path), highlight=False, soft_wrap=True)
    if fail_if is not None:
        fail_condition.fail_if(found.rows, fail_if)


def _side(text: str) -> Any:
    """`FOLDER` or `FOLDER@LABEL` as a side of a comparison."""
    from k8sdds.analysis import overhead
    from k8sdds.analysis.comparison import Side
    from k8sdds.analysis.conditions import UNIT
    from k8sdds.results import tidy
    from k8sdds.results.run_folder import RunFolder
    from k8sdds.system.errors import InputError
    from k8sdds.system.yaml_text import nearest

    folder, at, label = text.rpartition("@")
    if not at or Path(text).is_dir():
        folder, label = text, ""
    run = RunFolder.open(folder)
    rows = overhead.plain_rows(tidy.best(tidy.frame(run)))
    if not rows:
        raise InputError(f"{folder} has no valid trial", f"see: k8sdds report {folder}")
    labels = sorted({row[UNIT] for row in rows})
    if label:
        rows = [row for row in rows if row[UNIT] == label]
        if not rows:
            raise InputError(f"{folder} has no network {label!r}{nearest(label, labels)}")
    baseline = run.campaign.get("baseline") or ("host" if "host" in labels else None)
    return Side(text, str(run.path.resolve()), rows, baseline, label or None)
