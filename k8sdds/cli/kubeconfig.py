"""`k8sdds kubeconfig`: print the admin kubeconfig of a deployed cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import ProfileName, load_profile
from k8sdds.cli.terminal import print_note, print_text

app = Commands()


@app.add("k8sdds kubeconfig one-machine --path")
def kubeconfig(
    profile: ProfileName,
    path: Annotated[
        bool, typer.Option("--path", help="Print the path of the file instead of its content.")
    ] = False,
) -> None:
    """Print the admin kubeconfig of a deployed cluster.

    If its API server is reachable only over SSH, also prints how to forward the port.
    """
    from k8sdds.deploy import api_access

    file, instructions = api_access.kubeconfig_and_tunnel(load_profile(profile).name)
    print_text(str(file) if path else file.read_text().rstrip("\n"))
    if instructions:
        print_note(instructions)
