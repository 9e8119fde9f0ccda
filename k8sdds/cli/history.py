"""`k8sdds history`: find changes among the runs of a repeated experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import FailIf, OutputFolder, Quantities, check_quantities
from k8sdds.cli.output import RowsOutput
from k8sdds.cli.terminal import console
from k8sdds.system.errors import InputError

if TYPE_CHECKING:
    from k8sdds.analysis.history import Run
    from k8sdds.results.run_folder import RunFolder

app = Commands()


@app.add("k8sdds history runs/nightly-*", "k8sdds history runs/nightly-* --output out --fail-if 'worse'")
def history(
    folders: Annotated[
        list[str], typer.Argument(help="Run folders of the same experiment, in any order.", metavar="FOLDER…")
    ],
    overheads: Annotated[
        bool,
        typer.Option("--overheads", help="Use overheads relative to each run's baseline instead of levels."),
    ] = False,
    quantity: Quantities = None,
    output: OutputFolder = None,
    fail_if: FailIf = None,
    *,
    out: RowsOutput,
) -> None:
    """Find the runs since which a metric of a repeated experiment is different.

    Requires at least 13 run folders. A history without changes shows one with a probability of about 1 %, over all
    its metrics. --output also writes JUnit XML and OpenMetrics.
    """
    from k8sdds.analysis import fail_condition
    from k8sdds.analysis import history as analysis
    from k8sdds.report import history as history_report
    from k8sdds.results.run_folder import RunFolder

    check_quantities(quantity)
    opened = [RunFolder.open(folder) for folder in folders]
    paths = [run.path.resolve() for run in opened]
    if repeated := [run.path for run in opened if paths.count(run.path.resolve()) > 1]:
        raise InputError(f"{repeated[-1]} is named more than once", "name each run folder once")
    runs, found = analysis.history([_run(run) for run in opened], quantity or (), overheads)
    rows = analysis.rows(runs, found)
    out.print(
        history_report.data(runs, found),
        lambda: history_report.show(runs, found, overheads, console()),
        rows=[{name: row[name] for name in analysis.COLUMNS} for row in rows],
    )
    if output is not None:
        out.print_paths(history_report.write(runs, found, overheads, output))
    if fail_if is not None:
        fail_condition.fail_if(rows, fail_if)


def _run(run: RunFolder) -> Run:
    from k8sdds.analysis import overhead
    from k8sdds.analysis.conditions import UNIT
    from k8sdds.analysis.history import Run
    from k8sdds.results import tidy

    rows = overhead.plain_rows(tidy.best(tidy.frame(run)))
    if not rows:
        raise InputError(f"{run.path} has no valid trial", f"see: k8sdds report {run.path}")
    baseline = run.baseline({row[UNIT] for row in rows})
    return Run(str(run.path), str(run.campaign.get("started_at") or ""), rows, baseline)
