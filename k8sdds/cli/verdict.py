"""Print the answer about an application, and end with the exit code of its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from k8sdds.cli.output import TABLE, print_result
from k8sdds.cli.terminal import console, print_step
from k8sdds.system.errors import InvalidTrials, RequirementsNotMet, RequirementsUndecided

if TYPE_CHECKING:
    from k8sdds.recommend.answer import Answer
    from k8sdds.recommend.evidence import Evidence


def conclude(
    found: Evidence, output: Path | None, form: str = TABLE, failed: InvalidTrials | None = None
) -> None:
    """Print the answer, and write its page and the files of the configuration.

    Args:
        found: The evidence.
        output: Folder for the page and the files; None: they are not written.
        form: Format of the output.
        failed: Trials without a valid attempt, which are the reason if nothing can be concluded.

    Raises:
        RequirementsNotMet: No configuration meets all requirements.
        RequirementsUndecided: It is undecided whether one does.
    """
    from k8sdds.recommend import files, results
    from k8sdds.recommend.answer import answer

    result = answer(found)
    print_result(form, results.data(result), lambda: results.show(result, console()))
    if output is not None:
        page, *_ = results.write(result, output)
        print_step(f"\nRecommendation: {page}")
        if written := files.write(result, output / files.FOLDER):
            print_step(f"Files to use it: {written[0].parent}")
    refuse(result, failed)


def refuse(result: Answer, failed: InvalidTrials | None = None) -> None:
    """Raise an error with the exit code of the verdict, unless a configuration meets all requirements."""
    from k8sdds.report.formats import count

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
    more = f"about {count(best.further, 'more repetition')}" if best and best.further else "more repetitions"
    raise RequirementsUndecided(
        f"it is undecided whether a configuration meets all requirements of {name}",
        f"measure {more}: --repeat",
    )
