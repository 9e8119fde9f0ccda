"""`k8sdds reproduce`: measure the experiments of claims and judge the claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.help import OUTPUT
from k8sdds.cli.options import ClaimsFile, DryRun, Repeat, Seed
from k8sdds.cli.terminal import console, format_duration
from k8sdds.system.errors import InputError, InvalidTrials


def reproduce(
    claim_ids: Annotated[
        list[str], typer.Argument(metavar="CLAIM", help="Ids of claims; see: k8sdds claims --list.")
    ],
    file: ClaimsFile = "k8sdds-paper",
    with_: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="RUN", help="Also judge this run folder, such as an imported one."),
    ] = None,
    repeat: Repeat = None,
    seed: Seed = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            help="Parent of the new run folders. Default: runs/.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Measure the experiments of claims in the lab and print the verdicts.

    Claims with the same experiment share one campaign.
    If the lab cannot test a claim, the reason is printed instead of a verdict.
    """
    from k8sdds import claims as claim_files
    from k8sdds.campaign import experiments
    from k8sdds.campaign.start import campaign_name
    from k8sdds.claims.judge import judge
    from k8sdds.cli.run import measure
    from k8sdds.report import claims as claims_report
    from k8sdds.results.run_folder import RunFolder

    loaded = claim_files.load(file)
    selected = [claim_files.find(loaded, claim_id) for claim_id in dict.fromkeys(claim_ids)]
    existing = [RunFolder.open(path) for path in with_ or ()]
    testable = [claim for claim in selected if claim.lab != "no" and claim.experiment]
    runs = []
    invalid = None
    for command, claim in {claim.command: claim for claim in testable}.items():
        ids = ", ".join(same.id for same in testable if same.command == command)
        time = f"about {format_duration(60 * claim.minutes)}" if claim.minutes else "unknown duration"
        console().print(f"{ids}: {command} ({time})")
        if dry_run:
            continue
        experiment = experiments.changed(experiments.load(claim.experiment), (), claim.settings, repeat)
        folder = (output or Path("runs")) / campaign_name(claim.experiment)
        try:
            measure(experiment, seed, folder, False)
        except InvalidTrials as error:
            invalid = error
        runs.append(RunFolder.open(folder))
    if dry_run:
        for claim in selected:
            if claim not in testable:
                console().print(f"{claim.id}: not measured: {claim.because}")
        return
    if not runs and not existing:
        reasons = "\n".join(f"{claim.id}: {claim.because}" for claim in selected)
        raise InputError(
            f"the lab cannot test these claims:\n{reasons}",
            "judge published data instead: k8sdds import, then --with RUN",
        )
    console().print()
    judged = judge(loaded, [*runs, *existing], [claim.id for claim in selected])
    claims_report.show(loaded, judged, console())
    if invalid is not None:
        raise invalid
