"""Run an experiment on an open testbed, step by step: fit, check, announce, prepare, measure."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from k8sdds.analysis import race
from k8sdds.campaign import applications, preflight, start, supported, trial_length
from k8sdds.campaign.expansion import Expansion, expand
from k8sdds.campaign.trial_loop import Campaign, Observer
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment
from k8sdds.results.run_folder import ROOM_BYTES, RunFolder
from k8sdds.system.errors import InvalidTrials
from k8sdds.system.faults import explained
from k8sdds.system.files import require_new, require_room
from k8sdds.system.numbers import format_duration
from k8sdds.testbeds import Testbed

LONG_S = 30 * 60
"""Duration from which a search is not started without a question."""


class Display(Protocol):
    """Where a run prints its steps, such as the terminal."""

    def line(self, text: str) -> None:
        """Print a line."""

    def announce(self, what: str, estimate_s: float | None) -> None:
        """Print what is about to be measured and how long it takes; None: unknown."""

    def progress(self, baseline: str, expected_trial_s: float) -> AbstractContextManager[Observer]:
        """Show the trials' progress while the context is open."""


@dataclass(frozen=True)
class Request:
    """What the user requested."""

    experiment: Experiment
    name: str
    """Name of the campaign."""
    folder: Path
    """The run folder to create."""
    seed: int
    required: Sequence[str] = ()
    """Networks that the testbed must have; others are left out if the testbed does not have them."""
    dry_run: bool = False
    longer: Callable[[], bool] = lambda: False
    """Asks whether to measure longer trials, if those of an application cannot decide all of its requirements."""
    confirm: Callable[[], None] = lambda: None
    """Asks whether to start a search that takes longer than LONG_S; raises if not."""


def run(request: Request, testbed: Testbed, display: Display) -> InvalidTrials | None:
    """Measure an experiment.

    Returns:
        The error that names trials without a valid attempt, to raise after the report; None: all are valid.
    """
    expansion = _decidable(_fit_to_testbed(request, testbed, display), request, display)
    preflight.refuse(preflight.check(expansion, testbed))
    _require_free_folder(request.folder)
    estimate_s = _announce(expansion, testbed, request.seed, display)
    if request.dry_run:
        display.line(
            f"Dry run: all checks passed, nothing was measured. The run folder would be {request.folder}"
        )
        return None
    if estimate_s > LONG_S:
        request.confirm()
    with display.progress(expansion.experiment.baseline, preflight.trial_s(expansion)) as observer:
        campaign = start.start(expansion, testbed, request.folder, request.name, request.seed, observer)
        return _execute(campaign)


def resume(
    folder: RunFolder,
    experiment: Experiment,
    testbed: Testbed,
    display: Display,
    retry_failed: bool = False,
) -> InvalidTrials | None:
    """Measure the trials of a run folder that have no valid attempt. Returns the same as `run`.

    Args:
        folder: The run folder.
        experiment: Its experiment.
        testbed: Where to measure.
        display: Where to print the steps.
        retry_failed: Whether to measure trials again that have used up their attempts.
    """
    expansion = expand(experiment)
    baseline = folder.campaign.get("baseline", experiment.baseline)
    display.announce(f"{experiment.name}: resuming {folder.path}", None)
    _note_interference(testbed, display)
    with display.progress(baseline, preflight.trial_s(expansion)) as observer:
        return _execute(start.resume(folder, experiment, testbed, observer, retry_failed))


def _fit_to_testbed(request: Request, testbed: Testbed, display: Display) -> Expansion:
    experiment, left_out = supported.subset(request.experiment, testbed, request.required)
    if left_out:
        display.line(f"Left out because the testbed does not have them: {', '.join(left_out)}")
    requested = supported.labels(request.experiment)
    if added := [label for label in supported.labels(experiment) if label not in requested]:
        display.line(f"Measured because the testbed has it: {', '.join(added)}")
    return expand(experiment)


def _decidable(expansion: Expansion, request: Request, display: Display) -> Expansion:
    """Return the expansion, with longer trials if they are needed to decide all requirements and the user agrees."""
    experiment = expansion.experiment
    if not isinstance(experiment, ApplicationExperiment):
        return expansion
    configurations = len(applications.candidates(experiment).measurable)
    if not (short := trial_length.undecidable(experiment, configurations)):
        return expansion
    longer = expand(trial_length.extended(experiment, short))
    count = len(list(experiment.application.requirements))
    display.line(f"Trials of {experiment.duration_s:g} s cannot decide {len(short)} of {count} requirements:")
    for samples in short:
        display.line(f"  {samples.describe(experiment.duration_s)}")
    seconds = f"{longer.experiment.duration_s:g}"
    more, less = (format_duration(preflight.estimate_s(each)) for each in (longer, expansion))
    display.line(f"Trials of {seconds} s can (--duration {seconds}): {more} instead of {less}.")
    return longer if request.longer() else expansion


def _announce(expansion: Expansion, testbed: Testbed, seed: int, display: Display) -> float:
    """Print what is measured, and return how long it takes in seconds."""
    trials = expansion.trials(testbed.name)
    experiment, preparation_s = expansion.experiment, testbed.preparation_s(testbed.blocks(trials, seed))
    what, rounds = f"{experiment.name}: {len(trials)} trials", 1
    if isinstance(experiment, ApplicationExperiment):
        what += f" of {experiment.duration_s:g} s"
        if experiment.search:
            rounds = race.rounds(experiment.search.max_trials)
            what += f" in the first round, at most {experiment.search.max_trials} in all"
    estimate_s = preflight.estimate_s(expansion) + rounds * preparation_s
    display.announce(what, estimate_s)
    if isinstance(experiment, ApplicationExperiment):
        display.line(_configurations(experiment, expansion))
        if experiment.search and estimate_s > LONG_S:
            display.line(f"To make it shorter: {'; '.join(_shorter(experiment))}")
    for line in _sizes(expansion):
        display.line(line)
    for note in preflight.notes(expansion):
        display.line(f"Note: {note}")
    _note_interference(testbed, display)
    return estimate_s


def _shorter(experiment: ApplicationExperiment) -> list[str]:
    """Return how a search takes less time."""
    networks = supported.labels(experiment)
    ways = ["fewer networks (--network)"] if len(networks) > 1 else []
    ways.append("fewer trials (--max-trials)")
    slowest = trial_length.slowest_percentile(experiment.application)
    if slowest and slowest.duration_s > experiment.duration_s / 2:
        ways.append(f"missed_percent instead of {slowest.requirement.describe()}, with a shorter --duration")
    return ways


def _configurations(experiment: ApplicationExperiment, expansion: Expansion) -> str:
    """Describe what is measured of an application."""
    known = applications.candidates(experiment)
    whole = len(expansion.cells) * experiment.repetitions
    line = f"{len(known.measurable)} configurations, {len(expansion.cells)} cells"
    if experiment.search is None:
        return line
    return f"{line}: a search, instead of {whole} trials"


def _sizes(expansion: Expansion) -> list[str]:
    """Describe the sizes of messages and fragments, unless all are the default."""
    messages = dict.fromkeys(str(cell.message_bytes) for cell in expansion.cells)
    fragments = dict.fromkeys(str(cell.fragment_bytes) for cell in expansion.cells)
    lines = [] if list(messages) == ["auto"] else [f"Sizes of messages: {', '.join(messages)}"]
    return (
        lines if list(fragments) == ["default"] else [*lines, f"Sizes of fragments: {', '.join(fragments)}"]
    )


def _note_interference(testbed: Testbed, display: Display) -> None:
    for interference in testbed.interference():
        display.line(f"Note: {interference}")


def _require_free_folder(folder: Path) -> None:
    """Check that the run folder can be created or is empty, before networks are built."""
    # In contrast to Path.exists, os.path.exists returns False in a folder that the user may not search.
    nearest = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    with explained(f"cannot write to {nearest}", "choose another folder: --output"):
        require_room(nearest, ROOM_BYTES)
    require_new(folder, f"continue it: k8sdds run --resume {folder}; or choose another folder: --output")


def _execute(campaign: Campaign) -> InvalidTrials | None:
    """Run a campaign; return InvalidTrials instead of raising it, so that the report is written first."""
    try:
        campaign.execute()
    except InvalidTrials as error:
        return error
    return None
