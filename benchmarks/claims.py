"""Simulate how often `k8sdds claims` and `k8sdds compare` raise a false alarm, before and after their corrections.

  stopped    campaigns that stop when their interval is narrow (`--precision`), and have no true difference: how often p
             is below a level, as plain t tests (before) and as k8sdds tests such campaigns (after), in the worst case
             over ratios of precision and spread
  runs       several runs of one claim: how often it is supported or contradicted although the true ratio is on the
             edge of its region, if any run decides (before), and by the verdict (after); and how often it is supported
             if the ratio is inside by 4 standard errors of a run. Runs differ by 0 or 1 of these (standard deviation)
  variants   the same with several variants of the conditions in one run

`--pairs` is the number of campaigns for each row; there are 5 times as many stopped ones for each ratio. Log ratios
are normally distributed; runs have 5 repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import common
import numpy as np
import precision

from k8sdds.analysis.statistics import (
    CONFIDENCE,
    STOPPED_CONFIDENCE,
    Contrast,
    independent_logs,
    one_sample,
)
from k8sdds.claims import load
from k8sdds.claims.evidence import Source
from k8sdds.claims.judge import CONTRADICTED, SUPPORTED, ClaimResult, Verdict, judge_claim
from k8sdds.claims.model import Claim
from k8sdds.model.trial import AXES
from k8sdds.system.grouping import Row

LEVEL = 0.05
LEVELS = (LEVEL, LEVEL / 10, LEVEL / 100)
REPETITIONS = 5
NOISE = 0.05
"""Standard deviation of a log ratio."""
STOPPED_FACTOR = 5
"""Stopped campaigns for one of `--pairs`. The largest of many rates is biased unless each is precise."""
INSIDE = 4
"""Distance of a true ratio from the edge of the region, in standard errors of a run."""


def main() -> int:
    options = common.parse(common.parser(__doc__ or "", common.Defaults(4000, 400, what="campaigns")))
    report = common.Report("claims", options)
    random = np.random.default_rng(options.seed)
    common.progress("campaigns that were stopped")
    report.data["stopped"] = stopped(random, STOPPED_FACTOR * options.pairs)
    report.text(
        "False alarms of stopped campaigns in %, before → after, at the worst ratio of precision and spread\n"
        + common.table(
            ("test", *(f"level {100 * level:g} %" for level in LEVELS)),
            [
                (name, *(_percents(found["before"][i], found["after"][i], 2) for i in range(len(LEVELS))))
                for name, found in report.data["stopped"].items()
            ],
        )
    )
    for what, counts in (("runs", (1, 2, 3, 5, 10)), ("variants", (1, 5, 10))):
        common.progress(what)
        rows = [
            row
            for between in ((0, 1) if what == "runs" else (0,))
            for row in judged(random, what, counts, between, options.pairs)
        ]
        report.data[what] = rows
        report.text(
            f"Verdicts on a claim by {what}, in % of campaigns, before → after\n"
            + common.table(
                (what, "between runs", "false support", "false contradiction", "support if true"),
                [
                    (
                        str(row["n"]),
                        f"{row['between']:g}",
                        *(_percents(*row[key]) for key in ("supported", "contradicted", "found")),
                    )
                    for row in rows
                ],
            )
        )
    report.show()
    return 0


# -- campaigns that stop when their interval is narrow ---------------------------------------------------------


def stopped(random: np.random.Generator, campaigns: int) -> dict[str, dict[str, list[float]]]:
    """Return by test the worst rate of p below each of LEVELS: of plain t tests, and of those of k8sdds."""
    found: dict[str, dict[str, list[list[float]]]] = {
        name: {"before": [], "after": []}
        for name in ("one campaign", "two campaigns", "with 20 fixed repetitions")
    }
    for ratio in precision.RATIOS:
        ended, others = (
            list(precision.ended(random, ratio, STOPPED_CONFIDENCE, campaigns)) for _ in range(2)
        )
        fixed = random.standard_normal((campaigns, 20)).tolist()
        for when, confidence in (("before", CONFIDENCE), ("after", STOPPED_CONFIDENCE)):
            for name, contrasts in (
                ("one campaign", [one_sample(logs, 0, confidence) for logs in ended]),
                ("two campaigns", _independent(ended, others, confidence)),
                ("with 20 fixed repetitions", _independent(ended, fixed, confidence)),
            ):
                ps = np.array([contrast.p_different for contrast in contrasts])
                found[name][when].append([float((ps <= level).mean()) for level in LEVELS])
    return {
        name: {when: np.max(rates, 0).tolist() for when, rates in by_time.items()}
        for name, by_time in found.items()
    }


def _independent(
    ended: Sequence[list[float]], others: Sequence[list[float]], confidence: float
) -> Iterator[Contrast]:
    return (independent_logs(a, b, (0, 0), confidence) for a, b in zip(ended, others, strict=True))


# -- several runs or variants ----------------------------------------------------------------------------------


def judged(
    random: np.random.Generator, what: str, counts: Sequence[int], between: float, campaigns: int
) -> list[Row]:
    """Return the percentages of verdicts by the number of runs or variants, each before and after the corrections."""
    claim = load("aa").claims[0]
    assert claim.id == "less-throughput"
    rows = []
    for n in counts:
        row: Row = {"n": n, "between": between}
        for key, verdict, inside in (
            ("supported", SUPPORTED, 0), ("contradicted", CONTRADICTED, 0), ("found", SUPPORTED, INSIDE)
        ):  # fmt: skip
            results = [simulated(random, claim, what, n, between, inside) for _ in range(campaigns)]
            row[key] = [
                sum(decision == verdict for decision in decisions) / campaigns
                for decisions in ([any_run(result) for result in results], [r.verdict for r in results])
            ]
        rows.append(row)
    return rows


def simulated(
    random: np.random.Generator, claim: Claim, what: str, n: int, between: float, inside: float
) -> ClaimResult:
    """Judge n runs, or n variants in one run, whose ratios are `inside` standard errors inside the claimed region."""
    error = NOISE / math.sqrt(REPETITIONS)
    centers = -inside * error + between * error * random.standard_normal(n)
    logs = centers[:, None] + NOISE * random.standard_normal((n, REPETITIONS))
    if what == "runs":
        sources = [Source(f"run {i}", trials(values, "cyclonedds")) for i, values in enumerate(logs)]
    else:
        sources = [
            Source("run", [row for i, values in enumerate(logs) for row in trials(values, f"dds {i}")])
        ]
    return judge_claim(claim, sources, LEVEL)


def trials(logs: Sequence[float], middleware: str) -> list[Row]:
    """Return trials of the networks A and B with these log ratios B/A."""
    base = {name: axis.recorded_default for name, axis in AXES.items()}
    base |= {"test": "throughput", "payload_bytes": 1024, "testbed": "lab", "middleware": middleware}
    return [
        base | {"network": label, "network_label": label, "repetition": i, "throughput_mbps": rate}
        for i, log in enumerate(logs)
        for label, rate in (("A", 100.0), ("B", 100.0 * math.exp(log)))
    ]


def any_run(result: ClaimResult) -> str:
    """Return the verdict if any run or variant decides, unless others decide differently."""
    alone: list[Verdict] = [run for verdict in result.verdicts for run in verdict.alone or (verdict,)]
    decided = {verdict.verdict for verdict in alone} & {SUPPORTED, CONTRADICTED}
    return decided.pop() if len(decided) == 1 else ""


def _percents(before: float, after: float, digits: int = 1) -> str:
    return f"{100 * before:.{digits}f} → {100 * after:.{digits}f}"


if __name__ == "__main__":
    common.main(main)
