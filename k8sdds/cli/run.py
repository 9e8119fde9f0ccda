"""`k8sdds run`: measure an experiment, or resume an interrupted campaign."""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import (
    Changes,
    ClusterOptions,
    DryRun,
    ExperimentArgument,
    Paper,
    PskFile,
    RetryFailed,
    Seed,
    TestbedName,
    any_given,
)
from k8sdds.cli.output import Output
from k8sdds.cli.progress import CampaignProgress
from k8sdds.cli.terminal import console, print_line, print_note, print_step
from k8sdds.cli.testbed import open_testbed, select
from k8sdds.results.run_folder import CAMPAIGN, EXPERIMENT, RUNS, RunFolder
from k8sdds.system import faults
from k8sdds.system.errors import (
    Aborted,
    InputError,
    Interrupted,
    InvalidTrials,
    RequirementsNotMet,
    RequirementsUndecided,
)
from k8sdds.testbeds import selection
from k8sdds.testbeds.selection import SelectedTestbed

if TYPE_CHECKING:
    from k8sdds.model.experiment import Experiment
    from k8sdds.recommend.answer import Answer

app = Commands()

SHOW_CURSOR = b"\x1b[?25h"
STOPPED_AT_ONCE = b"\nk8sdds: stopped at once; remove leftovers: k8sdds clean\n"


def _percentage(text: str) -> float:
    try:
        return float(text.removesuffix("%"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a percentage, such as 5%") from None


Precision = Annotated[
    float | None,
    option(
        "--precision PERCENT: Repeat until every overhead is known within this many percentage points, such"
        " as 5%.",
        "Selection",
        parser=_percentage,
    ),
]
MaxTime = Annotated[
    float | None,
    "--max-time MINUTES: With --precision: stop after so many minutes of measuring.",
    "Selection",
]
Profile = Annotated[
    bool,
    "--profile: Then run one trial of each network and test with perf: CPU time by component, flame graphs.",
    "Selection",
]
Resume = Annotated[
    Path | None,
    "--resume FOLDER: Measure the missing trials of this run folder. @last: the newest one in runs/.",
]
NewFolder = Annotated[
    Path | None, "--output -o FOLDER: Run folder to create. Default: runs/TIME-EXPERIMENT.", "Output"
]
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@app.add(
    "k8sdds run quickstart",
    "k8sdds run ./my-camera.yaml --set 'payload_bytes=4 KiB' --dry-run",
    "k8sdds run teleoperation --network flannel-hostgw --link wifi-office",
)
def run(
    experiment: Annotated[str | None, ExperimentArgument] = None,
    *,
    changes: Changes,
    precision: Precision = None,
    max_time: MaxTime = None,
    paper: Paper = False,
    profile: Profile = False,
    seed: Seed = None,
    resume: Resume = None,
    retry_failed: RetryFailed = False,
    on: TestbedName = None,
    cluster: ClusterOptions,
    psk_file: PskFile = None,
    output: NewFolder = None,
    dry_run: DryRun = False,
) -> None:
    """Measure an experiment on the current testbed and write its report.

    Of an application, all configurations are measured; `k8sdds recommend` finds the best one with fewer trials.
    Press Ctrl-C once to stop cleanly and keep the results (continue with --resume).
    Press it twice to stop at once.
    """
    if resume is not None:
        if any_given(experiment, changes, precision, max_time, paper or None, profile or None, seed, output):
            raise InputError(
                "--resume continues a campaign unchanged",
                "give no experiment and no changes; testbed options and --dry-run are allowed",
            )
        # It continues on the testbed where it was measured, unless options select another one.
        original = None if any_given(on, cluster) else RunFolder.open(resume).reached
        selected = selection.parse(original) if original else select(on, cluster)
        resume_measuring(resume, selected, psk_file, retry_failed, dry_run=dry_run)
        return
    if retry_failed:
        raise InputError("--retry-failed continues a campaign", "name its run folder: --resume FOLDER")
    selected = select(on, cluster)
    if experiment is None:
        raise InputError("no experiment given", "see: k8sdds list; to start: k8sdds run quickstart")
    from k8sdds.campaign import applications

    wanted = replace(
        changes.arguments, paper=paper, profile=profile, precision_percent=precision, max_time_min=max_time
    )
    changed = applications.load_experiment(experiment, wanted)
    networks = changes.network or ()
    _announce(experiment, changed, networks)
    measure(changed, seed, output, dry_run, selected, psk_file, networks)


def _announce(name: str, experiment: Experiment, networks: Sequence[str]) -> None:
    """Print what else is measured than the user may expect."""
    from k8sdds.model.application import ApplicationExperiment

    if isinstance(experiment, ApplicationExperiment):
        command = f"k8sdds recommend {name}"
        print_step(f"Measures all configurations; fewer trials find the best one: {command}")
    elif networks and experiment.baseline not in networks:
        print_step(f"The baseline {experiment.baseline} is measured too: overheads are relative to it.")


def measure(
    experiment: Experiment,
    seed: int | None,
    output: Path | None,
    dry_run: bool,
    selected: SelectedTestbed,
    psk_file: Path | None = None,
    required: Sequence[str] = (),
    command: str = "",
    longer: Callable[[], bool] = lambda: False,
    start: Callable[[], None] = lambda: None,
) -> None:
    """Measure an experiment and write its report.

    A dry run stops after the preflight checks. `required`, `longer` and `start`, which is `confirm` there, are those of
    `campaign.run.Request`. `command` continues it after an interruption; empty means `k8sdds run --resume FOLDER`.
    """
    from k8sdds.campaign import run as steps
    from k8sdds.campaign.start import campaign_name

    name = campaign_name(experiment.name)
    folder = output or RUNS / name
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    request = steps.Request(experiment, name, folder, seed, required, dry_run, longer, start)
    print_step(f"Testbed: {selected.describe()}")
    with ending(partial(_kept, folder, command)):
        with open_testbed(selected, name, experiment.name, psk_file) as testbed:
            failed = steps.run(request, testbed, Display())
        if not dry_run:
            _report(folder, failed, experiment)


def resume_measuring(
    folder: Path,
    selected: SelectedTestbed,
    psk_file: Path | None = None,
    retry_failed: bool = False,
    command: str = "",
    dry_run: bool = False,
) -> None:
    """Measure the missing trials of a run folder and write its report; arguments and errors as of `measure`."""
    from k8sdds.campaign import experiments
    from k8sdds.campaign import run as steps
    from k8sdds.campaign.start import campaign_name

    run_folder = RunFolder.open(folder)
    folder = run_folder.path
    with faults.explained(f"cannot write to {folder}"):
        run_folder.require_room()
    if not (folder / EXPERIMENT).is_file():
        raise InputError(f"{folder} has no {EXPERIMENT}", "restore it from a copy of the folder")
    experiment = experiments.load(str(folder / EXPERIMENT))
    # The original name lets the testbed find and remove leftovers of a killed campaign.
    name = run_folder.campaign.get("campaign") or campaign_name(experiment.name)
    print_step(f"Testbed: {selected.describe()}")
    with ending(partial(_kept, folder, command)):
        with open_testbed(selected, name, experiment.name, psk_file) as testbed:
            failed = steps.resume(run_folder, experiment, testbed, Display(), retry_failed, dry_run)
        if not dry_run:
            _report(folder, failed, experiment)


class Display:
    """Prints the steps of a run on the terminal (campaign.run)."""

    line = staticmethod(print_step)
    progress = CampaignProgress


def _report(folder: Path, failed: InvalidTrials | None, experiment: Experiment) -> None:
    from k8sdds import report
    from k8sdds.model.application import ApplicationExperiment

    run = RunFolder.open(folder)
    if not isinstance(experiment, ApplicationExperiment):
        report.write_report(run, console())
        if failed:
            raise failed
        return
    from k8sdds.recommend import results
    from k8sdds.recommend.answer import of_run

    found = of_run(run)
    assert found is not None
    # The tables of an application's configurations are long; its recommendation replaces them on the terminal.
    path = report.write_report(run, None, verdict=results.lead(found)[:2])
    print_line(f"\nReport: {path}")
    conclude(found, run.report, Output(), failed)


def conclude(result: Answer, folder: Path | None, out: Output, failed: InvalidTrials | None = None) -> None:
    """Print the answer, and write its page and the files of the configuration.

    Without a folder, no files are written. Trials without a valid attempt are the reason if nothing can be concluded.
    """
    from k8sdds.recommend import files, results
    from k8sdds.recommend.next_step import next_step

    out.print(results.data(result), lambda: results.show(result, console()))
    show = print_step if out.is_text else print_note
    if folder is not None:
        page, *_ = results.write(result, folder)
        show(f"\n{results.heading(result)}: {page}")
        if files.write(result, folder / files.FOLDER):
            show(f"Files of the {result.role} configuration: {folder / files.FOLDER}")
    step = ": ".join(next_step(result, folder / files.FOLDER if folder else None))
    name = result.evidence.application.name
    if result.verdict == "met":
        show(step)
    elif failed is not None and not result.ranked:
        raise failed
    elif result.verdict == "not met":
        raise RequirementsNotMet(f"no measured configuration meets all requirements of {name}", step)
    else:
        undecided = f"it is undecided whether a configuration meets all requirements of {name}"
        raise RequirementsUndecided(undecided, step)


@contextmanager
def ending(kept: Callable[[], tuple[str, str]]) -> Iterator[None]:
    """Stop cleanly on the first signal and at once on the second one. `kept`: end of the message, and its remedy."""
    received: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            # The sandboxes end with this process, because their holders wait for the end of a pipe.
            with suppress(OSError):
                os.write(2, (SHOW_CURSOR if sys.stderr.isatty() else b"") + STOPPED_AT_ONCE)
            os._exit(130)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    # nohup ignores SIGHUP, so that a command outlives its terminal.
    handled = [n for n in STOP_SIGNALS if n != signal.SIGHUP or before[n] != signal.SIG_IGN]
    for number in handled:
        signal.signal(number, handle)
    try:
        yield
    except KeyboardInterrupt:
        state, remedy = kept()
        if received and received[-1] != signal.SIGINT:
            raise Aborted(f"stopped by {signal.Signals(received[-1]).name}{state}", remedy) from None
        raise Interrupted(f"interrupted{state}", remedy) from None
    except Exception as error:
        fault = faults.explain(error)
        state, remedy = kept()
        if fault is None or isinstance(fault, Aborted) or not remedy:
            raise
        raise Aborted(f"{fault.message}{state}", f"{fault.remedy}; then {remedy}") from error
    finally:
        for number in handled:
            signal.signal(number, before[number])


def _kept(folder: Path, command: str) -> tuple[str, str]:
    """Return whether results of a stopped campaign are kept, and how to continue it; empty if it had not started."""
    if command:
        return "; the results so far are kept", f"continue: {command}"
    if not os.path.exists(folder / CAMPAIGN):  # in contrast to Path.exists, it never raises
        return "; nothing was measured", ""
    return "; the results so far are kept", f"continue: k8sdds run --resume {shlex.quote(str(folder))}"
