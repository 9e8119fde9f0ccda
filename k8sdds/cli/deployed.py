"""`k8sdds kubeconfig`, `k8sdds logs` and `k8sdds destroy`: use, inspect and remove a deployed cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import DryRun, Force, ProfileName, SshOptions, Yes, load_profile
from k8sdds.cli.progress import ActionProgress
from k8sdds.cli.terminal import confirm, print_line, print_note, print_text
from k8sdds.testbeds import selection

app = Commands()


@app.add("k8sdds kubeconfig one-machine --path")
def kubeconfig(
    profile: ProfileName,
    path: Annotated[bool, option("--path", "Print the path of the file instead of its content.")] = False,
) -> None:
    """Print the admin kubeconfig of a deployed cluster.

    If its API server is reachable only over SSH, also prints how to forward the port.
    """
    from k8sdds.deploy import api_access

    file, instructions = api_access.kubeconfig_and_tunnel(load_profile(profile).name)
    print_text(str(file) if path else file.read_text().rstrip("\n"))
    if instructions:
        print_note(instructions)


@app.add("k8sdds logs one-machine --output logs.tar.gz")
def logs(
    profile: ProfileName,
    output: Annotated[
        Path | None,
        option("--output -o FILE", "File to write. Default: NAME-logs-TIME.tar.gz in this directory."),
    ] = None,
    *,
    ssh: SshOptions,
) -> None:
    """Collect logs and diagnostics from this machine and from all machines of a cluster.

    The archive contains no keys, tokens or Secrets.
    """
    from k8sdds.deploy import logs as log_archive
    from k8sdds.deploy import profiles

    loaded = load_profile(profile)
    with ssh.connect(profiles.targets(loaded)) as connections:
        written, unreachable = log_archive.collect(loaded, connections, output)
    for error in unreachable:
        print_note(f"left out: {error}")
    print_line(f"wrote {written}")


@app.add("k8sdds destroy one-machine", "k8sdds destroy ./my-lab.yaml --purge")
def destroy(
    profile: ProfileName,
    yes: Yes = False,
    force: Force = False,
    purge: Annotated[
        bool,
        option("--purge", "Also remove the packages that deploy installed and the logs on this machine."),
    ] = False,
    *,
    ssh: SshOptions,
    dry_run: DryRun = False,
) -> None:
    """Remove a cluster and restore its machines. Local nodes are deleted."""
    from k8sdds.deploy import destroy as flow

    loaded = load_profile(profile)
    options = flow.Options(purge, ssh.accept_new_host_keys, ssh.concurrency, dry_run, force)
    destroyed = flow.destroy(
        loaded, options, lambda question: confirm(question, yes), ActionProgress, print_note
    )
    if dry_run and destroyed.changed:
        for action in destroyed.actions:
            print_line(f"would change {action.node}: {action.title}")
        for node in destroyed.local_nodes:
            print_line(f"would delete {node} and all its data")
        return
    if not dry_run:
        selection.deselect(loaded.name)
    if not destroyed.changed:
        print_line("Nothing to destroy.")
    elif destroyed.local_nodes:
        print_line(f"removed {', '.join(destroyed.local_nodes)}")
    else:
        print_line("removed")
