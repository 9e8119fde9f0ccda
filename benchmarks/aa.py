"""Measure the false alarm rate and the power of `compare` and `claims`.

Measures A/A campaigns (`k8sdds run aa`: one network under two labels) or uses those of `--run FOLDER`. Then:

  campaigns   counts the wrong verdicts about every measured campaign, in which A is always A: of comparisons, claims,
              requirements, rankings and intervals, and in the history of all campaigns
  resampled   builds thousands of campaigns of 3, 5 and 10 repetitions from different real blocks of all
              campaigns. A and B are exchanged at random in each repetition, so there is no true difference.
              Reports the false alarm rate of the functions behind both commands (paired: two networks of one
              campaign; independent: two campaigns)
  normal      reports the same rates for campaigns with normally distributed log ratios, where the assumption
              of the tests holds exactly
  power       makes one side slower by a known factor and reports how often this is detected, and the smallest
              factor that is detected in 80 % of the campaigns
"""

from __future__ import annotations

import itertools
import math
import random
import subprocess
import tempfile
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import common
from scipy import stats

from k8sdds.analysis import capacities, comparison
from k8sdds.analysis.comparison import Side
from k8sdds.analysis.history import MIN_RUNS, Run, history
from k8sdds.analysis.requirements import MET, judge
from k8sdds.analysis.selection import Fit
from k8sdds.analysis.statistics import CONFIDENCE, STOPPED_CONFIDENCE, t_interval
from k8sdds.campaign.precision import MIN_REPETITIONS
from k8sdds.claims import load
from k8sdds.claims.evidence import Source
from k8sdds.claims.judge import CONTRADICTED, SUPPORTED, judge_claim
from k8sdds.model.application import Requirement
from k8sdds.report import summarize
from k8sdds.results import tidy
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.grouping import Row

REPETITIONS = (3, 5, 10)
FACTORS = (1.01, 1.02, 1.03, 1.05, 1.075, 1.1, 1.15, 1.2, 1.3, 1.5)
LEVEL = 0.05
RUNS = 5
"""Campaigns that a claim is judged by together."""
VALUES = ("throughput_mbps", "latency_p90_us")


class Pool:
    """Real trials of A/A campaigns: the rows of labels A and B by (campaign, repetition)."""

    def __init__(self, runs: list[Path]) -> None:
        self.blocks: dict[tuple[int, int], dict[str, list[Row]]] = defaultdict(lambda: {"A": [], "B": []})
        self.campaigns: list[list[Row]] = []
        for number, path in enumerate(runs):
            rows = tidy.best(tidy.rows(RunFolder.open(path)))
            self.campaigns.append(rows)
            for row in rows:
                self.blocks[number, row["repetition"]][row["network_label"]].append(row)
        cells = max(len(block["A"]) for block in self.blocks.values())
        # Only complete blocks, so that every resampled campaign has every cell in every repetition.
        self.whole = [b for b in self.blocks.values() if len(b["A"]) == len(b["B"]) == cells]

    def draw(
        self, dice: random.Random, n: int, paired: bool, factor: float = 1
    ) -> tuple[list[Row], list[Row]]:
        """Return the rows of A and B of a resampled campaign; B is slower by the factor."""
        sides: tuple[list[Row], list[Row]] = ([], [])
        # A block occurs only once in a campaign: real campaigns do not contain copies, and a test that treats
        # a copy as a repetition underestimates the spread.
        blocks = dice.sample(self.whole, n)
        rest = [block for block in self.whole if not any(block is drawn for drawn in blocks)]
        others = blocks if paired else dice.sample(rest if len(rest) >= n else self.whole, n)
        for repetition, (block, other) in enumerate(zip(blocks, others, strict=True)):
            labels = ["A", "B"]
            dice.shuffle(labels)
            for side, chosen, label in zip(sides, (block, other), labels, strict=True):
                side += [row | {"repetition": repetition} for row in chosen[label]]
        for rows, label, slower in ((sides[0], "A", 1.0), (sides[1], "B", factor)):
            for row in rows:
                row["network"] = row["network_label"] = label
                if slower != 1:
                    _slow(row, slower)
        return sides


class Normal(Pool):
    """Campaigns with the cells of another pool and normally distributed log values.

    Each repetition has a common deviation, and each trial another one of the same size.
    """

    def __init__(self, like: Pool, spread: float = 0.03) -> None:
        self.block, self.spread = like.whole[0], spread

    def draw(
        self, dice: random.Random, n: int, paired: bool, factor: float = 1
    ) -> tuple[list[Row], list[Row]]:
        """Return rows as `Pool.draw` does."""
        sides: tuple[list[Row], list[Row]] = ([], [])
        for repetition in range(n):
            drifts = [dice.gauss(0, self.spread) for _ in range(2)]
            for side, label, drift in zip(sides, "AB", (drifts[0], drifts[0 if paired else 1]), strict=True):
                for row in self.block["A"]:
                    created = row | {"repetition": repetition, "network": label, "network_label": label}
                    for name in VALUES:
                        if created[name] is not None:
                            created[name] *= math.exp(drift + dice.gauss(0, self.spread))
                    if label == "B" and factor != 1:
                        _slow(created, factor)
                    side.append(created)
        return sides


def _slow(row: Row, factor: float) -> None:
    for name in VALUES:
        if row[name] is not None:
            row[name] *= factor if name.startswith("latency") else 1 / factor


def compared(a: list[Row], b: list[Row], paired: bool) -> list[Row]:
    """Return the rows of `k8sdds compare` for two sides of one folder (paired) or of two folders."""
    folders = ("one", "one") if paired else ("one", "other")
    sides = (Side("A", folders[0], a, label="A"), Side("B", folders[1], b, label="B"))
    (found,) = comparison.compare_all(sides, level=LEVEL)
    return found.rows


def false_alarms(pool: Pool, n: int, times: int, seed: int) -> Row:
    """Return false alarm rates in percent, from resampled campaigns without a true difference."""
    dice, result = random.Random(seed), Counter[str]()
    claims = load("aa").claims
    for _ in range(times):
        for paired, name in ((True, "paired"), (False, "independent")):
            a, b = pool.draw(dice, n, paired)
            rows = compared(a, b, paired)
            result[f"{name}_cells"] += len(rows)
            result[f"{name}_single"] += sum(1 for row in rows if row["p"] is not None and row["p"] <= LEVEL)
            result[f"{name}_any"] += any(row["different"] for row in rows)
            if paired:
                source = Source("resampled", a + b)
                for claim in claims:
                    verdict = judge_claim(claim, [source], LEVEL).verdict
                    wrong = CONTRADICTED if claim.id == "alike" else SUPPORTED
                    result["claims_false"] += claim.id != "alike" and verdict == wrong
                    result["claims_asked"] += claim.id != "alike"
                    result["alike_contradicted"] += claim.id == "alike" and verdict == wrong
                    result["alike_supported"] += claim.id == "alike" and verdict == SUPPORTED
    row: Row = {"n": n, "campaigns": times}
    for name in ("paired", "independent"):
        row[f"{name}_single_percent"] = 100 * result[f"{name}_single"] / result[f"{name}_cells"]
        row[f"{name}_any_percent"] = 100 * result[f"{name}_any"] / times
    row["claims_false_percent"] = 100 * result["claims_false"] / result["claims_asked"]
    for name in ("alike_contradicted", "alike_supported"):
        row[f"{name}_percent"] = 100 * result[name] / times
    return row


def power(pool: Pool, n: int, times: int, seed: int) -> list[Row]:
    """Return in percent how often a slowdown by each factor is detected after Holm's correction."""
    rows = []
    for factor in FACTORS:
        dice, result = random.Random(seed), Counter[Any]()
        for _ in range(times):
            for row in compared(*pool.draw(dice, n, True, factor), True):
                result[row["quantity"]] += 1
                result[row["quantity"], "found"] += row["worse"]
        rows.append(
            {"n": n, "slower_percent": round(100 * (factor - 1), 1)}
            | {name: 100 * result[name, "found"] / result[name] for name in VALUES}
        )
    return rows


def smallest(rows: list[Row], name: str) -> float | None:
    """Return the smallest slowdown in percent from which on 80 % are detected; None without one."""
    for position, row in enumerate(rows):
        if all(later[name] >= 80 for later in rows[position:]):
            return float(row["slower_percent"])
    return None


def measure(folder: Path, seed: int, seconds: float, repetitions: int = 10) -> Path:
    """Measure one A/A campaign in the lab and return its folder."""
    path = folder / f"aa-{seed}"
    argv = [common.K8SDDS, "run", "aa", "--output", str(path)]
    argv += ["--seed", str(seed), "--duration", f"{seconds:g}", "--repeat", str(repetitions)]
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(f"benchmark: {' '.join(argv)} exited with code {done.returncode}")
    return path


def main() -> int:
    """Measure, resample and print."""
    parser = common.parser(__doc__ or "", common.Defaults(3, 1, 1, 0.5, "campaigns"))
    parser.add_argument("--run", type=Path, action="append", help="use this A/A run folder (repeatable)")
    parser.add_argument("--resamples", type=int, help="resampled campaigns per number of repetitions [10000]")
    parser.add_argument("--repeat", type=int, default=10, help="repetitions of a campaign [10]")
    parser.add_argument(
        "--capacity",
        type=Path,
        action="append",
        default=[],
        help="use this capacity search of A and B (repeatable)",
    )
    parser.add_argument("--keep", type=Path, help="measure into this folder, and keep the run folders")
    options = common.parse(parser)
    times = options.resamples or (500 if options.quick else 10_000)
    report = common.Report("aa", options)
    with tempfile.TemporaryDirectory() as folder:
        runs = options.run or [
            measure(options.keep or Path(folder), options.seed + number, options.seconds, options.repeat)
            for number in range(options.pairs)
        ]
        report.data["pairs"] = len(runs)
        pool = Pool(runs)
    _campaigns(pool, report)
    _brackets(options.capacity, report)
    if len(pool.whole) < max(REPETITIONS):
        raise SystemExit(
            f"benchmark: {len(pool.whole)} complete blocks; at least {max(REPETITIONS)} are required"
        )
    alarms, normal, detected = [], [], []
    for n in REPETITIONS:
        common.progress(f"resampling {times} campaigns of {n} repetitions")
        alarms.append(false_alarms(pool, n, times, options.seed))
        normal.append(false_alarms(Normal(pool), n, times, options.seed))
        detected.append(power(pool, n, max(100, times // 20), options.seed))
    report.data |= {
        "blocks": len(pool.whole), "false_alarms": alarms, "false_alarms_normal": normal, "power": detected
    }  # fmt: skip
    margin = 196 * math.sqrt(LEVEL * (1 - LEVEL) / times)
    heads = {
        "cell, paired": "paired_single_percent",
        "any, paired": "paired_any_percent",
        "cell, indep.": "independent_single_percent",
        "any, indep.": "independent_any_percent",
        "false claim": "claims_false_percent",
        "equality denied": "alike_contradicted_percent",
        "equality shown": "alike_supported_percent",
    }
    real = f"resampled campaigns; {len(pool.whole)} real blocks"
    for rows, kind in ((alarms, real), (normal, "campaigns with normal values")):
        report.text(
            f"False alarms in % of {times} {kind} (level {100 * LEVEL:g} ± {margin:.1f} by chance)\n"
            + common.table(
                ["n", *heads],
                [[str(row["n"]), *(f"{row[key]:.2f}" for key in heads.values())] for row in rows],
            )
        )
    report.text(
        "Detected in % of campaigns, throughput / p90 latency, by true slowdown in %\n"
        + common.table(
            ["n", *(f"{row['slower_percent']:g}" for row in detected[0])],
            [
                [str(rows[0]["n"]), *(" / ".join(f"{row[name]:.0f}" for name in VALUES) for row in rows)]
                for rows in detected
            ],
        )
    )
    report.text(
        "Smallest true slowdown detected in 80 % of campaigns (compare, Holm over its cells)\n"
        + common.table(
            ["n", "throughput", "p90 latency"],
            [[str(rows[0]["n"]), *(_over(smallest(rows, name)) for name in VALUES)] for rows in detected],
        )
    )
    report.show()
    return 0


def _over(percent: float | None) -> str:
    return f"over {100 * (FACTORS[-1] - 1):g} %" if percent is None else f"{percent:g} %"


# -- campaigns as measured --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Count:
    """How often a verdict was wrong in the campaigns as measured."""

    verdict: str
    stated: float
    """The largest probability with which it may be wrong."""
    wrong: int
    cases: int

    def described(self) -> list[str]:
        """Return the row of a table, with the interval by Clopper and Pearson, Biometrika 26(4), 1934."""
        interval = stats.binomtest(self.wrong, self.cases).proportion_ci()
        return [
            self.verdict, f"{100 * self.stated:g} %", f"{self.wrong} of {self.cases}",
            f"{100 * self.wrong / self.cases:.1f}", f"{100 * interval.low:.1f} – {100 * interval.high:.1f}",
        ]  # fmt: skip


def as_measured(campaigns: list[list[Row]]) -> list[Count]:
    """Count wrong verdicts about A/A campaigns, in which A is always A: nothing is exchanged or drawn."""
    sides = [[[row for row in rows if row["network_label"] == label] for label in "AB"] for rows in campaigns]
    by_campaign = [compared(a, b, paired=True) for a, b in sides]
    cells = [row["p"] for rows in by_campaign for row in rows if row["p"] is not None]
    logs = [_logs(a, b) for a, b in sides]
    intervals = [_excludes_0(own) for campaign in logs for own in campaign.values()]
    counts = {
        "compare: a cell differs, before Holm": [p <= LEVEL for p in cells],
        "compare: any cell differs": [any(row["different"] for row in rows) for rows in by_campaign],
        "report: an interval excludes 0": intervals,
        "claims: a false claim is supported": _claims(campaigns, 1),
        f"claims: the same by {RUNS} runs together": _claims(campaigns, RUNS),
        **{
            f"requirement met, mean of all {100 * beyond:g} % beyond": _requirements(sides, beyond)
            for beyond in (0, 0.025, 0.05, 0.075)
        },
        "recommend: A is called worse": _rankings(sides),
        "--precision: an interval excludes 0": _stopped(logs),
    }
    return [Count(verdict, LEVEL, sum(wrong), len(wrong)) for verdict, wrong in counts.items()]


def _claims(campaigns: list[list[Row]], runs: int) -> list[bool]:
    """Return for each false claim about a group of campaigns whether it is supported."""
    groups = [campaigns[first : first + runs] for first in range(0, len(campaigns) - runs + 1, runs)]
    false = [claim for claim in load("aa").claims if claim.id != "alike"]
    return [
        judge_claim(
            claim, [Source(f"run {number}", rows) for number, rows in enumerate(group)], LEVEL
        ).verdict
        == SUPPORTED
        for group in groups
        for claim in false
    ]


def _logs(a: list[Row], b: list[Row]) -> dict[tuple[str, Any], list[float]]:
    """Return the log ratios B/A by quantity and payload, in the order of the repetitions."""
    found: dict[tuple[str, Any], list[float]] = {}
    for name in VALUES:
        for size in sorted({row["payload_bytes"] for row in a}):
            values = [
                {row["repetition"]: row[name] for row in rows if row["payload_bytes"] == size and row[name]}
                for rows in (a, b)
            ]
            common_repetitions = sorted(values[0].keys() & values[1].keys())
            found[name, size] = [math.log(values[1][r] / values[0][r]) for r in common_repetitions]
    return found


def _excludes_0(logs: list[float], confidence: float = CONFIDENCE) -> bool:
    _, low, high, _ = t_interval(logs, confidence=confidence)
    return low is not None and high is not None and not low <= 0 <= high


def _requirements(sides: list[list[list[Row]]], beyond: float) -> list[bool]:
    """Return whether a limit is judged as met that the mean of all campaigns misses, for each campaign and cell of A.

    Args:
        sides: The rows of A and B of each campaign.
        beyond: By which share the mean of all campaigns is beyond the limit.
    """
    found = []
    for name, size in itertools.product(VALUES, sorted({row["payload_bytes"] for row in sides[0][0]})):
        cells = [[row for row in a if row["payload_bytes"] == size and row[name]] for a, _ in sides]
        mean = math.exp(fmean(math.log(row[name]) for rows in cells for row in rows))
        at_least = METRICS[name].gain
        limit = mean * (1 + beyond) if at_least else mean / (1 + beyond)
        requirement = Requirement("", name, limit, at_least)
        found += [judge(requirement, rows).verdict == MET for rows in cells if rows]
    return found


def _rankings(sides: list[list[list[Row]]]) -> list[bool]:
    """Return whether A, as good as B, is called worse than a leading B by a one-sided test, by latency and payload."""
    found = []
    for a, b in sides:
        for size in sorted({row["payload_bytes"] for row in a}):
            fit = Fit({
                label: {row["repetition"]: math.log(row["latency_p90_us"]) for row in rows
                        if row["payload_bytes"] == size and row["latency_p90_us"]}
                for label, rows in (("A", a), ("B", b))
            })  # fmt: skip
            contrast = fit.contrast(("A", "B"))
            p = contrast.p_above(1) if contrast else None
            found.append(p is not None and p <= LEVEL)
    return found


def _stopped(campaigns: list[dict[tuple[str, Any], list[float]]]) -> list[bool]:
    """Return whether intervals exclude 0 if repetitions are added as `--precision` does.

    The repetitions of all campaigns follow each other. A new series begins where one has reached the precision, which
    is half a standard deviation of a log ratio: there, the rule favors small spreads most.
    """
    found = []
    for key in campaigns[0]:
        logs = [log for campaign in campaigns for log in campaign[key]]
        precision = 0.5 * stdev(logs)
        taken: list[float] = []
        for log in logs:
            taken.append(log)
            _, low, high, _ = t_interval(taken, confidence=STOPPED_CONFIDENCE)
            if len(taken) < MIN_REPETITIONS or low is None or high is None or (high - low) / 2 > precision:
                continue
            found.append(not low <= 0 <= high)
            taken = []
    return found


def _history(campaigns: list[list[Row]]) -> list[str]:
    """Return the series of a history of the campaigns that change: levels, and those of B relative to A."""
    runs = [
        Run(f"run-{number:02}", min(row["started_at"] for row in rows), rows, baseline="A")
        for number, rows in enumerate(campaigns)
    ]
    return [
        f"{one.quantity} of {one.row['network_label']} at {one.row['payload_bytes']} B"
        + (" relative to A" if relative else "")
        for relative in (False, True)
        for one in history(runs, VALUES, relative).series
        if one.changes
    ]


def _campaigns(pool: Pool, report: common.Report) -> None:
    """Report on the measured campaigns."""
    counts = [count for count in as_measured(pool.campaigns) if count.cases]
    report.data["campaigns"] = [asdict(count) for count in counts]
    report.text(
        f"{len(pool.campaigns)} campaigns as measured: nothing is exchanged or drawn\n"
        + common.table(
            ["verdict", "stated", "wrong", "%", "95 % interval"], [count.described() for count in counts]
        )
    )
    if len(pool.campaigns) >= MIN_RUNS:
        changes = _history(pool.campaigns)
        report.data["history"] = changes
        report.text(f"Changes in the history of these campaigns: {'; '.join(changes) or 'none'}")


def _brackets(runs: list[Path], report: common.Report) -> None:
    """Report how often the brackets of two equal networks do not overlap."""
    apart = []
    for path in runs:
        by_label = {
            row["network_label"]: capacities.bounds_of(row)
            for row in summarize(RunFolder.open(path))["capacities"]
        }
        a, b = (by_label[label] for label in "AB")
        if a.low is not None and a.high is not None and b.low is not None and b.high is not None:
            apart.append(a.high < b.low or b.high < a.low)
    if apart:
        report.data["brackets"] = {"apart": sum(apart), "pairs": len(apart)}
        report.text(f"Brackets of capacity that do not overlap: {sum(apart)} of {len(apart)}")


if __name__ == "__main__":
    common.main(main)
