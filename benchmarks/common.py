"""Shared code of the benchmarks: options, interleaving, paired ratios, tables and conditions."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from k8sdds.analysis.statistics import CONFIDENCE, Estimate, paired_ratio
from k8sdds.campaign.launches import Launches
from k8sdds.model.measurement import Launch
from k8sdds.model.trial import Cell, Trial
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import K8sddsError
from k8sdds.testbeds.lab import facts
from k8sdds.testbeds.lab.session import LabSession
from k8sdds.testbeds.lab.testbed import Lab

K8SDDS = str(Path(sys.prefix) / "bin" / "k8sdds")
"""The program of this environment."""


@dataclass(frozen=True)
class Defaults:
    """Pairs and seconds of a full run and of `--quick`; 0 seconds if nothing runs for a fixed time."""

    pairs: int
    quick_pairs: int
    seconds: float = 0
    quick_seconds: float = 0
    what: str = "pairs"
    """The noun for what `--pairs` counts."""


def parser(doc: str, defaults: Defaults) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks; the script's docstring is the help text."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few short runs, for a rough result")
    parser.add_argument("--pairs", type=int, help=f"number of {defaults.what} [{defaults.pairs}]")
    if defaults.seconds:
        parser.add_argument("--seconds", type=float, help=f"measured seconds of a run [{defaults.seconds:g}]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random order [1]")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    parser.set_defaults(defaults=defaults, **({} if defaults.seconds else {"seconds": 0.0}))
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the options and fill in pairs and seconds from the defaults."""
    options = parser.parse_args()
    known: Defaults = options.defaults
    if options.pairs is None:
        options.pairs = known.quick_pairs if options.quick else known.pairs
    if options.seconds is None:
        options.seconds = known.quick_seconds if options.quick else known.seconds
    if options.pairs < 1 or options.seconds < 0:
        parser.error("--pairs and --seconds must be positive")
    return options


def progress(text: str) -> None:
    """Print progress to stderr, so that stdout contains only the result."""
    print(text, file=sys.stderr, flush=True)


# -- prerequisites ----------------------------------------------------------------------------------------


def missing(tools: dict[str, str]) -> list[str]:
    """Return a message for each missing tool; `tools` maps each tool to its Debian package."""
    return [
        f"{tool} is not installed: apt-get install {package}"
        for tool, package in tools.items()
        if shutil.which(tool) is None and not os.access(tool, os.X_OK)
    ]


def conditions() -> dict[str, Any]:
    """Return the facts of the machine that the result depends on."""
    machine = facts.machine()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "cpu": f"{machine['cpu_count']} × {machine['cpu_model'] or machine['architecture']}",
        "kernel": machine["kernel"],
        "os": machine["os"],
        "perftest": machine["perftest"],
        "cyclonedds": machine["packages"].get("libddsc0debian"),
        "load_before": round(os.getloadavg()[0], 2),
        "interference": facts.interference(),
    }


# -- trials in the lab ------------------------------------------------------------------------------------


def runnable(cells: Mapping[str, Cell], report: Report) -> dict[str, Cell]:
    """Return the cells, by network, that the lab can run on this machine; report why others cannot."""
    found = {}
    for network, cell in cells.items():
        trial = Trial(cell=cell, testbed="lab", repetition=0, duration_s=1, warmup_s=0)
        if problems := Lab("benchmark-check").check([trial]):
            report.skip(f"{network}: {problems[0]}")
        else:
            found[network] = cell
    return found


def launches(session: LabSession, trial: Trial, folder: Path, domain: int = 1) -> list[Launch]:
    """Return the programs that a campaign starts for a trial, with a new output folder in `folder` for each."""
    return Launches(RunFolder(folder), [trial], lambda _: None).of(trial, session, folder, domain)


# -- pairs ------------------------------------------------------------------------------------------------


def interleave(rounds: int, groups: Iterable[Sequence[Any]], seed: int) -> list[tuple[int, Any]]:
    """Return (round, item) for every round, with the groups and their items in random order.

    The items of a group stay together, so that compared items are measured one after the other. Every second round
    has the items of the round before it in reverse order, so that each item is as often first as last.
    """
    order = random.Random(seed)
    listed = [list(group) for group in groups]
    schedule = []
    for number in range(rounds):
        order.shuffle(listed)
        for group in listed:
            if number % 2:
                group.reverse()
            else:
                order.shuffle(group)
            schedule += [(number, item) for item in group]
    return schedule


def signed_rank_interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of Wilcoxon's signed-rank test on the logarithms, or None with fewer than six ratios.

    It contains every factor by which the ratios could be divided without a difference from 1 that the test detects.
    A few disturbed pairs hardly change it. It assumes that a log ratio is as likely to be above the true one by any
    amount as below it, which the random order of each pair ensures.

    Source: Hodges, Lehmann, "Estimates of location based on rank tests", Annals of Mathematical Statistics 34(2),
    1963; Hollander, Wolfe, "Nonparametric Statistical Methods", 1973, section 3.3 (exact distribution).
    """
    logs = [math.log(ratio) for ratio in ratios]
    averages = sorted((logs[i] + logs[j]) / 2 for i in range(len(logs)) for j in range(i + 1))
    # Number of the 2^n assignments of signs to the ranks 1 to n that have each sum of the positive ranks.
    assignments = [1]
    for rank in range(1, len(logs) + 1):
        assignments = [a + b for a, b in zip(assignments + [0] * rank, [0] * rank + assignments, strict=True)]
    tail, cut = 0, 0
    while (tail := tail + assignments[cut]) <= (1 - CONFIDENCE) / 2 * 2 ** len(logs):
        cut += 1
    return (math.exp(averages[cut - 1]), math.exp(averages[-cut])) if cut else None


@dataclass
class Values:
    """The measured values by item and round."""

    by_item: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, item: str, number: int, value: float | None) -> None:
        """Add a positive, finite value; ignore others."""
        if value is not None and math.isfinite(value) and value > 0:
            self.by_item.setdefault(item, {})[number] = value

    def median(self, item: str) -> float | None:
        """Return the median over all rounds; None without values."""
        values = list(self.by_item.get(item, {}).values())
        return statistics.median(values) if values else None

    def ratio(self, item: str, other: str) -> Estimate | None:
        """Return the median of item/other in the rounds that have both, with its 95 % interval."""
        first, second = self.by_item.get(item, {}), self.by_item.get(other, {})
        both = sorted(first.keys() & second.keys())
        if not both:
            return None
        ratios = [first[i] / second[i] for i in both]
        few = paired_ratio([first[i] for i in both], [second[i] for i in both])
        low, high = signed_rank_interval(ratios) or few.bounds
        return Estimate(statistics.median(ratios), low, high, len(both))


def verdict(ratio: Estimate | None, more_is_better: bool, margin: float) -> str:
    """Judge by the interval whether k8sdds is at most `margin` worse than the other program."""
    if ratio is None:
        return "not measured"
    if ratio.low is None or ratio.high is None:
        return "one pair: cannot tell"
    worst, best = (ratio.low - 1, ratio.high - 1) if more_is_better else (1 - ratio.high, 1 - ratio.low)
    if worst > 0:
        return "better"
    if worst >= -margin:
        return "no worse"
    return "worse" if best < -margin else "cannot tell"


# -- output -----------------------------------------------------------------------------------------------


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an aligned table: the first column to the left, the others to the right."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    text = []
    for number, line in enumerate(lines):
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        text.append("  ".join(cells).rstrip())
        if number == 0:
            text.append("─" * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(text)


def number(value: float | None, digits: int = 0) -> str:
    """Format a number with separators of thousands, or return a dash."""
    return "–" if value is None else f"{value:,.{digits}f}"


def describe(estimate: Estimate | None, digits: int = 3) -> str:
    """Return an estimate with its interval, such as `1.020 (0.990 – 1.050)`, or a dash."""
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return number(estimate.value, digits)
    # The upper end from two pairs that differ much.
    high = "∞" if estimate.high > 1000 * abs(estimate.value) else number(estimate.high, digits)
    return f"{number(estimate.value, digits)} ({number(estimate.low, digits)} – {high})"


def as_json(estimate: Estimate | None) -> dict[str, Any] | None:
    """Return the fields of an estimate."""
    return asdict(estimate) if estimate else None


class Report:
    """The result of a benchmark: data for `--json`, and text. Both list what could not run."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self._options = options
        self._parts: list[str] = []
        self.not_run: list[str] = []
        self.data: dict[str, Any] = {
            "benchmark": name,
            "conditions": conditions(),
            "pairs": options.pairs,
            "seconds": options.seconds,
            "seed": options.seed,
        }

    def text(self, part: str) -> None:
        """Add a paragraph or a table to the text."""
        self._parts.append(part)

    def skip(self, what: str) -> None:
        """Add something that could not run, with the reason."""
        self.not_run.append(what)
        progress(f"not run: {what}")

    def show(self) -> None:
        """Print the result."""
        conditions = self.data["conditions"]
        conditions["load_after"] = round(os.getloadavg()[0], 2)
        self.data["not_run"] = self.not_run
        if self._options.json:
            print(json.dumps(self.data, indent=1, ensure_ascii=False))
            return
        length = f", {self.data['seconds']:g} s each" if self.data["seconds"] else ""
        print(f"{self.data['benchmark']}, {conditions['at']}")
        print(f"{conditions['cpu']}, Linux {conditions['kernel']}, {conditions['os']}")
        perftest = " ".join((conditions["perftest"] or "no perftest").split())
        print(f"Cyclone DDS {conditions['cyclonedds']}, {perftest}")
        print(
            f"{self.data['pairs']} {self._options.defaults.what}{length}, seed {self.data['seed']};"
            f" load average before {conditions['load_before']}, after {conditions['load_after']}"
        )
        for interference in conditions["interference"]:
            print(f"! {interference}")
        for part in self._parts:
            print(f"\n{part}")
        if self.not_run:
            print("\nNot run:")
            for what in self.not_run:
                print(f"- {what}")


def main(run: Callable[[], int]) -> None:
    """Run a benchmark and exit; Ctrl-C and missing prerequisites end it with a message."""
    try:
        sys.exit(run())
    except K8sddsError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("benchmark: interrupted", file=sys.stderr)
        sys.exit(130)
