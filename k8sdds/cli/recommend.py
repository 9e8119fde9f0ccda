"""`k8sdds recommend`: choose the configuration of an application."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import Changes, ClusterOptions, DryRun, PskFile, Seed, TestbedName, any_given
from k8sdds.cli.output import DataOutput
from k8sdds.cli.run import conclude, measure
from k8sdds.cli.terminal import agrees, confirm
from k8sdds.cli.testbed import select
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError

if TYPE_CHECKING:
    from k8sdds.model.application import Application
    from k8sdds.recommend.evidence import Evidence

app = Commands()


ApplicationFile = Annotated[
    str, "APPLICATION: Name of an application (see: k8sdds list applications), or path of a YAML file."
]
From = Annotated[
    list[Path] | None,
    "--from FOLDER: Answer from this run folder, without measuring (repeatable).",
    "Selection",
]
MaxTrials = Annotated[
    int | None,
    option(
        "--max-trials N: Most trials of the search. Default: a fifth of those that would measure all"
        " configurations, at most 1,000.",
        "Selection",
        min=4,
    ),
]
NewFolder = Annotated[
    Path | None,
    "--output -o FOLDER: Run folder to create; with --from, folder for the page and the files. Default:"
    " runs/TIME-APPLICATION; with --from, none.",
    "Output",
]
Yes = Annotated[
    bool,
    "--yes -y: Measure trials that are long enough for every requirement, however long it takes, without"
    " a question.",
]
Quick = Annotated[
    bool,
    "--quick: Measure trials as long as the file states, even if some requirement then stays undecided."
    " The default without a terminal.",
]


@app.add(
    "k8sdds recommend teleoperation",
    "k8sdds recommend ./my-robot.yaml --link wifi-roaming --max-trials 60",
    "k8sdds recommend ./my-robot.yaml --from runs/a --from runs/b --json",
)
def recommend(
    application: ApplicationFile,
    folders: From = None,
    max_trials: MaxTrials = None,
    *,
    changes: Changes,
    seed: Seed = None,
    on: TestbedName = None,
    cluster: ClusterOptions,
    psk_file: PskFile = None,
    output: NewFolder = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    quick: Quick = False,
    out: DataOutput,
) -> None:
    """Choose network and DDS settings for an application: search by measuring, or answer from run folders.

    Writes a page and the configuration files of the choice. The search continues with: k8sdds run --resume FOLDER
    """
    from k8sdds.campaign import applications
    from k8sdds.campaign.racing import searched
    from k8sdds.recommend.answer import answer

    loaded = applications.load(application, changes.arguments)
    if folders:
        measuring = (max_trials, changes.repeat, changes.duration, seed, on, cluster, psk_file)
        if any_given(*measuring, dry_run or yes or quick or None):
            raise InputError(
                "--from measures nothing",
                "leave out the options for measuring; allowed: --network, --link, --set, --output and --format",
            )
        conclude(answer(_evidence(loaded, folders)), output, out)
        return
    if yes and quick:
        raise InputError("--yes and --quick exclude each other", "leave out one of them")
    if not out.is_text:
        raise InputError("--json and --format are for answers from run folders", "give --from FOLDER")

    asks = not (yes or quick or dry_run) and sys.stdin.isatty() and sys.stdout.isatty()
    measure(
        searched(loaded, max_trials), seed, output, dry_run, select(on, cluster), psk_file, changes.network or (),
        longer=lambda: agrees("Measure these longer trials?", False) if asks else yes,
        start=lambda: confirm("Start this search?", not asks),
    )  # fmt: skip


def _evidence(application: Application, folders: list[Path]) -> Evidence:
    from k8sdds import links
    from k8sdds.campaign import applications
    from k8sdds.recommend import evidence

    if len(folders) == 1:
        run = RunFolder.open(folders[0])
        own = evidence.own_application(run)
        if (
            own is not None
            and _sent(own.application) == _sent(application)
            and links.allows(application.link.link, own.link[0].link)
        ):
            # What is required or may be chosen may have changed since then, but what was measured has not.
            return evidence.of_own_run(run, applications.changed_in(own, application))
    return evidence.of_folders(application, [str(RunFolder.open(folder).path) for folder in folders])


def _sent(application: Application) -> tuple[Any, ...]:
    """Return the flows of an application without their requirements."""
    return (
        application.together,
        application.at_once and application.graph().text(),
        *(
            (flow.name, flow.sent | {"schedule": flow.schedule_sha256}, flow.reliability)
            for flow in application.flows
        ),
    )
