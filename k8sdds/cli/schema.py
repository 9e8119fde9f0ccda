"""`k8sdds schema`: print the JSON Schema of files that k8sdds reads and writes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from k8sdds.cli.commands import Commands
from k8sdds.cli.output import Output
from k8sdds.system import units

app = Commands()


@app.add("k8sdds schema experiment", "k8sdds schema profile")
def schema(
    kind: Annotated[
        Literal["experiment", "application", "profile", "record"], "KIND: Kind of file."
    ] = "experiment",
    form: Annotated[Literal["json", "yaml"], "--format: Format of the schema."] = "json",
) -> None:
    """Print the JSON Schema of files that you write (for editors), or of a line of trials.jsonl."""
    from k8sdds.campaign import experiments
    from k8sdds.deploy import profiles
    from k8sdds.model.application import Application

    schemas = {
        "experiment": experiments.json_schema,
        "application": Application.model_json_schema,
        "profile": profiles.schema,
        "record": _record,
    }
    found = schemas[kind]()
    # k8sdds itself writes records, always in the units of their keys.
    Output(form=form).print(found if kind == "record" else units.allow(found))


def _record() -> dict[str, Any]:
    from k8sdds import workloads
    from k8sdds.results.metrics import SOME_TESTS
    from k8sdds.results.record import TrialRecord

    found = TrialRecord.model_json_schema()
    for name, column in found["properties"].items():
        if column.get("only") == SOME_TESTS:
            column["only"] = workloads.trials_with(name)
    return found
