"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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


def complete_experiments(incomplete: str) -> list[str]:
    """Complete the names of installed experiments."""
    from k8sdds.campaign import experiments

    return [name for name in experiments.names() if name.startswith(incomplete)]


def complete_networks(incomplete: str) -> list[str]:
    """Complete the names of networks."""
    from k8sdds.networks import NETWORKS

    return [name for name in NETWORKS if name.startswith(incomplete)]


def complete_settings(incomplete: str) -> list[str]:
    """Complete the keys of experiments and sweeps, each with `=`."""
    from k8sdds.campaign import experiments

    keys = [*experiments.PER_EXPERIMENT, *experiments.PER_SWEEP]
    return sorted({f"{key}=" for key in keys if key.startswith(incomplete)})


def complete_profiles(incomplete: str) -> list[str]:
    """Complete the names of installed profiles."""
    from k8sdds.deploy import profiles

    return [name for name in profiles.names() if name.startswith(incomplete)]


def complete_testbeds(incomplete: str) -> list[str]:
    """Complete the names of testbeds."""
    from k8sdds.testbeds import selection

    names = (selection.LAB, selection.CLUSTER, *selection.deployed_names())
    return [name for name in names if name.startswith(incomplete)]


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

# Experiments
Experiment = Annotated[
    str,
    typer.Argument(
        help="Name of an experiment, or path of a YAML file.", autocompletion=complete_experiments
    ),
]
Networks = Annotated[
    list[str] | None,
    typer.Option(
        "--network",
        "-n",
        help="Only this network and the baseline (repeatable).",
        autocompletion=complete_networks,
    ),
]
Repeat = Annotated[int | None, typer.Option("--repeat", min=1, help="Number of repetitions of every cell.")]
Duration = Annotated[
    float | None, typer.Option("--duration", min=0.1, help="Measured duration of each trial, in seconds.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the experiment with a YAML value (repeatable).",
        autocompletion=complete_settings,
    ),
]
Paper = Annotated[bool, typer.Option("--paper", help="Use the durations of the paper: 120 s per trial.")]
PskFile = Annotated[
    Path | None,
    typer.Option(
        "--psk-file",
        help="Lab only: file (mode 0600) with the pre-shared key for IPsec networks. Default: a random key.",
    ),
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the random order of trials.")]

# Testbeds
TestbedName = Annotated[
    str | None,
    typer.Option(
        "--testbed",
        help="lab, cluster, or the name of a deployed cluster. Default: the current testbed.",
        autocompletion=complete_testbeds,
    ),
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Kubeconfig of the cluster. Default: the same as kubectl.")
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", help="Existing namespace to use. Default: create one namespace per campaign."
    ),
]
PodNetwork = Annotated[
    str | None,
    typer.Option("--pod-network", help="Installed pod network, if it cannot be detected on the nodes."),
]
Meter = Annotated[
    bool | None,
    typer.Option(
        "--meter/--no-meter",
        help="Measure the background cost of the network on the nodes around each block (runs a DaemonSet).",
    ),
]
Image = Annotated[
    str | None, typer.Option("--image", help="Container image with the supervisor and perftest.")
]

# Profiles and machines
ProfileName = Annotated[
    str, typer.Argument(help="Name of a profile, or path of a YAML file.", autocompletion=complete_profiles)
]
Limit = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NODE", help="Only this node (repeatable). Other workers may be down."),
]
AcceptKeys = Annotated[
    bool, typer.Option("--accept-new-host-keys", help="Trust and remember unknown SSH host keys.")
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", min=1, max=200, help="Number of machines to work on in parallel.")
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask for confirmation. Required without a terminal.")
]

# Run folders and claims
ClaimsFile = Annotated[str, typer.Option("--claims", help="Name of a set of claims, or path of a YAML file.")]
OutputFolder = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Also write the result as HTML, CSV and JSON to this new folder."),
]
FailIf = Annotated[
    str | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="Exit with code 6 if a row meets this condition; see docs/explanation/analysis.md.",
    ),
]
