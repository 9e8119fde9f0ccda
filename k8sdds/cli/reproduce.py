"""`k8sdds reproduce`: measure what the claims of a study need, and judge the claims."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import (
    ClaimsFile,
    ClusterOptions,
    DryRun,
    Duration,
    Repeat,
    RetryFailed,
    Seed,
    TestbedName,
)
from k8sdds.cli.output import Output
from k8sdds.cli.run import measure, resume_measuring
from k8sdds.cli.terminal import console, print_line, print_step
from k8sdds.cli.testbed import select
from k8sdds.results.run_folder import RUNS, RunFolder
from k8sdds.system.errors import InputError, InvalidTrials, PrerequisiteError
from k8sdds.system.files import require_new
from k8sdds.system.numbers import format_duration
from k8sdds.testbeds import selection
from k8sdds.testbeds.selection import LAB

if TYPE_CHECKING:
    from k8sdds.claims.model import Claim
    from k8sdds.claims.study import Plan, PlannedCampaign, StudyFolder
    from k8sdds.model.experiment import Experiment

app = Commands()


@app.add(
    "k8sdds reproduce k8sdds-paper --dry-run",
    "k8sdds reproduce k8sdds-paper flannel-vxlan-slower --with runs/paper",
    "k8sdds reproduce --resume runs/20261123T021500Z-k8sdds-paper",
)
def reproduce(
    names: Annotated[
        list[str] | None,
        option(
            "STUDY [CLAIM]: Name of a study, or path of a claims file; then ids of its claims. Default: all its"
            " claims. Without STUDY: that of --claims. See: k8sdds list studies.",
            show_default=False,
        ),
    ] = None,
    file: ClaimsFile = "k8sdds-paper",
    with_: Annotated[
        list[Path] | None, "--with RUN: Also judge this run folder, such as an imported one."
    ] = None,
    repeat: Repeat = None,
    duration: Duration = None,
    seed: Seed = None,
    resume: Annotated[
        Path | None, "--resume FOLDER: Measure what is missing in this folder of a study."
    ] = None,
    retry_failed: RetryFailed = False,
    on: TestbedName = None,
    output: Annotated[
        Path | None,
        "--output -o FOLDER: Folder to create for the runs and verdicts. Default: runs/TIME-STUDY.",
        "Output",
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Measure the experiments of a study and print the verdicts on its claims.

    Claims with the same experiment share one campaign.
    If the testbed cannot test a claim, the reason is printed instead of a verdict.
    """
    from k8sdds.claims.study import StudyFolder

    if resume is not None:
        changes = (names, with_, repeat, duration, seed, on, output)
        if dry_run or any(change for change in changes):
            raise InputError("--resume continues a study unchanged", "give no study and no changes")
        _measure(StudyFolder.open(resume), retry_failed)
        return
    if retry_failed:
        raise InputError("--retry-failed continues a study", "name its folder: --resume FOLDER")
    if not names:
        raise InputError("no study given", "see: k8sdds list studies")
    _start(names, file, with_ or (), (repeat, duration, seed), on, output, dry_run)


def _start(
    names: Sequence[str],
    file: str,
    with_: Sequence[Path],
    changes: tuple[int | None, float | None, int | None],
    on: str | None,
    output: Path | None,
    dry_run: bool,
) -> None:
    """Plan and check a study, and measure it unless it is a dry run."""
    from k8sdds import claims as claim_files
    from k8sdds.campaign import preflight
    from k8sdds.campaign.expansion import expand
    from k8sdds.campaign.start import campaign_name
    from k8sdds.claims import study

    file, ids = _study_and_claims(names, file)
    loaded = claim_files.load(file)
    claims = [claim_files.find(loaded, id_) for id_ in dict.fromkeys(ids)] or loaded.claims
    also = [str(RunFolder.open(path).path.absolute()) for path in with_]
    selected = select(on, ClusterOptions())
    campaigns = study.campaigns(claims, in_lab=selected.testbed == LAB)
    if not (campaigns or also or dry_run):
        reasons = "\n".join(f"{claim.id}: {claim.because}" for claim in claims)
        raise InputError(
            f"the testbed {selected.name or selected.testbed} cannot test these claims:\n{reasons}",
            "judge published data instead: k8sdds import, then --with RUN",
        )
    _announce(campaigns, claims)
    plan = study.Plan(
        only=ids, campaigns=campaigns, repetitions=changes[0], duration_s=changes[1], seed=changes[2],
        testbed=dataclasses.asdict(selected), also=also,
    )  # fmt: skip
    for campaign in campaigns:
        preflight.refuse(preflight.contradictions(expand(_experiment(plan, campaign))))
    folder = output or RUNS / campaign_name(loaded.name)
    require_new(folder, study.OTHER_FOLDER)
    if not dry_run:
        _measure(study.StudyFolder.create(folder, file, plan))


def _study_and_claims(names: Sequence[str], file: str) -> tuple[str, list[str]]:
    """Return the claims file that the arguments select, and the ids of claims; no ids: all claims."""
    from k8sdds.claims import CLAIMS

    first = names[0]
    if first in CLAIMS.names() or CLAIMS.is_path(first):
        return first, list(names[1:])
    return file, list(names)


def _announce(campaigns: Sequence[PlannedCampaign], claims: Sequence[Claim]) -> None:
    """Print the campaigns with their durations, and the claims that are not measured."""
    for campaign in campaigns:
        time = f"about {format_duration(60 * campaign.minutes)}" if campaign.minutes else "unknown duration"
        print_line(f"{', '.join(campaign.claims)}: {campaign.command} ({time})")
    measured = {claim_id for campaign in campaigns for claim_id in campaign.claims}
    for claim in claims:
        if claim.id not in measured:
            print_line(f"{claim.id}: not measured: {claim.because}")
    if len(campaigns) > 1:
        total = format_duration(60 * sum(campaign.minutes for campaign in campaigns))
        print_line(f"{len(campaigns)} campaigns, about {total}")


def _measure(folder: StudyFolder, retry_failed: bool = False) -> None:
    """Measure what is missing, and write and print the verdicts."""
    command = f"k8sdds reproduce --resume {shlex.quote(str(folder.path))}"
    print_step(f"Folder: {folder.path} (continue after an interruption: {command})")
    selected = selection.parse(folder.plan.testbed)
    errors: list[InvalidTrials | PrerequisiteError] = []
    obstacles: dict[str, str] = {}
    for number, campaign in enumerate(folder.plan.campaigns, 1):
        if folder.is_complete(campaign, retry_failed):
            continue
        print_step(f"\nCampaign {number} of {len(folder.plan.campaigns)}: {campaign.command}")
        try:
            path, seed = folder.run(campaign), folder.plan.seed
            if folder.is_started(campaign):
                resume_measuring(path, selected, None, retry_failed, command)
            else:
                measure(_experiment(folder.plan, campaign), seed, path, False, selected, command=command)
        except InvalidTrials as error:
            errors.append(
                InvalidTrials(error.message, f"see the reports; try again: {command} --retry-failed")
            )
        except PrerequisiteError as error:
            print_step(f"Not measured: {error}")
            errors.append(PrerequisiteError(error.message, f"{error.remedy}; then: {command}"))
            obstacles |= dict.fromkeys(campaign.claims, error.message)
    _judge(folder, obstacles)
    if errors:
        raise errors[0]


def _experiment(plan: Plan, campaign: PlannedCampaign) -> Experiment:
    from k8sdds.campaign import applications
    from k8sdds.campaign.experiments import Changes

    changes = Changes((), campaign.settings, plan.repetitions, plan.duration_s)
    return applications.load_experiment(campaign.experiment, changes)


def _judge(folder: StudyFolder, obstacles: Mapping[str, str]) -> None:
    """Judge the claims, write the verdicts into the folder, and print them."""
    from k8sdds.claims.judge import judge
    from k8sdds.report import claims as claims_report

    runs: list[Any] = [*folder.started(), *map(RunFolder.open, folder.plan.also)]
    judged = judge(folder.claims, runs, folder.plan.only, obstacles)
    console().print()
    found = claims_report.findings(folder.claims, judged)
    found.show(console())
    Output().print_paths(found.write(folder.path))
