"""Run an experiment on an open testbed, step by step: restrict, expand, check, announce, prepare, measure.

Each step takes what the step before returned. The caller has loaded the experiment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from k8sdds.analysis import race
from k8sdds.campaign import preflight, start, supported, trial_length
from k8sdds.campaign.expansion import Expansion, expand
from k8sdds.campaign.trial_loop import Campaign, Observer
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment
from k8sdds.results.run_folder import ROOM_BYTES, RunFolder
from k8sdds.system.errors import InputError, InvalidTrials
from k8sdds.system.faults import explained
from k8sdds.system.files import require_new, require_room
from k8sdds.system.numbers import count, format_duration
from k8sdds.testbeds import Testbed

LONG_S = 30 * 60
"""Duration from which a search is not started without a question."""


class Display(Protocol):
    """Where a run prints its steps, such as the terminal."""

    def line(self, text: str) -> None:
        """Print a line."""

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
    """Measure an experiment. Returns the error that names trials without a valid attempt, to raise after the report."""
    experiment, removed = testbed.supported_subset(request.experiment, request.required)
    expansion, left_out = supported.subset(expand(experiment), removed, testbed, request.required)
    _announce_differences(request.experiment, expansion.experiment, left_out, display)
    expansion = _decidable(expansion, request, testbed, display)
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
    with display.progress(
        expansion.experiment.baseline, preflight.trial_s(expansion, testbed.cores())
    ) as observer:
        campaign = start.start(expansion, testbed, request.folder, request.name, request.seed, observer)
        return _execute(campaign)


def resume(
    folder: RunFolder,
    experiment: Experiment,
    testbed: Testbed,
    display: Display,
    retry_failed: bool = False,
    dry_run: bool = False,
) -> InvalidTrials | None:
    """Measure the trials of a run folder that have no valid attempt, or print them. Returns the same as `run`.

    With `retry_failed`, also trials that have used up their attempts are measured again.
    """
    expansion = expand(experiment)
    baseline = folder.campaign.get("baseline", experiment.baseline)
    display.line(f"{experiment.name}: resuming {folder.path}")
    _note_interference(testbed, display)
    with display.progress(baseline, preflight.trial_s(expansion, testbed.cores())) as observer:
        campaign = start.resume(folder, expansion, testbed, observer, retry_failed)
        if not dry_run:
            start.record_resumption(campaign.run, testbed, observer)
            return _execute(campaign)
    missing = campaign.open_trials
    for trial in missing:
        display.line(f"  {trial.describe()}")
    display.line(
        f"Dry run: all checks passed, nothing was measured. {len(missing)} of {campaign.planned} planned trials"
        " would be measured."
    )
    return None


def _announce_differences(
    requested: Experiment, measured: Experiment, left_out: Sequence[str], display: Display
) -> None:
    if left_out:
        display.line(f"Left out because the testbed does not have them: {', '.join(left_out)}")
    before = supported.labels(requested)
    if added := [label for label in supported.labels(measured) if label not in before]:
        display.line(f"Measured because the testbed has it: {', '.join(added)}")


def _decidable(expansion: Expansion, request: Request, testbed: Testbed, display: Display) -> Expansion:
    """Return the expansion, with longer trials if they are needed to decide all requirements and the user agrees."""
    experiment, known = expansion.experiment, expansion.candidates
    if known is None or not isinstance(experiment, ApplicationExperiment):
        return expansion
    if not (short := trial_length.undecidable(experiment, len(known.measurable))):
        return expansion
    longer = replace(expansion, experiment=trial_length.extended(experiment, short))
    count = len(list(experiment.application.requirements))
    display.line(f"Trials of {experiment.duration_s:g} s cannot decide {len(short)} of {count} requirements:")
    for samples in short:
        display.line(f"  {samples.describe(experiment.duration_s)}")
    seconds = f"{longer.experiment.duration_s:g}"
    more, less = (
        format_duration(preflight.estimate_s(each, testbed.cores())) for each in (longer, expansion)
    )
    display.line(f"Trials of {seconds} s can (--duration {seconds}): {more} instead of {less}.")
    return longer if request.longer() else expansion


def _announce(expansion: Expansion, testbed: Testbed, seed: int, display: Display) -> float:
    """Print what is measured, and return how long it takes in seconds."""
    trials, experiment, search = expansion.trials(testbed.name), expansion.experiment, expansion.search
    what = f"{experiment.name}: {count(len(trials), 'trial')}"
    what += f" of {experiment.duration_s:g} s" if expansion.candidates else ""
    what += f" in the first round, at most {search.max_trials} in all" if search else ""
    rounds = race.rounds(search.max_trials) if search else 1
    preparation_s = testbed.preparation_s(testbed.blocks(trials, seed))
    estimate_s = preflight.estimate_s(expansion, testbed.cores()) + rounds * preparation_s
    display.line(f"{what}, about {format_duration(estimate_s)}")
    if expansion.candidates:
        display.line(
            f"{len(expansion.candidates.measurable)} configurations, {len(expansion.cells)} cells"
            + (
                f": a search, instead of {len(expansion.cells) * experiment.repetitions} trials"
                if search
                else ""
            )
        )
    if search and estimate_s > LONG_S:
        display.line(f"To make it shorter: {'; '.join(_shorter(experiment))}")
    for line in _sizes(expansion):
        display.line(line)
    for note in preflight.notes(expansion, testbed.cores()):
        display.line(f"Note: {note}")
    _note_interference(testbed, display)
    return estimate_s


def _shorter(experiment: Experiment) -> list[str]:
    assert isinstance(experiment, ApplicationExperiment)
    ways = ["fewer networks (--network)"] if len(supported.labels(experiment)) > 1 else []
    ways.append("fewer trials (--max-trials)")
    slowest = trial_length.slowest_percentile(experiment.application)
    if slowest and slowest.duration_s > experiment.duration_s / 2:
        ways.append(f"missed_percent instead of {slowest.requirement.describe()}, with a shorter --duration")
    return ways


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
    # In contrast to those of Path, functions of os.path do not raise in a folder that the user may not search.
    missing = [path for path in (folder.absolute(), *folder.absolute().parents) if not os.path.exists(path)]
    if link := next((path for path in missing if os.path.islink(path)), None):
        raise InputError(
            f"cannot write to {folder}: {link} is a link to nothing, or to itself",
            "choose another folder: --output",
        )
    nearest = missing[-1].parent if missing else folder
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
