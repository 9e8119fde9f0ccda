"""`k8sdds setup`: prepare this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import DryRun, Yes, completing
from k8sdds.cli.steps import Steps
from k8sdds.cli.terminal import confirm, console, print_note, print_step
from k8sdds.system.errors import InputError

app = Commands()


@app.add("k8sdds setup", "k8sdds setup --for deploy-arm64", "k8sdds setup --dry-run")
def setup(
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="PURPOSE",
            help="lab (default): measure in the lab. lab-cilium: also the networks cilium-*. deploy: create clusters."
            " deploy-arm64, deploy-amd64: create clusters of such machines, with a cross compiler if necessary. tests:"
            " run the tests. (Repeatable.)",
            autocompletion=completing("setup", "PURPOSES"),
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Prepare this machine: install Debian packages, load kernel modules, build the native programs.

    Shows what is missing and asks before it changes anything. Uses sudo unless you are root.
    """
    from k8sdds.setup import PURPOSES, apply, plan

    names = names or ["lab"]
    for name in names:
        if name not in PURPOSES:
            raise InputError(
                f"--for {name}: there is no such purpose",
                f"use one of: {', '.join(PURPOSES)}",
            )
    missing = plan([PURPOSES[name] for name in names])
    for line in missing.describe():
        console(stderr=not dry_run).print(line, soft_wrap=True)
    if missing.describe():
        if dry_run:
            return
        confirm("Continue?", yes)
        with Steps() as steps:
            apply(missing, print_note, steps.detail)
    print_step(f"Ready. Next: {PURPOSES[names[-1]].next}")
