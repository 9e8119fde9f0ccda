"""`k8sdds destroy`: remove a cluster from its machines."""

from __future__ import annotations

from typing import Annotated

import typer

from k8sdds.cli.options import AcceptKeys, Concurrency, ProfileName, Yes, load_profile
from k8sdds.cli.terminal import confirm, console
from k8sdds.testbeds import selection


def destroy(
    profile: ProfileName,
    yes: Yes = False,
    purge: Annotated[
        bool,
        typer.Option(
            "--purge", help="Also remove the packages that deploy installed and the logs on this machine."
        ),
    ] = False,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
) -> None:
    """Remove a cluster and restore its machines. Local nodes are deleted."""
    from k8sdds.cli.deploy_progress import Progress
    from k8sdds.deploy import deploy as flow
    from k8sdds.deploy import destroy as destroying
    from k8sdds.deploy import local_nodes, profiles, record
    from k8sdds.system.ssh import Connections

    loaded = load_profile(profile)
    if loaded.provider == "local":
        names = list(local_nodes.existing(loaded))
        if not names and record.read(loaded.name) is None:
            console().print("Nothing to destroy.", highlight=False)
            return
        confirm(f"Delete the local nodes {', '.join(names)} and all their data?", yes)
        with record.locked(loaded.name):
            local_nodes.delete(loaded)
        record.delete(loaded.name)
        selection.deselect(loaded.name)
        console().print(f"removed {', '.join(names)}" if names else "removed", highlight=False)
        return
    with (
        record.locked(loaded.name),
        Connections(profiles.targets(loaded), accept_new_host_keys, concurrency) as connections,
    ):
        survey = flow.survey(loaded, connections)
        actions = destroying.plan(loaded, survey, purge)
        if actions:
            names = list(dict.fromkeys(action.node for action in actions))
            confirm(f"Destroy cluster {loaded.name} on these machines: {', '.join(names)}?", yes)
            with Progress(actions) as progress:
                destroying.apply_plan(loaded, survey, actions, connections, progress)
    record.delete(loaded.name, keep_logs=not purge)
    selection.deselect(loaded.name)
    console().print("removed" if actions else "Nothing to destroy.", highlight=False)
