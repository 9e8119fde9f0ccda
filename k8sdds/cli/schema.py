"""`k8sdds schema`: print the JSON Schema of the files that users write."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from k8sdds.cli.terminal import print_text


class Kind(StrEnum):
    """Kinds of files that users write."""

    EXPERIMENT = "experiment"
    PROFILE = "profile"


def schema(
    kind: Annotated[Kind, typer.Argument(help="Kind of file.")] = Kind.EXPERIMENT,
) -> None:
    """Print the JSON Schema of experiment or profile files, for validation in editors."""
    from k8sdds.model.experiment import Experiment
    from k8sdds.model.profile import Profile

    model = Profile if kind is Kind.PROFILE else Experiment
    print_text(json.dumps(model.model_json_schema(), indent=1))
