"""`reproduce`: measure what a claim needs, and judge it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from k8sdds.cli.options import Repeat
from k8sdds.cli.terminal import console, format_duration
from k8sdds.system.errors import InputError, InvalidTrials


def reproduce(
    claim_ids: Annotated[list[str], typer.Argument(metavar="CLAIM…", help="Ids; see: k8sdds claims --list.")],
    file: Annotated[str, typer.Option("--claims", help="Claims by name, or a YAML file.")] = "k8sdds-paper",
    with_: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="RUN", help="Judge this run folder too, such as an imported one."),
    ] = None,
    repeat: Repeat = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the random order of trials.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the run folders; else runs/.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show commands and time; measure nothing.")
    ] = False,
) -> None:
    """Measure what claims need in the lab, and print their verdicts.

    Claims that need the same experiment share one campaign. A claim that nothing here can test is not
    measured; its reason is printed.
    """
    from k8sdds import claims as room
    from k8sdds.campaign import campaign, experiments
    from k8sdds.claims.judge import judge
    from k8sdds.cli.run import measure
    from k8sdds.report import claims as shown
    from k8sdds.results.run_folder import RunFolder

    loaded = room.load(file)
    wanted = [room.find(loaded, claim_id) for claim_id in dict.fromkeys(claim_ids)]
    known = [RunFolder.open(path) for path in with_ or ()]
    testable = [claim for claim in wanted if claim.lab != "no" and claim.experiment]
    runs = []
    invalid = None
    for command, claim in {claim.command: claim for claim in testable}.items():
        ids = ", ".join(one.id for one in testable if one.command == command)
        time = f"about {format_duration(60 * claim.minutes)}" if claim.minutes else "time not stated"
        console().print(f"{ids}: {command} ({time})", highlight=False, markup=False)
        if dry_run:
            continue
        experiment = experiments.changed(experiments.load(claim.experiment), (), claim.settings, repeat)
        folder = (output or Path("runs")) / campaign.campaign_name(claim.experiment)
        try:
            measure(experiment, seed, folder, False)
        except InvalidTrials as error:
            invalid = error
        runs.append(RunFolder.open(folder))
    if dry_run:
        for claim in wanted:
            if claim not in testable:
                console().print(f"{claim.id}: not measured: {claim.because}", highlight=False, markup=False)
        return
    if not runs and not known:
        reasons = "\n".join(f"{claim.id}: {claim.because}" for claim in wanted)
        raise InputError(
            f"the lab cannot test this:\n{reasons}", "judge data of others: k8sdds import, then --with RUN"
        )
    console().print()
    shown.show(loaded, judge(loaded, [*runs, *known], [claim.id for claim in wanted]), console())
    if invalid is not None:
        raise invalid
