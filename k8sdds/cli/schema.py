"""`k8sdds schema`: print the JSON Schema of files that k8sdds reads and writes."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from k8sdds.cli.terminal import print_text


class Kind(StrEnum):
    """Kinds of files with a JSON Schema."""

    EXPERIMENT = "experiment"
    PROFILE = "profile"
    RECORD = "record"


def schema(
    kind: Annotated[Kind, typer.Argument(help="Kind of file.")] = Kind.EXPERIMENT,
) -> None:
    """Print the JSON Schema of experiment or profile files (for editors), or of a line of trials.jsonl."""
    from k8sdds.model.experiment import Experiment
    from k8sdds.model.profile import Profile
    from k8sdds.results.record import TrialRecord

    models = {Kind.EXPERIMENT: Experiment, Kind.PROFILE: Profile, Kind.RECORD: TrialRecord}
    print_text(json.dumps(models[kind].model_json_schema(), indent=1))
