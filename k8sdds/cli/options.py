"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def listed(text: str) -> list[str]:
    """The words of a comma-separated option."""
    return [word.strip() for word in text.split(",") if word.strip()]


def complete_experiments(incomplete: str) -> list[str]:
    """Names of installed experiments that begin so, for the shell's completion."""
    from k8sdds.campaign import experiments

    return [name for name in experiments.names() if name.startswith(incomplete)]


def complete_networks(incomplete: str) -> list[str]:
    """Names of networks that begin so, for the shell's completion."""
    from k8sdds.networks import NETWORKS

    return [name for name in NETWORKS if name.startswith(incomplete)]


def complete_settings(incomplete: str) -> list[str]:
    """Keys of experiments and sweeps that begin so, for the shell's completion."""
    from k8sdds.campaign import experiments

    keys = [*experiments.PER_EXPERIMENT, *experiments.PER_SWEEP]
    return sorted({f"{key}=" for key in keys if key.startswith(incomplete)})


Experiment = Annotated[
    str, typer.Argument(help="Name of an experiment, or a YAML file.", autocompletion=complete_experiments)
]
Networks = Annotated[
    list[str] | None,
    typer.Option(
        "--network",
        "-n",
        help="Only this network, and the baseline (repeatable).",
        autocompletion=complete_networks,
    ),
]
Repeat = Annotated[int | None, typer.Option("--repeat", min=1, help="Repetitions of every cell.")]
Duration = Annotated[
    float | None, typer.Option("--duration", min=0.1, help="Measured seconds of each trial.")
]
PskFile = Annotated[
    Path | None,
    typer.Option(
        "--psk-file",
        help="Lab: a file (mode 0600) with the pre-shared key of networks with IPsec; else one is made.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the experiment (repeatable), as YAML.",
        autocompletion=complete_settings,
    ),
]
Paper = Annotated[bool, typer.Option("--paper", help="The study's durations: 120 s a trial.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs instead of text.")]
