"""`k8sdds compare` and `k8sdds history`: compare run folders in pairs, and find changes among many."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import Quantities, check_quantities
from k8sdds.cli.output import Consequences, RowsOutput, TablesOutput
from k8sdds.results.run_folder import RunFolder, without_copies
from k8sdds.system.errors import InputError
from k8sdds.system.yaml_text import nearest

if TYPE_CHECKING:
    from k8sdds.analysis.capacities import Found
    from k8sdds.analysis.comparison import Side
    from k8sdds.analysis.history import Run
    from k8sdds.system.grouping import Row

app = Commands()


@app.add(
    "k8sdds compare runs/monday runs/tuesday runs/friday --overheads",
    "k8sdds compare @last@host @last@flannel-vxlan --output out",
    "k8sdds compare runs/a runs/b --fail-if 'worse and change_percent < -5'",
)
def compare(
    names: Annotated[
        list[str],
        option(
            "A B…: Two or more run folders, or networks of them: FOLDER@LABEL. @last: the newest one in runs/.",
            show_default=False,
        ),
    ],
    overheads: Annotated[
        bool, "--overheads: Compare overheads relative to each side's baseline instead of levels."
    ] = False,
    quantity: Quantities = None,
    *,
    after: Consequences,
    out: TablesOutput,
) -> None:
    """Compare run folders, or networks of run folders, cell by cell.

    Compares every pair. Shows ratios with confidence intervals, and significance corrected for the number of
    comparisons in all pairs.
    """
    from k8sdds.analysis import comparison
    from k8sdds.report import comparison as comparison_report

    check_quantities(quantity)
    if len(names) < 2:
        raise InputError(
            "compare requires at least two run folders or networks", "such as: k8sdds compare A B"
        )
    read = cache(_trials)  # several sides can be networks of one folder
    sides = [_side(name, read) for name in names]
    if overheads and any(side.label for side in sides):
        raise InputError("--overheads compares run folders, not networks", "leave out @LABEL")
    compared = comparison.compare_all(sides, quantity or (), overheads)
    after.print(comparison_report.findings(sides, compared, overheads), out)


def _trials(path: Path) -> tuple[list[Row], list[Found]]:
    """Return the last valid attempts of the trials of a run folder, and its capacity searches."""
    from k8sdds.analysis import capacities
    from k8sdds.results import tidy

    run = RunFolder(path)
    rows = tidy.rows(run)
    return tidy.best(rows), capacities.found(tidy.probes(rows), run.campaign.get("repetitions"))


def _side(text: str, read: Callable[[Path], tuple[list[Row], list[Found]]]) -> Side:
    """Read `FOLDER` or `FOLDER@LABEL`, where FOLDER can be `@last`, as one side of a comparison."""
    from k8sdds.analysis import capacities
    from k8sdds.analysis.comparison import Side
    from k8sdds.analysis.conditions import UNIT
    from k8sdds.analysis.statistics import confidence_of

    folder, _, label = text.rpartition("@")
    if not folder or Path(text).is_dir():
        folder, label = text, ""
    run = RunFolder.open(folder)
    folder = str(run.path)
    rows, searches = read(run.path)
    if not rows and not searches:
        raise InputError(f"{folder} has no valid trial", f"see: k8sdds report {folder}")
    labels = sorted({row[UNIT] for row in rows} | {one.network for one in searches})
    if label:
        rows = [row for row in rows if row[UNIT] == label]
        searches = [one for one in searches if one.network == label]
        if not rows and not searches:
            raise InputError(f"{folder} has no network {label!r}{nearest(label, labels)}")
    baseline = run.baseline(labels)
    found = capacities.table(searches, baseline)
    name = f"{folder}@{label}" if label else folder
    resolved = str(run.path.resolve())
    return Side(name, resolved, rows, baseline, label or None, found, confidence_of(run.campaign))


@app.add("k8sdds history runs/nightly-*", "k8sdds history runs/nightly-* --output out --fail-if 'worse'")
def history(
    folders: Annotated[list[str], "FOLDER…: Run folders of the same experiment, in any order."],
    overheads: Annotated[
        bool, "--overheads: Use overheads relative to each run's baseline instead of levels."
    ] = False,
    quantity: Quantities = None,
    *,
    after: Consequences,
    out: RowsOutput,
) -> None:
    """Find the runs since which a metric of a repeated experiment is different.

    Requires at least 13 run folders. A history without changes shows one with a probability of about 1 %, over all
    its metrics. --output also writes JUnit XML and OpenMetrics.
    """
    from k8sdds.analysis import history as analysis
    from k8sdds.report import history as history_report

    check_quantities(quantity)
    opened = [RunFolder.open(folder) for folder in folders]
    distinct = without_copies(opened)
    if repeated := [run.path for run in opened if run not in distinct]:
        raise InputError(
            f"{repeated[0]} is named more than once, or is a copy of another folder", "name each run once"
        )
    found = analysis.history([_run(run) for run in opened], quantity or (), overheads)
    after.print(history_report.findings(found, overheads), out)


def _run(run: RunFolder) -> Run:
    from k8sdds.analysis.conditions import UNIT
    from k8sdds.analysis.history import Run
    from k8sdds.results import tidy

    rows = tidy.best(tidy.rows(run))
    if not rows:
        raise InputError(f"{run.path} has no valid trial", f"see: k8sdds report {run.path}")
    baseline = run.baseline({row[UNIT] for row in rows})
    return Run(str(run.path), str(run.campaign.get("started_at") or ""), rows, baseline)
