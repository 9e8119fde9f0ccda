"""`k8sdds recommend`: choose the configuration of an application."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from k8sdds.cli.help import SELECTION
from k8sdds.cli.options import OutputFolder, complete_applications
from k8sdds.cli.output import TABLE, DataFormat, Json, choose, print_result
from k8sdds.cli.terminal import console, print_step
from k8sdds.system.errors import InputError, InvalidTrials, RequirementsNotMet, RequirementsUndecided

if TYPE_CHECKING:
    from k8sdds.model.application import Application
    from k8sdds.recommend.answer import Answer
    from k8sdds.recommend.evidence import Evidence


def recommend(
    application: Annotated[
        str,
        typer.Argument(
            metavar="APPLICATION",
            help="Name of an application (see: k8sdds list --applications), or path of a YAML file.",
            autocompletion=complete_applications,
        ),
    ],
    folders: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="Answer from this run folder, without measuring (repeatable).",
            rich_help_panel=SELECTION,
        ),
    ] = None,
    output: OutputFolder = None,
    as_json: Json = False,
    form: DataFormat = "table",
) -> None:
    """Choose network and DDS settings for an application from what was measured, and say what is missing."""
    from k8sdds.campaign import applications

    form = choose(form, as_json)
    loaded = applications.load(application)
    if not folders:
        raise InputError("no run folder given", "name run folders: --from FOLDER")
    found = _evidence(loaded, folders)
    conclude(found, output, form)


def conclude(
    found: Evidence, output: Path | None, form: str = TABLE, failed: InvalidTrials | None = None
) -> None:
    """Print the answer and write its page.

    Args:
        found: The evidence.
        output: Folder for the page; None: it is not written.
        form: Format of the output.
        failed: Trials without a valid attempt, which are the reason if nothing can be concluded.

    Raises:
        RequirementsNotMet: No configuration meets all requirements.
        RequirementsUndecided: It is undecided whether one does.
    """
    from k8sdds.recommend import results
    from k8sdds.recommend.answer import answer

    result = answer(found)
    print_result(form, results.data(result), lambda: results.show(result, console()))
    if output is not None:
        page, *_ = results.write(result, output)
        print_step(f"\nRecommendation: {page}")
    refuse(result, failed)


def refuse(result: Answer, failed: InvalidTrials | None = None) -> None:
    """Raise an error with the exit code of the verdict, unless a configuration meets all requirements."""
    name = result.evidence.application.name
    if result.verdict == "met":
        return
    if failed is not None and not result.ranked:
        raise failed
    if result.verdict == "not met":
        raise RequirementsNotMet(
            f"no measured configuration meets all requirements of {name}",
            "allow more choices, or lower a requirement; the page has the reason of each configuration",
        )
    best = result.recommended
    more = (
        f"about {best.further} further repetitions: --repeat"
        if best and best.further
        else "more repetitions: --repeat"
    )
    raise RequirementsUndecided(
        f"it is undecided whether a configuration meets all requirements of {name}", f"measure {more}"
    )


def _evidence(application: Application, folders: list[Path]) -> Evidence:
    """Return the evidence of run folders. Raises InputError."""
    from k8sdds.recommend import evidence
    from k8sdds.results.run_folder import RunFolder

    if len(folders) == 1:
        run = RunFolder.open(folders[0])
        own = evidence.own_application(run)
        if own is not None and own.application.flows == application.flows:
            # What is required may have changed since then, but what was measured has not.
            return evidence.of_own_run(run, own.model_copy(update={"application": application}))
    return evidence.of_folders(application, [str(folder) for folder in folders])
