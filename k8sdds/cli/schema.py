"""`k8sdds schema`: print the JSON Schema of files that k8sdds reads and writes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import typer

from k8sdds.cli.output import print_result


class Kind(StrEnum):
    """Kinds of files with a JSON Schema."""

    EXPERIMENT = "experiment"
    APPLICATION = "application"
    PROFILE = "profile"
    RECORD = "record"


def schema(
    kind: Annotated[Kind, typer.Argument(metavar="KIND", help="Kind of file.")] = Kind.EXPERIMENT,
    form: Annotated[Literal["json", "yaml"], typer.Option("--format", help="Format of the schema.")] = "json",
) -> None:
    """Print the JSON Schema of files that you write (for editors), or of a line of trials.jsonl."""
    from k8sdds.campaign import applications, experiments
    from k8sdds.deploy import profiles
    from k8sdds.results.record import TrialRecord
    from k8sdds.system import units

    schemas = {
        Kind.EXPERIMENT: experiments.json_schema,
        Kind.APPLICATION: applications.json_schema,
        Kind.PROFILE: profiles.schema,
        Kind.RECORD: TrialRecord.model_json_schema,
    }
    found = schemas[kind]()
    # k8sdds itself writes records, always in the units of their keys.
    print_result(form, found if kind == Kind.RECORD else units.allow(found))
