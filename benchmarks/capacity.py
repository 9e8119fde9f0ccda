"""Compare the capacity search with plain bisection, at equal goals and equal width of the interval.

Plain bisection starts between 0 and the saturated rate. For each goal separately, it measures as many full trials at
the middle as the search has repetitions, and continues with the half that the majority points to.

  simulated   devices with a known capacity (with --pairs seeds for each kind of noise), as time ratio, trials, and the
              share of the intervals that contain the capacity within --tolerance: the rate at which half of the full
              trials meet the goal; and the share of pairs of searches of equal devices whose brackets do not overlap
  recorded    devices that answer with a trial that was recorded near the requested rate, from the run folders of
              `k8sdds run capacity` (--run FOLDER); also gives the time that a trial takes beyond its interval
  lab         (--lab) both methods measure the same experiment in the lab, one after the other

Requires: for --lab, what the lab requires.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import common

from k8sdds.analysis import capacities
from k8sdds.analysis.capacity import Bounds, Goal, Probe, Search, rounded
from k8sdds.model.options import RATE
from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.grouping import Row

Device = Callable[[float, float], Probe]

KINDS = {
    "steady": (0.0, 0.0),
    "noise 2 %": (0.02, 0.0),
    "noise 2 %, disturbed": (0.02, 0.01),
    "noise 5 %": (0.05, 0.0),
    "noise 10 %": (0.1, 0.0),
}
"""Standard deviation of a device's capacity between segments of a trial, and the share of segments that are disturbed
at any rate."""
SEGMENT_S = 0.5
BUFFER_S = 0.005
OVERHEAD_S = 1.2
"""Time of a trial beyond its interval: warm-up, start and end. Measured in the lab; --run gives that of a run."""
NEAREST = 5
"""A recorded device answers with one of so many trials at the nearest rates."""
LOOSE = Goal(0.5, 10)
SEARCH = Search((Goal(0, 10), LOOSE), 2, 3, 0.05, 10, 1e7)

LAB = """
name: capacity-benchmark
baseline: host
repetitions: {repetitions}
duration_s: {seconds}
warmup_s: 0.3
sweeps:
  - networks: {networks}
    test: {{name: capacity, loss_percent: {loss}, p99_ms: {p99}, latency_at_percent: []}}
    reliability: best-effort
    link: {link}
"""
PATCHED = """
import sys
sys.path.insert(0, {folder!r})
from k8sdds.campaign import capacity_search
from k8sdds.cli.main import run
import capacity
capacity_search.Search = getattr(capacity, {method!r})
sys.argv = ["k8sdds", "run", {experiment!r}, "--output", {output!r}, "--quiet"]
run()
"""


class Bisection(Search):
    """Plain bisection with the interface of a search."""

    def next(self, probes: Sequence[Probe]) -> list[tuple[float, float]]:
        """Return the next trial; empty if all goals have their interval."""
        for _, wanted in self._states(probes):
            if wanted is not None:
                return [(wanted, self.duration_s)]
        return []

    def bounds(self, goal: Goal, probes: Sequence[Probe]) -> Bounds:
        """Return the interval of a goal."""
        return dict(zip(self.goals, (bounds for bounds, _ in self._states(probes)), strict=True))[goal]

    def _states(self, probes: Sequence[Probe]) -> list[tuple[Bounds, float | None]]:
        """Return the interval of each goal and the rate that it needs next. Trials belong to the first goal first."""
        saturated = max(probe.samples_per_s or 0 for probe in probes)
        used: Counter[float] = Counter()
        states = []
        for goal in self.goals:
            low, high = 0.0, rounded(saturated)
            wanted = None
            while high > low * (1 + self.width) and high > self.lowest:
                middle = rounded((low + high) / 2)
                if not low < middle < high:
                    break
                own = [probe for probe in probes if probe.value == middle][used[middle] :][: self.trials]
                if len(own) < self.trials:
                    wanted = middle
                    break
                used[middle] += self.trials
                if sum(probe.excess(goal) <= 1 for probe in own) * 2 > self.trials:
                    low = middle
                else:
                    high = middle
            states.append((Bounds(low or None, high), wanted))
        return states


def run(search: Search, device: Device, overhead_s: float) -> tuple[list[Probe], float]:
    """Measure a device. Return the probes and the seconds that they take."""
    probes = [device(0, search.duration_s)]
    while wanted := search.next(probes):
        probes += [device(rate, duration_s) for rate, duration_s in wanted]
    return probes, sum(probe.duration_s + overhead_s for probe in probes)


def simulated(capacity: float, noise: random.Random, spread: float, disturbed: float) -> Device:
    """Return a device whose capacity varies from segment to segment of a trial.

    It drops what exceeds its capacity, after a buffer, and delays what waits in it.
    """

    def segment(rate: float) -> tuple[float, float]:
        excess = max(0.0, 1 - capacity * math.exp(noise.gauss(0, spread)) / rate)
        overdue = min(100.0, 5000 * excess) + (50 if noise.random() < disturbed else 0)
        return 100 * max(0.0, excess - BUFFER_S / SEGMENT_S), min(overdue, 100)

    def measure(rate: float, duration_s: float) -> Probe:
        if not rate:
            return Probe(0, duration_s, samples_per_s=capacity * noise.uniform(1, 1.3))
        segments = [segment(rate) for _ in range(round(duration_s / SEGMENT_S))]
        lost, overdue = (statistics.fmean(values) for values in zip(*segments, strict=True))
        return Probe(rate, duration_s, lost, overdue, rate)

    return measure


def threshold(goal: Goal, search: Search, spread: float, disturbed: float) -> float:
    """Return the rate at which half of the full trials of a device with capacity 1 meet a goal."""
    device = simulated(1, random.Random(1), spread, disturbed)
    low, high = 0.5, 1.5
    while high > low * 1.002:
        middle = (low + high) / 2
        met = sum(device(middle, search.duration_s).excess(goal) <= 1 for _ in range(1000))
        low, high = (middle, high) if met > 500 else (low, middle)
    return low


def recorded(rows: Sequence[Row], noise: random.Random) -> Device:
    """Return a device that answers with recorded trials near the requested rate."""
    known = [Probe.of(row, RATE) for row in rows]
    saturated = [probe for probe in known if not probe.value]
    paced = [probe for probe in known if probe.value]

    def measure(rate: float, duration_s: float) -> Probe:
        if not rate:
            return noise.choice(saturated)
        near = sorted(paced, key=lambda probe: abs(math.log(probe.value / rate)))[:NEAREST]
        return dataclasses.replace(noise.choice(near), value=rate, duration_s=duration_s)

    return measure


def compare(
    search: Search, devices: Sequence[Callable[[], Device]], overhead_s: float
) -> tuple[list[float], dict[str, list[list[Probe]]]]:
    """Return the ratios of the times (search / bisection), and the probes of each method."""
    bisection = Bisection(**{field.name: getattr(search, field.name) for field in dataclasses.fields(search)})
    ratios: list[float] = []
    probes: dict[str, list[list[Probe]]] = {"search": [], "bisection": []}
    for device in devices:
        own, own_s = run(search, device(), overhead_s)
        other, other_s = run(bisection, device(), overhead_s)
        ratios.append(own_s / other_s)
        probes["search"].append(own)
        probes["bisection"].append(other)
    return ratios, probes


def simulate(options: Any) -> list[dict[str, Any]]:
    """Compare both methods on simulated devices."""
    rows = []
    for kind, noise in KINDS.items():
        capacities_ = [
            10 ** random.Random(f"{options.seed} {seed}").uniform(3, 5) for seed in range(options.pairs)
        ]
        devices = [
            lambda c=capacity, s=seed, n=noise: simulated(c, random.Random(f"{options.seed} {s} noise"), *n)
            for seed, capacity in enumerate(capacities_)
        ]
        search = dataclasses.replace(SEARCH, trials=options.repetitions, duration_s=options.seconds)
        ratios, probes = compare(search, devices, OVERHEAD_S)
        true = {goal: threshold(goal, search, *noise) for goal in search.goals}
        rows.append({"device": kind, **_times(ratios, probes)} | {
            f"{method}_contains_percent": 100 * statistics.fmean(
                _contains(_bounds(search, method, own), {g: capacity * x for g, x in true.items()}, options.tolerance)
                for own, capacity in zip(probes[method], capacities_, strict=True)
            )
            for method in probes
        } | {
            "pairs_without_overlap_percent": _without_overlap(search, probes["search"], capacities_)
        })  # fmt: skip
    return rows


def _without_overlap(
    search: Search, searches: Sequence[Sequence[Probe]], capacities_: Sequence[float]
) -> float:
    """Return the share of pairs of searches whose brackets, relative to the devices' capacities, do not overlap."""
    brackets = [
        [(bounds.low / capacity, bounds.high / capacity) for bounds in _bounds(search, "search", own).values()
         if bounds.low and bounds.high]
        for own, capacity in zip(searches, capacities_, strict=True)
    ]  # fmt: skip
    pairs = [
        (one, other)
        for first, second in zip(brackets[::2], brackets[1::2], strict=False)
        for one, other in zip(first, second, strict=False)
    ]
    return 100 * statistics.fmean(one[1] < other[0] or other[1] < one[0] for one, other in pairs)


def replay(options: Any) -> list[dict[str, Any]]:
    """Compare both methods on devices that answer with recorded trials."""
    rows = []
    for folder in options.run:
        run_folder = RunFolder.open(Path(folder))
        probes = tidy.probes(tidy.rows(run_folder))
        overhead_s = overhead_of(probes)
        for one in capacities.found(probes, run_folder.campaign.get("repetitions")):
            search = dataclasses.replace(one.search, latency_at_percent=())
            seeds = range(options.pairs)
            devices = [
                lambda s=seed, trials=one.trials: recorded(trials, random.Random(f"{options.seed} {s}"))
                for seed in seeds
            ]
            ratios, measured = compare(search, devices, overhead_s)
            rows.append({"device": f"{one.network}, recorded", **_times(ratios, measured)})
    return rows


def overhead_of(rows: Sequence[Row]) -> float:
    """Return the median time from a trial to the next, without the measured interval."""
    starts = sorted((datetime.fromisoformat(row["started_at"]), row["duration_s"]) for row in rows)
    between = itertools.pairwise(starts)
    return float(statistics.median((after - start).total_seconds() - s for (start, s), (after, _) in between))


def in_lab(options: Any) -> list[dict[str, Any]]:
    """Let both methods measure the same networks in the lab."""
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        experiment = Path(temporary, "experiment.yaml")
        experiment.write_text(
            LAB.format(
                networks=list(options.networks), repetitions=options.repetitions, seconds=options.seconds,
                loss=list(options.loss), p99=options.p99 or "null",
                link=f"{{rate_mbit: {options.link_mbit:g}}}" if options.link_mbit else "{}",
            ).replace("'", "")
        )  # fmt: skip
        for method in ("Search", "Bisection"):
            common.progress(f"{method} in the lab")
            output = Path(options.keep or temporary, method.lower())
            script = PATCHED.format(
                folder=str(Path(__file__).parent),
                method=method,
                experiment=str(experiment),
                output=str(output),
            )
            subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.DEVNULL)
            found[method.lower()] = _measured(RunFolder.open(output), method)
    return [
        {"network": network, "goal": goal, **{
            f"{method}_{key}": value for method in found for key, value in found[method][network, goal].items()
        }}
        for network, goal in found["search"]
    ]  # fmt: skip


def _measured(run_folder: RunFolder, method: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return trials, seconds and the interval by network and goal. Seconds and trials are those of all goals."""
    rows = tidy.probes(tidy.rows(run_folder))
    overhead_s = overhead_of(rows)
    result = {}
    for one in capacities.found(rows, run_folder.campaign.get("repetitions")):
        seconds = sum(probe.duration_s + overhead_s for probe in one.probes)
        for goal in one.search.goals:
            bounds = _bounds(one.search, method.lower(), one.probes)[goal]
            result[one.network, goal.describe()] = {
                "trials": len(one.probes), "s": seconds, "low": bounds.low, "high": bounds.high
            }  # fmt: skip
    return result


def _bounds(search: Search, method: str, probes: Sequence[Probe]) -> dict[Goal, Bounds]:
    kind = Search if method == "search" else Bisection
    same = kind(**{field.name: getattr(search, field.name) for field in dataclasses.fields(search)})
    return {goal: same.bounds(goal, probes) for goal in search.goals}


def _contains(bounds: dict[Goal, Bounds], true: dict[Goal, float], tolerance: float) -> float:
    """Return the share of the goals whose interval contains the true capacity."""
    return statistics.fmean(
        (own.low or 0) <= true[goal] * (1 + tolerance)
        and true[goal] <= (own.high or math.inf) * (1 + tolerance)
        for goal, own in bounds.items()
    )


def _times(ratios: Sequence[float], probes: dict[str, list[list[Probe]]]) -> dict[str, Any]:
    ordered = sorted(ratios)
    return {
        "time_ratio": math.exp(statistics.fmean(map(math.log, ratios))),
        "time_ratio_p95": ordered[math.ceil(0.95 * len(ordered)) - 1],
        **{f"{method}_trials": statistics.fmean(map(len, own)) for method, own in probes.items()},
    }


def _text(value: Any) -> str:
    return (
        f"{value:,.4g}"
        if isinstance(value, float) and abs(value) < 1000
        else f"{value:,.0f}"
        if isinstance(value, float)
        else str(value)
    )


def main() -> int:
    """Run the requested comparisons and print one table for each."""
    parser = common.parser(__doc__ or "", common.Defaults(200, 20, 2, 2, what="seeds"))
    parser.add_argument("--repetitions", type=int, default=3, help="full trials that decide about a rate [3]")
    parser.add_argument("--tolerance", type=float, default=0.02, help="accepted error of an interval [0.02]")
    parser.add_argument("--run", action="append", default=[], metavar="FOLDER", help="run folder to replay")
    parser.add_argument("--lab", action="store_true", help="also measure in the lab")
    parser.add_argument("--networks", nargs="+", default=["host", "flannel-vxlan"], help="networks of --lab")
    parser.add_argument("--loss", type=float, nargs="+", default=[0, 0.5], help="loss_percent of --lab")
    parser.add_argument("--p99", type=float, default=10, help="p99_ms of --lab; 0: no limit [10]")
    parser.add_argument(
        "--link-mbit", type=float, default=0, help="rate of the links of --lab; 0: as they are [0]"
    )
    parser.add_argument("--keep", metavar="FOLDER", help="keep the run folders of --lab here")
    options = common.parse(parser)
    report = common.Report("capacity", options)
    parts = {
        "simulated": simulate(options),
        "recorded": replay(options),
        "lab": in_lab(options) if options.lab else [],
    }
    for name, rows in parts.items():
        report.data[name] = rows
        if rows:
            report.text(
                f"{name}:\n" + common.table(list(rows[0]), [[_text(v) for v in row.values()] for row in rows])
            )
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
