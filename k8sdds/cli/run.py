"""`k8sdds run`: measure an experiment, or resume an interrupted campaign."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from k8sdds.cli.options import (
    Context,
    Duration,
    Image,
    Kubeconfig,
    Meter,
    Namespace,
    Networks,
    Paper,
    PodNetwork,
    PskFile,
    Repeat,
    Seed,
    Settings,
    TestbedName,
    complete_experiments,
)
from k8sdds.cli.terminal import console, format_duration
from k8sdds.cli.testbed import open_testbed, select
from k8sdds.results.run_folder import CAMPAIGN, RunFolder
from k8sdds.system.errors import Aborted, InputError, Interrupted, InvalidTrials
from k8sdds.testbeds import selection
from k8sdds.testbeds.selection import LAB, SelectedTestbed

SHOW_CURSOR = b"\x1b[?25h"
STOPPED_AT_ONCE = b"\nk8sdds: stopped at once; remove leftovers: k8sdds clean\n"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    experiment: Annotated[
        str | None,
        typer.Argument(
            help="Name of an experiment (see: k8sdds list), or path of a YAML file.",
            autocompletion=complete_experiments,
        ),
    ] = None,
    network: Networks = None,
    repeat: Repeat = None,
    duration: Duration = None,
    settings: Settings = None,
    paper: Paper = False,
    seed: Seed = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Run folder to create. Default: runs/TIME-EXPERIMENT."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run all preflight checks without measuring.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option("--resume", help="Measure the missing trials of this run folder.")
    ] = None,
    on: TestbedName = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    pod_network: PodNetwork = None,
    image: Image = None,
    meter: Meter = None,
    psk_file: PskFile = None,
) -> None:
    """Measure an experiment on the current testbed and write its report.

    Press Ctrl-C once to stop cleanly and keep the results so far (continue with --resume); press it twice
    to stop at once.
    """
    changes = (network, repeat, duration, settings, seed, output)
    if resume is not None:
        if experiment is not None or paper or dry_run or any(change is not None for change in changes):
            raise InputError(
                "--resume continues a campaign unchanged",
                "give no experiment and no changes; testbed options are allowed",
            )
        testbed_options = (on, kubeconfig, context, namespace, pod_network, image, meter)
        # A campaign continues on its first testbed unless options select another one.
        original = RunFolder.open(resume).reached if all(o is None for o in testbed_options) else None
        _resume(resume, selection.of(original) if original else select(*testbed_options), psk_file)
        return
    if experiment is None:
        raise InputError("no experiment given", "see: k8sdds list; to start: k8sdds run quickstart")
    from k8sdds.campaign import experiments

    loaded = experiments.load(experiment)
    changed = experiments.changed(loaded, network or (), settings or (), repeat, duration, paper)
    if network and changed.baseline not in network:
        console().print(f"The baseline {changed.baseline} is measured too: overheads are relative to it.")
    selected = select(on, kubeconfig, context, namespace, pod_network, image, meter)
    measure(changed, seed, output, dry_run, selected, psk_file, network or ())


def measure(
    experiment: Any,
    seed: int | None,
    output: Path | None,
    dry_run: bool,
    selected: SelectedTestbed | None = None,
    psk_file: Path | None = None,
    required: Sequence[str] = (),
) -> None:
    """Measure an experiment and write its report.

    Args:
        experiment: The experiment to measure.
        seed: Seed of the random order of trials; None: a random seed.
        output: The run folder to create; None: runs/TIME-EXPERIMENT.
        dry_run: Stop after the preflight checks.
        selected: The testbed; None: the lab.
        psk_file: File with the pre-shared key of the lab's IPsec networks.
        required: Networks that the testbed must have; others are left out if the testbed does not have them.

    Raises:
        InvalidTrials: Trials without a valid attempt remain; raised after the report is written.
    """
    from k8sdds.campaign import campaign, preflight
    from k8sdds.campaign.expansion import expand

    selected = selected or SelectedTestbed()
    name = campaign.campaign_name(experiment.name)
    folder = output or Path("runs") / name
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    console().print(f"Testbed: {_describe(selected)}", highlight=False)
    with _handle_signals(folder):
        with open_testbed(selected, name, experiment.name, psk_file) as testbed:
            experiment, left_out = testbed.supported_subset(experiment, required)
            if left_out:
                console().print(
                    f"Left out because the testbed does not have them: {', '.join(left_out)}", highlight=False
                )
            expansion = expand(experiment)
            preflight.refuse(preflight.check(expansion, testbed))
            trials = len(expansion.trials(testbed.name))
            _announce(testbed, f"{experiment.name}: {trials} trials", preflight.estimate_s(expansion))
            if dry_run:
                console().print(
                    f"Dry run: all checks passed. Nothing was measured. The run folder would be {folder}"
                )
                return
            _require_free_folder(folder)
            with _progress(experiment.baseline, expansion) as progress:
                failed = _execute(campaign.start(expansion, testbed, folder, name, seed, progress))
        _report(folder, failed)


def _resume(folder: Path, selected: SelectedTestbed, psk_file: Path | None) -> None:
    from k8sdds.campaign import campaign, experiments
    from k8sdds.campaign.expansion import expand
    from k8sdds.results.run_folder import EXPERIMENT

    run_folder = RunFolder.open(folder)
    experiment = experiments.load(str(folder / EXPERIMENT))
    expansion = expand(experiment)
    # The original name lets the testbed find and remove leftovers of a killed campaign.
    name = run_folder.campaign.get("campaign") or campaign.campaign_name(experiment.name)
    console().print(f"Testbed: {_describe(selected)}", highlight=False)
    with _handle_signals(folder):
        with open_testbed(selected, name, experiment.name, psk_file) as testbed:
            _announce(testbed, f"{experiment.name}: resuming {folder}", None)
            with _progress(run_folder.campaign.get("baseline", experiment.baseline), expansion) as progress:
                failed = _execute(campaign.resume(run_folder, testbed, progress))
        _report(folder, failed)


def _describe(selected: SelectedTestbed) -> str:
    """Describe the testbed in one line, the first line that `run` prints."""
    if selected.testbed != LAB:
        return selected.describe()
    how = "as root" if os.geteuid() == 0 else "without root"
    return f"lab (network namespaces on this machine, {how})"


def _execute(started: Any) -> InvalidTrials | None:
    """Run a campaign; return InvalidTrials instead of raising it, so that the report is written first."""
    try:
        started.execute()
    except InvalidTrials as error:
        return error
    return None


def _report(folder: Path, failed: InvalidTrials | None) -> None:
    from k8sdds import report

    path = report.write_report(RunFolder.open(folder), console())
    console().print(f"\nReport: {path}", highlight=False)
    if failed:
        raise failed


def _announce(testbed: Any, what: str, seconds: float | None) -> None:
    takes = f", about {format_duration(seconds)}" if seconds is not None else ""
    console().print(f"{what}{takes}", highlight=False)
    for interference in testbed.interference():
        console().print(f"Note: {interference}", highlight=False)


def _require_free_folder(folder: Path) -> None:
    """Check that the run folder can be created or is empty, before networks are built."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"cannot write to {nearest}", "choose another folder: --output")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(
            f"{folder} already exists",
            f"continue it: k8sdds run --resume {folder}; or choose another folder: --output",
        )


@contextmanager
def _progress(baseline: str, expansion: Any) -> Iterator[Any]:
    from k8sdds.campaign import preflight
    from k8sdds.cli.run_progress import Progress

    trials = len(expansion.cells) * expansion.experiment.repetitions
    with Progress(baseline, preflight.estimate_s(expansion) / trials) as progress:
        yield progress


@contextmanager
def _handle_signals(folder: Path) -> Iterator[None]:
    """Stop the campaign cleanly on the first signal and at once on the second one.

    Raises:
        Interrupted: Ctrl-C.
        Aborted: SIGTERM or SIGHUP.
    """
    received: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            # The sandboxes end with this process, because their holders wait for the end of a pipe.
            os.write(2, (SHOW_CURSOR if sys.stderr.isatty() else b"") + STOPPED_AT_ONCE)
            os._exit(130)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield
    except KeyboardInterrupt:
        started = (folder / CAMPAIGN).exists()
        kept = "; the results so far are kept" if started else "; nothing was measured"
        remedy = f"continue: k8sdds run --resume {folder}" if started else ""
        if received and received[-1] != signal.SIGINT:
            raise Aborted(f"stopped by {signal.Signals(received[-1]).name}{kept}", remedy) from None
        raise Interrupted(f"interrupted{kept}", remedy) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
