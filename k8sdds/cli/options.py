"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from k8sdds.cli.help import MACHINES, OUTPUT, SELECTION, TESTBED
from k8sdds.system.errors import InputError

if TYPE_CHECKING:
    from k8sdds.model.profile import Profile as ProfileModel


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated option."""
    return [item.strip() for item in text.split(",") if item.strip()]


def load_profile(name: str, limit: list[str] | None = None) -> ProfileModel:
    """Load a profile by name or path and check that it has every node of `--limit`."""
    from k8sdds.deploy import profiles

    profile = profiles.load(name)
    nodes = [node.name for node in profile.nodes]
    for node in limit or ():
        if node not in nodes:
            raise InputError(f"--limit {node}: not in this profile", f"use one of: {', '.join(nodes)}")
    return profile


def completing(module: str, names: str) -> Callable[[str], list[str]]:
    """Return a completion of the names in a module of k8sdds, which is imported only when the shell completes."""

    def complete(incomplete: str) -> list[str]:
        found = attrgetter(names)(import_module(f"k8sdds.{module}"))
        return [name for name in (found() if callable(found) else found) if name.startswith(incomplete)]

    return complete


complete_experiments = completing("campaign.applications", "EITHER.names")
complete_applications = completing("campaign.applications", "names")
complete_networks = completing("networks", "NETWORKS")
complete_profiles = completing("deploy.profiles", "names")
complete_testbeds = completing("testbeds.selection", "names")


def complete_settings(incomplete: str) -> list[str]:
    """Complete the keys of experiments and sweeps, each with `=`."""
    from k8sdds.campaign import experiments

    keys = [*experiments.PER_EXPERIMENT, *experiments.PER_SWEEP]
    return sorted({f"{key}=" for key in keys if key.startswith(incomplete)})


Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Change the cluster although a campaign is running on it. The campaign stops if its network changes;"
        " otherwise its results are disturbed.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print what would be done, and change nothing.", rich_help_panel=OUTPUT),
]

# Experiments
ExperimentArgument = typer.Argument(
    metavar="EXPERIMENT",
    help="Name of an experiment or application (see: k8sdds list), or path of a YAML file.",
    autocompletion=complete_experiments,
)
Experiment = Annotated[str, ExperimentArgument]
Networks = Annotated[
    list[str] | None,
    typer.Option(
        "--network",
        metavar="NETWORK",
        help="Only this network and the baseline (repeatable). Default: all networks of the experiment.",
        autocompletion=complete_networks,
        rich_help_panel=SELECTION,
    ),
]
Repeat = Annotated[
    int | None,
    typer.Option(
        "--repeat",
        metavar="N",
        min=1,
        help="Number of repetitions of every cell. Default: as in the experiment.",
        rich_help_panel=SELECTION,
    ),
]


def _percentage(text: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a percentage, such as 5%") from None


Precision = Annotated[
    float | None,
    typer.Option(
        "--precision",
        metavar="PERCENT",
        parser=_percentage,
        help="Repeat until every overhead is known within this many percentage points, such as 5%.",
        rich_help_panel=SELECTION,
    ),
]
MaxTime = Annotated[
    float | None,
    typer.Option(
        "--max-time",
        metavar="MINUTES",
        help="With --precision: stop after so many minutes of measuring.",
        rich_help_panel=SELECTION,
    ),
]
Duration = Annotated[
    float | None,
    typer.Option(
        "--duration",
        metavar="SECONDS",
        min=0.1,
        help="Measured duration of each trial, in seconds. Default: as in the experiment.",
        rich_help_panel=SELECTION,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the experiment with a YAML value (repeatable).",
        autocompletion=complete_settings,
        rich_help_panel=SELECTION,
    ),
]
Paper = Annotated[
    bool,
    typer.Option(
        "--paper", help="Use the durations of the paper: 120 s per trial.", rich_help_panel=SELECTION
    ),
]
Profile = Annotated[
    bool,
    typer.Option(
        "--profile",
        help="Then run one trial of each network and test with perf: CPU time by component, flame graphs.",
        rich_help_panel=SELECTION,
    ),
]
PskFile = Annotated[
    Path | None,
    typer.Option(
        "--psk-file",
        metavar="FILE",
        help="Lab only: file (mode 0600) with the pre-shared key for IPsec networks. Default: a random key.",
        rich_help_panel=TESTBED,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Seed of the random order of trials. Default: random.",
        rich_help_panel=SELECTION,
    ),
]

# Testbeds
TestbedName = Annotated[
    str | None,
    typer.Option(
        "--testbed",
        metavar="NAME",
        help="lab, cluster, or the name of a deployed cluster. Default: the current testbed.",
        autocompletion=complete_testbeds,
        rich_help_panel=TESTBED,
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig of the cluster. Default: the same as kubectl.",
        rich_help_panel=TESTBED,
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Context of the kubeconfig. Default: its current context.",
        rich_help_panel=TESTBED,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Existing Kubernetes namespace to use. Default: create one namespace per campaign.",
        rich_help_panel=TESTBED,
    ),
]
PodNetwork = Annotated[
    str | None,
    typer.Option(
        "--pod-network",
        metavar="NETWORK",
        help="Name of the installed pod network, in place of the detected one. Default: detected.",
        rich_help_panel=TESTBED,
    ),
]
Meter = Annotated[
    bool | None,
    typer.Option(
        "--meter/--no-meter",
        help="Measure the background cost of the network on the nodes around each block (runs a DaemonSet)."
        " Default: no.",
        rich_help_panel=TESTBED,
    ),
]
Image = Annotated[
    str | None,
    typer.Option(
        "--image",
        metavar="IMAGE",
        help="Container image with the supervisor and perftest. Default: the image that deploy installs.",
        rich_help_panel=TESTBED,
    ),
]

# Profiles and machines
ProfileName = Annotated[
    str,
    typer.Argument(
        metavar="PROFILE", help="Name of a profile, or path of a YAML file.", autocompletion=complete_profiles
    ),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="NODE",
        help="Only this node (repeatable). Other workers may be down. Default: all nodes.",
        rich_help_panel=MACHINES,
    ),
]
AcceptKeys = Annotated[
    bool,
    typer.Option(
        "--accept-new-host-keys",
        help="Trust and remember unknown SSH host keys. Changed keys are always rejected.",
        rich_help_panel=MACHINES,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        max=200,
        help="Number of machines to work on in parallel.",
        rich_help_panel=MACHINES,
    ),
]
AllowReboot = Annotated[
    bool,
    typer.Option(
        "--allow-reboot",
        help="Change the kernel command line of a Raspberry Pi if needed, and reboot it.",
        rich_help_panel=MACHINES,
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask for confirmation. Required without a terminal.")
]

# Run folders and claims
ClaimsFile = Annotated[
    str,
    typer.Option("--claims", metavar="CLAIMS", help="Name of a set of claims, or path of a YAML file."),
]
OutputFolder = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        help="Also write the result as HTML, CSV and JSON to this new folder.",
        rich_help_panel=OUTPUT,
    ),
]
FailIf = Annotated[
    str | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="Exit with code 6 if a row of the result meets this condition, an expression in pandas syntax with"
        " the columns of --format csv.",
        rich_help_panel=OUTPUT,
    ),
]
