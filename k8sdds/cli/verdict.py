"""Print the answer about an application, and end with the exit code of its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.cli.output import TABLE, print_result
from k8sdds.cli.terminal import console, print_note, print_step
from k8sdds.system.errors import InvalidTrials, RequirementsNotMet, RequirementsUndecided

if TYPE_CHECKING:
    from k8sdds.recommend.answer import Answer


def conclude(
    result: Answer, output: Path | None, form: str = TABLE, failed: InvalidTrials | None = None
) -> None:
    """Print the answer, and write its page and the files of the configuration.

    Args:
        result: The answer.
        output: Folder for the page and the files; None: they are not written.
        form: Format of the output.
        failed: Trials without a valid attempt, which are the reason if nothing can be concluded.

    Raises:
        RequirementsNotMet: No configuration meets all requirements.
        RequirementsUndecided: It is undecided whether one does.
    """
    from k8sdds.recommend import files, results
    from k8sdds.recommend.next_step import next_step

    print_result(form, results.data(result), lambda: results.show(result, console()))
    say = print_step if form == TABLE else print_note
    if output is not None:
        page, *_ = results.write(result, output)
        say(f"\n{results.heading(result)}: {page}")
        if files.write(result, output / files.FOLDER):
            say(f"Files of the {result.role} configuration: {output / files.FOLDER}")
    step = ": ".join(next_step(result, output / files.FOLDER if output else None))
    if result.verdict == "met":
        say(step)
        return
    _refuse(result, step, failed)


def _refuse(result: Answer, step: str, failed: InvalidTrials | None) -> None:
    """Raise an error with the exit code of the verdict: no configuration meets all requirements."""
    name = result.evidence.application.name
    if failed is not None and not result.ranked:
        raise failed
    if result.verdict == "not met":
        raise RequirementsNotMet(f"no measured configuration meets all requirements of {name}", step)
    raise RequirementsUndecided(
        f"it is undecided whether a configuration meets all requirements of {name}", step
    )
