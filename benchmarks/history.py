"""Measure the false alarm rate and the power of `k8sdds history`.

Simulates histories without a change, judged once, whose consecutive runs are independent or correlated (first-order
autoregressive), with one or several metrics; and histories with a step, judged once. A second table has histories with
a shift that are judged after each of the 5 runs that follow it, as in nightly CI, and a last one counts the new alarms
of histories that are judged after each of 100 runs. With `--run FOLDER…`, the deviations of the repetitions of each
cell, in the order in which they were measured, take the place of normally distributed runs there.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import common
import numpy as np
from numpy.typing import NDArray

from k8sdds.analysis import history, overhead
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.history import MIN_RUNS, find_changes
from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder
from k8sdds.workloads import HEADLINES

Draw = Callable[[int], list[float]]
RUNS = (MIN_RUNS, 20, 40, 100)
CORRELATIONS = (0.0, 0.3, 0.6)
SEVERAL = 5
"""Metrics of a history with several of them."""
STEPS = (2, 3, 5)
"""Sizes of a step, in standard deviations of a run."""
BEFORE, WITHIN = 20, 5
ORDERS = 499
"""Random orders of the simulations of single looks: enough for a level of 1 %, and ten times as fast."""


def main() -> int:
    parser = common.parser(__doc__ or "", common.Defaults(300, 20, what="histories"))
    parser.add_argument(
        "--run", type=Path, nargs="*", default=[], help="run folders with at least 4 repetitions"
    )
    parser.add_argument("--shift", type=float, default=5, help="shift in percent")
    parser.add_argument("--noise", type=float, nargs="*", default=[0.5, 1, 1.5, 2, 3, 5], help="in percent")
    options = common.parse(parser)
    report = common.Report("history", options)
    usual, history.ORDERS = history.ORDERS, ORDERS
    report_false_alarms(report, options.pairs, np.random.default_rng(options.seed))
    report_power(report, options.pairs, np.random.default_rng(options.seed))
    history.ORDERS = usual
    report_shifts(report, options)
    report.show()
    return 0


def autoregressive(
    dice: np.random.Generator, series: int, runs: int, correlation: float
) -> NDArray[np.float64]:
    """Return series of runs with standard deviation 1, in which consecutive runs have this correlation."""
    values = dice.standard_normal((series, runs))
    values[:, 1:] *= math.sqrt(1 - correlation**2)
    for run in range(1, runs):
        values[:, run] += correlation * values[:, run - 1]
    return values


def report_false_alarms(report: common.Report, histories: int, dice: np.random.Generator) -> None:
    """Report how many histories without a change show one."""
    rows = []
    for runs in RUNS:
        for series in (1, SEVERAL):
            row = [f"{runs} runs, {series} {'metric' if series == 1 else 'metrics'}"]
            for correlation in CORRELATIONS:
                alarms = sum(
                    any(find_changes(autoregressive(dice, series, runs, correlation).tolist()))
                    for _ in range(histories)
                )
                report.data[f"false_alarms_{runs}_{series}_{correlation:g}"] = alarms
                row.append(f"{alarms / histories:.1%}")
            common.progress("  ".join(row))
            rows.append(row)
    heads = ["false alarms in histories of", *(f"correlation {value:g}" for value in CORRELATIONS)]
    report.text(common.table(heads, rows))


def report_power(report: common.Report, histories: int, dice: np.random.Generator) -> None:
    """Report how many steps are found at most 2 runs from their place."""
    rows = []
    for runs in RUNS:
        for place, where in ((runs // 2, "in the middle"), (runs - WITHIN, f"{WITHIN} runs before the end")):
            row = [f"{runs} runs, {where}"]
            for correlation in CORRELATIONS[:2]:
                for step in STEPS:
                    found = 0
                    for _ in range(histories):
                        values = autoregressive(dice, 1, runs, correlation)
                        values[:, place:] += step
                        found += is_near(values.tolist(), place)
                    report.data[f"found_{runs}_{place}_{correlation:g}_{step}"] = found
                    row.append(f"{found / histories:.0%}")
            common.progress("  ".join(row))
            rows.append(row)
    heads = ["step found"]
    heads += [f"{step} σ, corr. {correlation:g}" for correlation in CORRELATIONS[:2] for step in STEPS]
    report.text(common.table(heads, rows))


def report_shifts(report: common.Report, options: argparse.Namespace) -> None:
    """Report false alarms and found shifts of histories of single or recorded runs, and alarms of nightly looks."""
    dice = random.Random(options.seed)
    sources: dict[str, Draw] = {
        f"normal, {noise:g} % noise": partial(normal, dice, noise / 100) for noise in options.noise
    }
    if options.run:
        pool = deviations(options.run)
        flat = [value for series in pool for value in series]
        spread = math.sqrt(sum(value**2 for value in flat) / len(flat))
        sources[f"recorded, {100 * spread:.1f} % noise"] = lambda n: recorded(pool, dice, n)
    rows = []
    for name, draw in sources.items():
        alarms = sum(any(find_changes([draw(BEFORE + WITHIN)])) for _ in range(options.pairs))
        found = sum(is_found(draw, math.log1p(options.shift / 100)) for _ in range(options.pairs))
        report.data[name] = {"alarms": alarms, "found": found}
        rows.append((name, f"{alarms} of {options.pairs}", f"{found} of {options.pairs}"))
        common.progress("  ".join(rows[-1]))
    heads = ("runs", f"false alarms in {BEFORE + WITHIN} runs", f"shift found within {WITHIN} runs")
    report.text(common.table(heads, rows))
    histories = max(options.pairs // 50, 1)
    name, draw = list(sources.items())[-1]
    new = sum(new_alarms(draw, 100) for _ in range(histories))
    report.data["new_alarms"] = new / histories
    report.text(
        f"{name}: {new / histories:.2f} new alarms in 100 runs judged one after the other ({histories} histories)"
    )


def is_near(series: list[list[float]], place: int) -> bool:
    """Return whether a change is shown near the true one."""
    return any(abs(change.index - place) <= 2 for change in find_changes(series)[0])


def is_found(draw: Draw, shift: float) -> bool:
    """Return whether a shift after BEFORE runs is shown after one of the WITHIN following runs."""
    series = [value + (shift if index >= BEFORE else 0) for index, value in enumerate(draw(BEFORE + WITHIN))]
    ends = range(BEFORE + 2, BEFORE + WITHIN + 1)
    return any(is_near([series[:end]], BEFORE) for end in ends)


def new_alarms(draw: Draw, runs: int) -> int:
    """Return the number of runs after which an alarm begins."""
    series = draw(runs)
    alarm, new = False, 0
    for end in range(MIN_RUNS, runs + 1):
        now = any(find_changes([series[:end]]))
        new += now and not alarm
        alarm = now
    return new


def deviations(folders: list[Path]) -> list[list[float]]:
    """Return the log deviations of each cell's repetitions from their mean, scaled to the spread of single runs."""
    found = []
    for folder in folders:
        cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in tidy.best(tidy.rows(RunFolder.open(folder))):
            cells.setdefault((row[UNIT], *(row[name] for name in CONDITION)), []).append(row)
        for trials in cells.values():
            for name in HEADLINES:
                logs = [math.log(value) for _, value in sorted(overhead.by_repetition(trials, name).items())]
                if len(logs) >= 4:
                    mean, scale = sum(logs) / len(logs), math.sqrt(len(logs) / (len(logs) - 1))
                    found.append([(log - mean) * scale for log in logs])
    return found


def normal(dice: random.Random, spread: float, n: int) -> list[float]:
    """Return n normally distributed deviations."""
    return [dice.gauss(0, spread) for _ in range(n)]


def recorded(pool: list[list[float]], dice: random.Random, n: int) -> list[float]:
    """Return n deviations: the repetitions of randomly chosen cells, one cell after the other."""
    values: list[float] = []
    while len(values) < n:
        values += dice.choice(pool)
    return values[:n]


if __name__ == "__main__":
    common.main(main)
