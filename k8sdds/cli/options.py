"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Networks = Annotated[
    list[str] | None,
    typer.Option("--network", "-n", help="Only this network, and the baseline (repeatable)."),
]
Repeat = Annotated[int | None, typer.Option("--repeat", min=1, help="Repetitions of every cell.")]
Duration = Annotated[
    float | None, typer.Option("--duration", min=0.1, help="Measured seconds of each trial.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the experiment (repeatable), as YAML."),
]
Paper = Annotated[bool, typer.Option("--paper", help="The study's durations: 120 s a trial.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for programs instead of text.")]
