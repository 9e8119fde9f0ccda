"""Show where the spread of trials comes from, in A/A campaigns (`k8sdds run aa`: one network under two labels).

The trials of a cell differ although nothing that is compared differs. For throughput and p90 latency:

  all           standard deviation of the logarithm around the mean of each cell and label, in %
  of a pair     the same of trials A and B of one repetition, over √2: what a paired comparison sees
  explained by  the share of the squared differences of pairs that a linear function of one circumstance explains, in %,
                less what circumstances in random order explain by chance. Circumstances: the time that the hypervisor
                took, the user time of other processes, the time in softirqs, the frequency of the cores, and the
                position in the campaign
  undisturbed   the spread of pairs during which nothing else used more than 10 % of a core

Measures `--pairs` campaigns or uses those of `--run FOLDER`.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aa
import common
import numpy as np
from numpy.typing import NDArray

from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder

SHUFFLES = 200
"""Random orders of a circumstance, whose mean is what it explains by chance."""


@dataclass(frozen=True)
class Pair:
    """Trials A and B of a cell and repetition, with the state of the machine during each."""

    a: dict[str, Any]
    b: dict[str, Any]

    def difference(self, name: str) -> float | None:
        """Return the difference of a circumstance; None if one trial does not have it."""
        first, second = self.a.get(name), self.b.get(name)
        if first is None or second is None or math.isnan(first) or math.isnan(second):
            return None
        return float(first - second)

    @property
    def is_disturbed(self) -> bool:
        """Whether something else used the machine during one of the trials."""
        return any("disturbed:" in str(trial.get("warnings")) for trial in (self.a, self.b))


CIRCUMSTANCES: dict[str, Callable[[dict[str, Any], Sequence[dict[str, Any]]], float | None]] = {
    "stolen": lambda row, meters: meters[0]["machine"]["steal_s"],
    "others": lambda row, meters: meters[0]["machine"]["user_s"] - sum(one["cpu_user_s"] for one in meters),
    "softirq": lambda row, meters: meters[0]["machine"]["softirq_s"],
    "frequency": lambda row, meters: row["cpu_mhz"],
    "position": lambda row, meters: row["order"],
}
"""What may affect a trial, from its record and the supervisors' meters of its publisher and subscriber."""


def pairs(folder: Path) -> dict[tuple[str, int], list[Pair]]:
    """Return the pairs of an A/A campaign by test and payload."""
    run = RunFolder.open(folder)
    rows = tidy.best(tidy.rows(run))
    trials: dict[tuple[str, int, int], dict[str, dict[str, Any]]] = {}
    for row in rows:
        raw = run.raw(row["trial_id"], row["attempt"])
        meters = [json.loads((raw / name / "meters.json").read_text()) for name in ("pub0", "sub0")]
        row |= {name: find(row, meters) for name, find in CIRCUMSTANCES.items()}
        key = row["test"], row["payload_bytes"], row["repetition"]
        trials.setdefault(key, {})[row["network_label"]] = row
    found: dict[tuple[str, int], list[Pair]] = {}
    for (test, payload, _), sides in trials.items():
        if {"A", "B"} <= set(sides):
            found.setdefault((test, payload), []).append(Pair(sides["A"], sides["B"]))
    return found


def spread(cells: Sequence[Sequence[Pair]], value: str, seed: int) -> dict[str, Any]:
    """Return the standard deviations of a value, and what explains those of pairs, in percent."""
    logs = [np.log([[pair.a[value], pair.b[value]] for pair in cell]) for cell in cells]
    deviations = np.concatenate([log - log.mean(axis=0) for log in logs])
    freedom = sum(2 * (len(log) - 1) for log in logs)
    differences = np.concatenate([centered(log[:, 0] - log[:, 1]) for log in logs])
    steady = [
        centered(
            np.array([math.log(pair.a[value] / pair.b[value]) for pair in cell if not pair.is_disturbed])
        )
        for cell in cells
    ]
    random = np.random.default_rng(seed)
    return {
        "trials": deviations.size,
        "all_percent": 100 * math.sqrt(float((deviations**2).sum()) / freedom),
        "pair_percent": 100 * deviation(differences, len(logs)) / math.sqrt(2),
        "explained_percent": {
            name: 100 * explained(differences, cells, name, random) for name in CIRCUMSTANCES
        },
        "undisturbed_pairs": sum(map(len, steady)),
        "undisturbed_percent": 100
        * deviation(np.concatenate(steady), sum(len(cell) > 0 for cell in steady))
        / math.sqrt(2),
    }


def centered(values: NDArray[Any]) -> NDArray[Any]:
    """Return values less their mean."""
    return values - values.mean() if values.size else values


def deviation(values: NDArray[Any], means: int) -> float:
    """Return the standard deviation of values that are centered around so many means."""
    freedom = values.size - means
    return math.sqrt(float((values**2).sum()) / freedom) if freedom > 0 else math.nan


def explained(
    differences: NDArray[Any], cells: Sequence[Sequence[Pair]], name: str, random: np.random.Generator
) -> float:
    """Return the share of the squared differences that a circumstance explains beyond chance, at least 0."""
    given = [[pair.difference(name) for pair in cell] for cell in cells]
    if any(one is None for cell in given for one in cell):
        return math.nan
    causes = np.concatenate([centered(np.array(cell, dtype=float)) for cell in given])
    if not causes.any():
        return 0.0
    by_chance = np.mean([determination(differences, random.permutation(causes)) for _ in range(SHUFFLES)])
    return max(0.0, float((determination(differences, causes) - by_chance) / (1 - by_chance)))


def determination(values: NDArray[Any], causes: NDArray[Any]) -> float:
    """Return the coefficient of determination of a line through the origin."""
    return float((values @ causes) ** 2 / ((values @ values) * (causes @ causes)))


def main() -> int:
    """Measure and print."""
    parser = common.parser(__doc__ or "", common.Defaults(3, 1, 1, 0.5, "campaigns"))
    parser.add_argument("--run", type=Path, action="append", help="use this A/A run folder (repeatable)")
    options = common.parse(parser)
    report = common.Report("spread", options)
    with tempfile.TemporaryDirectory() as folder:
        runs = options.run or [
            aa.measure(Path(folder), options.seed + number, options.seconds)
            for number in range(options.pairs)
        ]
        report.data["pairs"] = len(runs)
        cells = [found for run in runs for found in pairs(run).items()]
    rows = []
    for value in aa.VALUES:
        chosen = [cell for _, cell in cells if all(pair.a[value] is not None for pair in cell)]
        result = spread(chosen, value, options.seed)
        report.data[value] = result
        rows.append(
            [
                value,
                str(result["trials"]),
                f"{result['all_percent']:.2f}",
                f"{result['pair_percent']:.2f}",
                *(
                    f"{share:.0f}" if share == share else "unknown"
                    for share in result["explained_percent"].values()
                ),
                f"{result['undisturbed_percent']:.2f}" if result["undisturbed_pairs"] > 1 else "none",
            ]
        )
    heads = ["", "trials", "all", "of a pair", *(f"by {name}" for name in CIRCUMSTANCES), "undisturbed"]
    report.text("Spread of trials in %, and what explains that of pairs in %\n" + common.table(heads, rows))
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
