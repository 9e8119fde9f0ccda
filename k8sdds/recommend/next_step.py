"""State what to do after an answer, with the command."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from k8sdds.analysis import missing
from k8sdds.analysis.requirements import MAX_FURTHER, MET, NOT_MET, UNDECIDED, rows_of
from k8sdds.campaign import preflight, racing, trial_length
from k8sdds.model.application import Application
from k8sdds.recommend.answer import Answer, Ranked
from k8sdds.recommend.evidence import Evidence
from k8sdds.system.numbers import format_duration

_LEFT_OUT = ("-o", "--output", "--seed")
"""Options of the first measurement that the next one does not have."""
_REPETITIONS = int(Application.model_fields["repetitions"].default)


def next_step(answer: Answer, configuration: Path | None) -> tuple[str, str]:
    """Return the next step, and the command for it; `configuration` is the folder of the written files, if any."""
    best, evidence = answer.recommended, answer.evidence
    again = list(evidence.command)
    if not {"recommend", "run"} & set(again):
        again = ["k8sdds", "recommend", evidence.application.name]
    folders = [word for folder in evidence.folders for word in ("--from", folder)]
    ask = shlex.join(["k8sdds", "recommend", _application(again, evidence.application), *folders])
    if best is None:
        return "Measure it", _changed(again)
    if answer.verdict == MET:
        if configuration is None:
            return "Write the page and the files to use it", f"{ask} --output recommendation"
        confirm = shlex.join(["k8sdds", "run", str(configuration / "confirm.yaml")])
        return "Measure it again with the files to use it", confirm
    if answer.verdict == NOT_MET:
        return "Allow more choices, or change a limit and ask again without measuring", ask
    return _decide(evidence, best, again)


def _decide(evidence: Evidence, best: Ranked, again: list[str]) -> tuple[str, str]:
    """Return how to decide the requirements of the most promising configuration."""
    application, trials = evidence.application, evidence.trials
    wanted, options = [], []
    seconds = application.duration_s or trial_length.default_s(application)
    if best.longer_s:
        seconds = max(best.longer_s, trial_length.default_s(application))
        wanted.append(f"trials of {seconds:g} s")
    # The user may have accepted longer trials at the prompt.
    if best.longer_s or (evidence.command and application.duration_s):
        options += ["--duration", f"{seconds:g}"]
    # One repetition has no interval; values that are missing need no more repetitions than the others.
    if best.further or best.option.repetitions == 1:
        usual = _REPETITIONS if best.option.repetitions == 1 else application.repetitions
        repetitions = max(best.option.repetitions + best.further, usual)
        wanted.append(f"about {repetitions} repetitions")
        options += ["--repeat", str(repetitions)]
        trials = math.ceil(trials * repetitions / max(best.option.repetitions, 1))
        if "recommend" in evidence.command:
            # A search measures another configuration in the same rounds.
            added = 2 * application.cells * (repetitions - best.option.repetitions)
            trials = max(evidence.trials + added, racing.MIN_SEARCH_TRIALS)
            options += ["--max-trials", str(trials)]
    takes_s = trials * (seconds + application.warmup_s + preflight.OVERHEAD_S)
    what = f"To decide it, measure {' and '.join(wanted) or 'all flows'} (about {format_duration(takes_s)})"
    if not wanted and best.option.rejected and evidence.command:
        what = "To decide it, measure the trials without a valid attempt again"
        return what, shlex.join(["k8sdds", "run", "--resume", *evidence.folders, "--retry-failed"])
    if not wanted:
        what = _obstacle(best) or what
    if 2 * evidence.disturbed > evidence.trials:
        what = (
            f"Stop other work on these machines, which disturbed {evidence.disturbed} of {evidence.trials} trials."
            f" {what}"
        )
    return what, _changed(again, options)


def _obstacle(best: Ranked) -> str:
    """Return what to do if neither longer trials nor further repetitions decide; empty if flows were not measured."""
    option = best.option
    if option.rejected:
        return f"To decide it, measure {option.describe()} again: a trial of it has no valid attempt"
    undecided = [each for each in best.judgements if each.verdict == UNDECIDED]
    for each in undecided:
        rows, metric = list(rows_of(each.requirement, option.trials)), each.requirement.metric
        if each.value is None and missing.reason(rows, metric):
            return (
                f"To decide about {each.requirement.describe()} ({each.why}), {missing.remedy(rows, metric)}"
            )
    if all(option.trials.values()) and any(each.value is not None for each in undecided):
        return (
            f"A mean is so close to its limit that {MAX_FURTHER:,} repetitions would not decide it: change the limit or"
            " allow more choices, and measure again"
        )
    return ""


def _changed(command: Sequence[str], options: Sequence[str] = ()) -> str:
    kept, skip = [], False
    for word in command:
        name, has_value, _ = word.partition("=")
        if skip or name in (*_LEFT_OUT, *options[::2]):
            skip = not skip and not has_value
        else:
            kept.append(word)
    return shlex.join([*kept, *options])


def _application(command: Sequence[str], application: Application) -> str:
    """Return the name or path of the application in a command line."""
    for before, word in itertools.pairwise(command):
        if before in ("recommend", "run", "--application") and not word.startswith("-"):
            return word
    return application.name
