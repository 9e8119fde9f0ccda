"""`k8sdds logs`: collect diagnostics of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import ProfileName, SshOptions, load_profile
from k8sdds.cli.terminal import console, print_note

app = Commands()


@app.add("k8sdds logs one-machine --output logs.tar.gz")
def logs(
    profile: ProfileName,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write. Default: NAME-logs-TIME.tar.gz in this directory.",
        ),
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
    console().print(f"wrote {written}", soft_wrap=True)
