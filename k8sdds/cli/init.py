"""`k8sdds init`: write an experiment, an application, a link, a profile, QoS or rights to start from."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import typer

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import SshOptions
from k8sdds.cli.terminal import print_note, print_text
from k8sdds.system.errors import InputError
from k8sdds.system.faults import explained
from k8sdds.system.files import write_atomically
from k8sdds.system.reading import escaped
from k8sdds.system.shipped import ShippedFiles

app = Commands()

STDOUT = "-"
ZENOH_SUFFIX = ".json5"
ZENOH_STEP = (
    "k8sdds run quickstart --set middleware=zenoh --set reliability=best-effort --set qos={}"
    " (its keys: k8sdds docs middleware-config)"
)
STATUS = "k8sdds status {}"
"""The command that follows a profile."""
_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


Kind = Literal["experiment", "application", "link", "profile", "qos", "rights"]


@dataclass(frozen=True)
class _Template:
    files: ShippedFiles
    """The installed files of this kind, which `--like` names."""
    name: str
    """Name of the new file by default."""
    next_step: str
    """What to do with it; `{}` is its path."""
    like: str | None = None
    """The file to copy by default; None means a template with every key, or a description of machines."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of the new files by default, for copied files with another one than `name`."""


def _templates() -> dict[str, _Template]:
    from k8sdds.campaign.applications import APPLICATIONS
    from k8sdds.campaign.experiments import EXPERIMENTS
    from k8sdds.deploy.profiles import PROFILES
    from k8sdds.links import LINKS
    from k8sdds.middleware.files import PROFILE_SUFFIXES

    return {
        "experiment": _Template(EXPERIMENTS, "my-experiment", "k8sdds run {}"),
        "application": _Template(APPLICATIONS, "my-application", "k8sdds recommend {} --dry-run"),
        "link": _Template(LINKS, "my-link", "k8sdds run quickstart --link {}", "wifi-office"),
        "profile": _Template(PROFILES, "my-lab", STATUS),
        "qos": _Template(
            ShippedFiles(("qos",), "QoS profile", suffixes=PROFILE_SUFFIXES), "my-qos",
            "k8sdds run quickstart --set qos={} (its policies: k8sdds docs qos)", "strict-reliable",
        ),
        "rights": _Template(
            ShippedFiles(("deploy/rights",), "manifest of rights"), "rights",
            "change what its first lines name, then run: kubectl apply -f {}", "cluster",
            # Users of a prepared namespace need this policy in addition to its rights.
            {"network-policy": "network-policy"},
        ),
    }  # fmt: skip


def _complete_like(context: typer.Context, incomplete: str) -> list[str]:
    names = _templates()[context.params["kind"]].files.names()
    return [name for name in names if name.startswith(incomplete)]


_KindArgument = Annotated[Kind, "KIND: experiment, application, link, profile, qos or rights."]
_NameArgument = Annotated[
    str | None,
    "NAME: Name of the new file and of what it describes. Default: my-experiment, my-application,"
    " my-link, my-lab, my-qos, rights, or network-policy with --like network-policy.",
]
_Like = Annotated[
    str | None,
    option(
        "--like NAME: Copy this installed file, with its comments. Default: a template with every key; for"
        " link wifi-office; for qos strict-reliable; for rights cluster (or namespace: rights in one namespace"
        " alone; network-policy: traffic between pods of k8sdds where policies refuse it).",
        autocompletion=_complete_like,
    ),
]
_From = Annotated[
    Path | None,
    "--from RECORDING: Write an application with the flows of a recording of ROS 2: an .mcap or .db3"
    " file, or a folder of rosbag2.",
]
_Output = Annotated[
    str | None,
    "--output -o FILE: File to write; -: stdout. Default: NAME.yaml, or for qos NAME with the suffix of"
    " the copied file.",
    "Output",
]
_Force = Annotated[bool, "--force: Overwrite the file if it exists.", "Output"]


@dataclass
class Machines:
    """The options that describe the machines of a profile."""

    node: Annotated[
        list[str] | None, "--node [USER@]ADDRESS[:PORT]: A machine of the profile (repeatable).", "Machines"
    ] = None
    look: Annotated[
        bool, "--look/--no-look: Read the machines over SSH and fill in what they are.", "Machines"
    ] = True
    key: Annotated[Path | None, "--key FILE: Private key file for SSH.", "Machines"] = None
    ssh_config: Annotated[
        Path | None, "--ssh-config FILE: ssh_config file. Default: your own.", "Machines"
    ] = None

    def profile(self, name: str, ssh: SshOptions) -> str:
        """Return a profile of these machines."""
        from k8sdds.deploy import new_profile

        if not self.node:
            raise InputError(
                "name the machines of the profile, or a profile to copy",
                "for example: --node pi@192.0.2.10 --node pi@192.0.2.11; or: --like edge-lab",
            )
        machines, found = new_profile.logins(self.node), {}
        key, ssh_config = self._file(self.key, "--key"), self._file(self.ssh_config, "--ssh-config")
        if self.look:
            found = new_profile.gather(machines, key, ssh_config, ssh.connect)
        return new_profile.text(name, machines, found, key, ssh_config)

    @staticmethod
    def _file(path: Path | None, option: str) -> Path | None:
        if path is not None and not path.expanduser().is_file():
            raise InputError(f"{option}: the file {path} does not exist", "correct the path")
        return path.expanduser().absolute() if path else None


@app.add(
    "k8sdds init application my-robot --from my-recording",
    "k8sdds init profile lab --node pi@192.0.2.10 --node pi@192.0.2.11",
    "k8sdds init rights --like namespace",
)
def init(
    kind: _KindArgument,
    name: _NameArgument = None,
    like: _Like = None,
    recording: _From = None,
    *,
    machines: Machines,
    ssh: SshOptions,
    output: _Output = None,
    force: _Force = False,
) -> None:
    """Write a commented experiment, application, link, profile of machines, QoS profile or manifest of rights.

    An experiment and an application can be measured unchanged. A profile describes machines, without changes on them.
    """
    template = _templates()[kind]
    if kind != "profile" and (machines.node or machines.key or machines.ssh_config):
        raise InputError("--node, --key and --ssh-config describe machines", "use: k8sdds init profile")
    if recording is not None and (kind != "application" or like is not None):
        raise InputError(
            "--from describes an application, instead of --like", "use: k8sdds init application --from"
        )
    like = like or template.like
    name = name or template.names.get(like or "", template.name)
    next_step, suffixes = template.next_step, template.files.suffixes
    if like is not None and machines.node:
        raise InputError("--like and --node exclude each other", "leave out one of them")
    if kind == "qos" and like is not None:
        # Unlike the suffixes of YAML, those of QoS profiles are different formats.
        suffixes = (template.files.read(like)[0].suffix,)
        if suffixes == (ZENOH_SUFFIX,):
            next_step = ZENOH_STEP
    path = _target(name, output, force, suffixes)
    schedules: dict[Path, str] = {}
    if like is not None:
        text = template.files.copy(like, name).replace(f'name="{like}"', f'name="{name}"')
        if kind == "profile" and _is_example(text, like):
            next_step = f"replace the addresses, then run: {STATUS}"
    elif recording is not None:
        text, schedules = _recorded(name, recording, path, force)
    elif kind == "profile":
        text = machines.profile(name, ssh)
    else:
        from k8sdds.campaign import new_experiment

        text = (new_experiment.template if kind == "experiment" else new_experiment.application)(name)
    _write(path, text, next_step, schedules)


def _recorded(name: str, recording: Path, path: Path | None, force: bool) -> tuple[str, dict[Path, str]]:
    """Return an application with the flows of a recording, and its schedules by path; show how much of it is read."""
    from k8sdds.cli.progress import Steps
    from k8sdds.importing import recorded_application

    with Steps() as steps, explained(f"cannot read {escaped(recording)}"):
        steps(f"reading {escaped(recording)}")
        written = recorded_application.write(name, recording, steps.share, path.stem if path else None)
    if path is None:
        return written.text, {}
    schedules = {path.parent / file: text for file, text in written.schedules.items()}
    for file in schedules:
        if file.exists() and not force:
            raise InputError(f"{file} exists", "choose another file (-o FILE), or overwrite it: --force")
    return written.text, schedules


def _is_example(text: str, source: str) -> bool:
    """Return whether a profile has addresses that are reserved for documentation."""
    from k8sdds.deploy import profiles

    return any(node.is_example for node in profiles.parse(text, source).nodes)


def _target(name: str, output: str | None, force: bool, suffixes: Sequence[str]) -> Path | None:
    """Return the file to write, or None for stdout, before anything else happens."""
    if not re.fullmatch(_NAME, name):
        raise InputError(f"{name!r} is not a valid name", "use lowercase letters, digits and hyphens")
    if output == STDOUT:
        return None
    path = Path(output or f"{name}{suffixes[0]}")
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "is in a folder that does not exist"
        raise InputError(f"{path} {what}", "choose another file: -o FILE")
    if path.suffix not in suffixes:
        raise InputError(f"{path} does not end in {suffixes[0]}", f"name it {path.name}{suffixes[0]}")
    if path.exists() and not force:
        raise InputError(f"{path} exists", "choose another file (-o FILE), or overwrite it: --force")
    return path


def _write(path: Path | None, text: str, next_step: str, schedules: Mapping[Path, str]) -> None:
    """Write a file and its schedules, and print the next step, in which `{}` is the path; or print the text."""
    if path is None:
        print_text(text.rstrip("\n"))
        return
    with explained(f"cannot write {path}", "choose another file: -o FILE"):
        for file, schedule in schedules.items():
            write_atomically(file, schedule)
        write_atomically(path, text)
    more = f" and {len(schedules)} file{'s' * (len(schedules) > 1)} with schedules" if schedules else ""
    print_note(f"Wrote {path}{more}. Next: {next_step.format(shlex.quote(str(path)))}")
