"""Measure the false alarm rate and the power of `k8sdds history`.

Simulates histories of 100 runs without a change, judged after every run from the 13th on as in nightly CI, and
histories with a shift, judged after each of the 5 runs that follow it. With `--run FOLDER…`, the deviations of the
repetitions of each cell, in the order in which they were measured, take the place of normally distributed runs.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from pathlib import Path

from k8sdds.analysis import overhead
from k8sdds.analysis.conditions import CONDITION, UNIT
from k8sdds.analysis.history import MIN_RUNS, find_changes
from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder
from k8sdds.workloads import HEADLINES

Draw = Callable[[int], list[float]]
BEFORE, WITHIN = 20, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--run", type=Path, nargs="*", default=[], help="run folders with at least 4 repetitions"
    )
    parser.add_argument("--histories", type=int, default=200)
    parser.add_argument("--shift", type=float, default=5, help="shift in percent")
    parser.add_argument("--noise", type=float, nargs="*", default=[0.5, 1, 1.5, 2, 3, 5], help="in percent")
    args = parser.parse_args()
    dice = random.Random(1)
    sources: dict[str, Draw] = {
        f"normal, {noise:g} % noise": lambda n, s=noise / 100: [dice.gauss(0, s) for _ in range(n)]
        for noise in args.noise
    }
    if args.run:
        pool = deviations(args.run)
        flat = [value for series in pool for value in series]
        spread = math.sqrt(sum(value**2 for value in flat) / len(flat))
        sources[f"recorded, {100 * spread:.1f} % noise"] = lambda n: recorded(pool, dice, n)
    print("| runs | histories with a false alarm when judged once (25 runs) | shift found within 5 runs |")
    print("|---|---|---|")
    for name, draw in sources.items():
        alarms = sum(any(find_changes([draw(BEFORE + WITHIN)])) for _ in range(args.histories))
        found = sum(is_found(draw, math.log1p(args.shift / 100)) for _ in range(args.histories))
        print(f"| {name} | {alarms} of {args.histories} | {found} of {args.histories} |", flush=True)
    histories = max(args.histories // 10, 1)
    name, draw = list(sources.items())[-1]
    new = sum(new_alarms(draw, 100) for _ in range(histories))
    print(
        f"\n{name}: {new / histories:.2f} new alarms in 100 runs judged one after the other ({histories} histories)"
    )


def is_found(draw: Draw, shift: float) -> bool:
    """Return whether a shift after BEFORE runs is shown after one of the WITHIN following runs."""
    series = [value + (shift if index >= BEFORE else 0) for index, value in enumerate(draw(BEFORE + WITHIN))]
    ends = range(BEFORE + 2, BEFORE + WITHIN + 1)
    # A shown change counts only near the true one.
    return any(
        any(abs(change.index - BEFORE) <= 2 for change in find_changes([series[:end]])[0]) for end in ends
    )


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
        cells: dict[tuple, list[dict]] = {}
        for row in overhead.plain_rows(tidy.best(tidy.frame(RunFolder.open(folder)))):
            cells.setdefault((row[UNIT], *(row[name] for name in CONDITION)), []).append(row)
        for trials in cells.values():
            for name in HEADLINES:
                logs = [math.log(value) for _, value in sorted(overhead.by_repetition(trials, name).items())]
                if len(logs) >= 4:
                    mean, scale = sum(logs) / len(logs), math.sqrt(len(logs) / (len(logs) - 1))
                    found.append([(log - mean) * scale for log in logs])
    return found


def recorded(pool: list[list[float]], dice: random.Random, n: int) -> list[float]:
    """Return n deviations: the repetitions of randomly chosen cells, one cell after the other."""
    values: list[float] = []
    while len(values) < n:
        values += dice.choice(pool)
    return values[:n]


if __name__ == "__main__":
    main()
