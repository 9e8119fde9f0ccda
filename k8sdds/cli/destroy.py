"""`k8sdds destroy`: remove a cluster from its machines."""

from __future__ import annotations

from typing import Annotated

import typer

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import DryRun, Force, ProfileName, SshOptions, Yes, load_profile
from k8sdds.cli.terminal import confirm, console, print_note
from k8sdds.testbeds import selection

app = Commands()


@app.add("k8sdds destroy one-machine", "k8sdds destroy ./my-lab.yaml --purge")
def destroy(
    profile: ProfileName,
    yes: Yes = False,
    force: Force = False,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="Also remove the packages that deploy installed and the logs on this machine."
        ),
    ] = False,
    *,
    ssh: SshOptions,
    dry_run: DryRun = False,
) -> None:
    """Remove a cluster and restore its machines. Local nodes are deleted."""
    from k8sdds.cli.steps import Progress
    from k8sdds.deploy import destroy as flow

    loaded = load_profile(profile)
    options = flow.Options(purge, ssh.accept_new_host_keys, ssh.concurrency, dry_run, force)
    destroyed = flow.destroy(loaded, options, lambda question: confirm(question, yes), Progress, print_note)
    if dry_run and destroyed.changed:
        for action in destroyed.actions:
            console().print(f"would change {action.node}: {action.title}")
        for node in destroyed.local_nodes:
            console().print(f"would delete {node} and all its data")
        return
    if not dry_run:
        selection.deselect(loaded.name)
    if not destroyed.changed:
        console().print("Nothing to destroy.")
    elif destroyed.local_nodes:
        console().print(f"removed {', '.join(destroyed.local_nodes)}")
    else:
        console().print("removed")
