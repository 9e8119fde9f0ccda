"""`k8sdds init`: write an experiment, an application or a profile to start from."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.help import MACHINES, OUTPUT, examples
from k8sdds.cli.options import (
    AcceptKeys,
    Concurrency,
    complete_applications,
    complete_experiments,
    complete_profiles,
)
from k8sdds.cli.terminal import print_note, print_text
from k8sdds.system.errors import InputError

app = typer.Typer(
    help="Write a commented experiment, application or profile to start from.", no_args_is_help=True
)

STDOUT = "-"
STATUS = "k8sdds status {}"
"""The command that follows a profile."""
_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="File to write; -: stdout. Default: NAME.yaml.",
        rich_help_panel=OUTPUT,
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Overwrite the file if it exists.", rich_help_panel=OUTPUT)
]


@app.command(
    epilog=examples(
        "k8sdds init experiment camera", "k8sdds init experiment camera --like quickstart -o camera.yaml"
    )
)
def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the experiment.")] = "my-experiment",
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="EXPERIMENT",
            help="Copy this experiment, with its comments. Default: a template with every key.",
            autocompletion=complete_experiments,
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Write an experiment that runs unchanged, with a comment for every key."""
    from k8sdds.campaign import new_experiment

    path = _target(name, output, force)
    text = new_experiment.template(name) if like is None else new_experiment.copy(like, name)
    _write(path, text, "k8sdds run {}")


@app.command(
    epilog=examples(
        "k8sdds init application my-robot", "k8sdds init application my-robot --like teleoperation"
    )
)
def application(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the application.")] = "my-application",
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="APPLICATION",
            help="Copy this application, with its comments. Default: a template with every key.",
            autocompletion=complete_applications,
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Write an application: what it sends and what it requires, with a comment for every key."""
    from k8sdds.campaign import applications, new_experiment

    path = _target(name, output, force)
    text = new_experiment.application(name) if like is None else applications.APPLICATIONS.copy(like, name)
    _write(path, text, "k8sdds recommend {} --dry-run")


@app.command(
    epilog=examples(
        "k8sdds init profile lab --node pi@192.0.2.10 --node pi@192.0.2.11",
        "k8sdds init profile lab --like edge-lab",
    )
)
def profile(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the profile and of its cluster.")
    ] = "my-lab",
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            metavar="[USER@]ADDRESS[:PORT]",
            help="A machine of the cluster (repeatable).",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    look: Annotated[
        bool,
        typer.Option(
            "--look/--no-look",
            help="Read the machines over SSH and fill in what they are.",
            rich_help_panel=MACHINES,
        ),
    ] = True,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", help="Private key file for SSH.", rich_help_panel=MACHINES),
    ] = None,
    ssh_config: Annotated[
        Path | None,
        typer.Option(
            "--ssh-config",
            metavar="FILE",
            help="ssh_config file. Default: your own.",
            rich_help_panel=MACHINES,
        ),
    ] = None,
    accept_new_host_keys: AcceptKeys = False,
    concurrency: Concurrency = 20,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="PROFILE",
            help="Copy this profile, with its comments, instead of describing machines.",
            autocompletion=complete_profiles,
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Write a profile of your machines, with a comment for every key. Makes no changes on them."""
    from k8sdds.deploy import new_profile, profiles

    path = _target(name, output, force)
    if like is not None and node:
        raise InputError("--like and --node exclude each other", "leave out one of them")
    if like is None and not node:
        raise InputError(
            "name the machines of the profile, or a profile to copy",
            "for example: --node pi@192.0.2.10 --node pi@192.0.2.11; or: --like edge-lab",
        )
    if like is not None:
        text = profiles.PROFILES.copy(like, name)
        is_example = any(node.is_example for node in profiles.parse(text, like).nodes)
        _write(path, text, "replace the addresses, then run: k8sdds status {}" if is_example else STATUS)
        return
    machines = new_profile.logins(node or ())
    for file, option in ((key, "--key"), (ssh_config, "--ssh-config")):
        if file is not None and not file.expanduser().is_file():
            raise InputError(f"{option}: the file {file} does not exist", "correct the path")
    paths = [file.expanduser().absolute() if file else None for file in (key, ssh_config)]
    found = new_profile.gather(machines, *paths, accept_new_host_keys, concurrency) if look else {}
    _write(path, new_profile.text(name, machines, found, *paths), STATUS)


def _target(name: str, output: str | None, force: bool) -> Path | None:
    """Return the file to write, or None for stdout, before anything else happens.

    Raises:
        InputError: The name is not valid, or the file cannot be written.
    """
    if not re.fullmatch(_NAME, name):
        raise InputError(f"{name!r} is not a valid name", "use lowercase letters, digits and hyphens")
    if output == STDOUT:
        return None
    path = Path(output or f"{name}.yaml")
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise InputError(f"{path} {what}", "choose another file: -o FILE")
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"{path} is not a YAML file", f"name it {path.name}.yaml")
    if path.exists() and not force:
        raise InputError(f"{path} exists", "choose another file (-o FILE), or overwrite it: --force")
    return path


def _write(path: Path | None, text: str, next_step: str) -> None:
    """Write a file and print the next step, in which `{}` is the path; or print the text."""
    from k8sdds.system.faults import explained
    from k8sdds.system.files import write_atomically

    if path is None:
        print_text(text.rstrip("\n"))
        return
    with explained(f"cannot write {path}", "choose another file: -o FILE"):
        write_atomically(path, text)
    print_note(f"Wrote {path}. Next: {next_step.format(shlex.quote(str(path)))}")
