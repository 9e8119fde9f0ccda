"""What the harness costs: a real campaign's time and CPU that are not measuring.

Runs `k8sdds run` on a small experiment (one publisher, one subscriber, host and flannel-vxlan, throughput
and latency, each trial 5 s after 0.5 s of warm-up) into a temporary folder and tells

  time    which share of the wall time, from the start of the process to the campaign's end, was warm-up or
          measurement (aim: 85 %). All is in it: starting Python, checks, building and proving the
          networks, starting and ending participants, writing results. The report's time stands apart.
          It is a share of short trials: with longer ones it is higher.
  CPU     what all of ours but perftest used while a trial measured, in percent of one core (aim: under 1 %):
          the k8sdds process, nsenter, the pods' and sandboxes' first processes, and the supervisors. Read
          from the kernel's run times of the campaign's processes twice a second, first and last reading
          within the interval; the supervisors also by their own meters, over the whole interval. The
          reading itself runs in this benchmark's process and is not counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import common

from k8sdds.analysis.statistics import Estimate, linear_mean
from k8sdds.results.run_folder import RunFolder
from k8sdds.system import processes, yaml_text

AIM_SHARE = 85
AIM_CPU = 1
SAMPLING_S = 0.5
NETWORKS = ("host", "flannel-vxlan")
PARTICIPANT = "perftest"
GROUPS = {
    "k8sdds-perftest": PARTICIPANT,
    "k8sdds-supervisor": "supervisors",
    "nsenter": "nsenter",
    "unshare": "first processes",
    "pause": "first processes",
}


def experiment(seconds: float, repetitions: int) -> str:
    """The small experiment, as YAML."""
    return yaml_text.dump(
        {
            "name": "benchmark-harness",
            "title": "What does the harness cost?",
            "baseline": NETWORKS[0],
            "repetitions": repetitions,
            "duration_s": seconds,
            "warmup_s": 0.5,
            "sweeps": [
                {"networks": list(NETWORKS), "test": ["throughput", "latency"], "payload_bytes": 1024}
            ],
        }
    )


# -- CPU of the campaign's processes ----------------------------------------------------------------------


@dataclass
class Watcher:
    """Reads the run times of a process and all below it, twice a second."""

    pid: int
    readings: list[tuple[int, dict[tuple[int, str], int]]] = field(default_factory=list)
    """(monotonic ns, {(process id, group): run time in ns})"""

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLING_S):
            found = {}
            waiting = [self.pid]
            while waiting:
                pid = waiting.pop()
                with contextlib.suppress(OSError):
                    group = "k8sdds" if pid == self.pid else _group(pid)
                    # What perftest starts is perftest's.
                    if group != PARTICIPANT:
                        waiting += processes.children(pid)
                        found[pid, group] = _run_time_ns(pid)
            self.readings.append((time.monotonic_ns(), found))

    def end(self) -> None:
        """No more readings."""
        self._stop.set()
        self._thread.join()

    def used_percent(self, start_ns: int, end_ns: int) -> dict[str, float] | None:
        """Percent of a core by group between the first and last reading in an interval; None if too few."""
        inside = [(at, found) for at, found in self.readings if start_ns <= at <= end_ns]
        if len(inside) < 2:
            return None
        (begun, first), (ended, last) = inside[0], inside[-1]
        used: dict[str, float] = {}
        for (pid, group), run_time in last.items():
            spent = run_time - first.get((pid, group), 0)
            used[group] = used.get(group, 0) + 100 * spent / (ended - begun)
        return used


def _group(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    program = Path(words[0]).name
    if program == "k8sdds-supervisor" and words[1:2] == ["pause"]:
        program = "pause"
    return GROUPS.get(program, program or "other")


def _run_time_ns(pid: int) -> int:
    return sum(
        int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )


# -- one campaign -------------------------------------------------------------------------------------------


def campaign(seconds: float, repetitions: int, seed: int, report: common.Report) -> dict[str, Any]:
    """Run the experiment once; its times and CPU."""
    with tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as place:
        file, folder = Path(place) / "harness.yaml", Path(place) / "run"
        file.write_text(experiment(seconds, repetitions))
        program = [str(Path(sys.executable).with_name("k8sdds")), "run", str(file), "--seed", str(seed)]
        begun = time.monotonic()
        subprocess.run([*program, "--dry-run"], check=True, stdout=subprocess.DEVNULL, cwd=place)
        dry = time.monotonic() - begun
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun_at, begun = time.time(), time.monotonic()
        process = subprocess.Popen(
            [*program, "--output", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=place
        )
        watcher = Watcher(process.pid)
        try:
            said = process.communicate()[0].decode(errors="replace")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            watcher.end()
        wall = time.monotonic() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            report.lack(f"campaign with seed {seed}: exit code {process.returncode}: {said.strip()[-300:]}")
        run = RunFolder.open(folder)
        at = {event["event"]: _seconds(event["at"]) for event in run.events()}
        attempts = run.attempts()
        return {
            **_times(attempts, at["started"] - begun_at, at["ended"] - begun_at, wall, dry),
            "cpu": [
                one for one in (_cpu(run, record, watcher) for record in attempts if record["valid"]) if one
            ],
            "cpu_of_all_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        }


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _times(
    attempts: list[dict[str, Any]], started: float, ended: float, wall: float, dry: float
) -> dict[str, float]:
    valid = [one for one in attempts if one["valid"]]
    measuring = sum(one["warmup_s"] + one["measured_s"] for one in valid)
    in_trials = sum(one["wall_s"] for one in attempts)
    return {
        "trials": len(attempts),
        "valid": len(valid),
        "wall_s": wall,
        "dry_run_s": dry,
        "until_first_trial_s": started,
        "measuring_s": measuring,
        "around_a_trial_s": (in_trials - measuring) / len(attempts),
        "between_trials_s": (ended - started - in_trials) / len(attempts),
        "report_s": wall - ended,
        "share_percent": 100 * measuring / ended,
        "share_with_report_percent": 100 * measuring / wall,
    }


def _cpu(run: RunFolder, record: dict[str, Any], watcher: Watcher) -> dict[str, Any] | None:
    """CPU of ours in one trial's interval, percent of a core; None where there is no whole interval."""
    folder = run.raw(record["trial_id"], record["attempt"])
    meters = [json.loads(path.read_text()) for path in folder.glob("*/meters.json")]
    interval = next((one["interval"] for one in meters if one["interval"]["kind"] == "measured"), None)
    if interval is None:
        return None
    start = interval["start_monotonic_ns"]
    used = watcher.used_percent(start, start + round(1e9 * interval["duration_s"]))
    if used is None:
        return None
    own = sum(one["supervisor_cpu_s"] / one["interval"]["duration_s"] for one in meters)
    used["supervisors' own meters"] = 100 * own
    rest = sum(percent for group, percent in used.items() if not group.startswith("supervisors"))
    # The higher of the two readings of the supervisors counts.
    used["all"] = rest + max(used.get("supervisors", 0), 100 * own)
    return used | {"test": record["test"], "network": record["network_label"]}


# -- the benchmark ------------------------------------------------------------------------------------------


TIMES = {
    "wall_s": "wall time, s",
    "dry_run_s": "the same with --dry-run: start-up and checks alone, s",
    "until_first_trial_s": "start-up, checks, networks until the campaign starts, s",
    "measuring_s": "warm-up and measurement, s",
    "around_a_trial_s": "a trial beside its warm-up and measurement, s",
    "between_trials_s": "from one trial to the next, s",
    "report_s": "report and removal, s",
    "cpu_of_all_s": "CPU of all processes, perftest included, s",
    "share_percent": "SHARE of time measuring, without the report, %",
    "share_with_report_percent": "share with the report, %",
}


def main() -> int:
    """Run the campaigns."""
    parser = common.parser(__doc__ or "", common.Defaults(3, 1, 5, 5, "campaigns"))
    parser.add_argument("--repetitions", type=int, default=2, help="of each of the four cells [2]")
    options = common.parse(parser)
    report = common.Report("harness", options)
    if not Path("/proc/self/schedstat").exists():
        report.lack("CPU: this kernel has no /proc/PID/schedstat")
    found = []
    for number in range(options.pairs):
        one = campaign(options.seconds, options.repetitions, options.seed + number, report)
        common.say(
            f"[{number + 1}/{options.pairs}] {one['share_percent']:.1f} % of {one['wall_s']:.1f} s measuring"
        )
        found.append(one)
    report.data["campaigns"] = found
    rows = [[title, _words(linear_mean([one[key] for one in found]))] for key, title in TIMES.items()]
    report.text(common.table(["mean of campaigns (95 %)", "value"], rows))
    share = sum(one["share_percent"] for one in found) / len(found)
    told = "met" if share >= AIM_SHARE else "not met"
    report.text(f"Aim of {AIM_SHARE} % measuring: {told} ({share:.1f} %)")
    _tell_cpu(report, found)
    report.show()
    return 0


def _tell_cpu(report: common.Report, found: list[dict[str, Any]]) -> None:
    trials = [trial for one in found for trial in one["cpu"]]
    if not trials:
        report.lack("CPU: no trial was long enough for two readings")
        return
    groups = sorted({key for trial in trials for key in trial} - {"test", "network", "all"})
    rows = [
        [group, *_percents([float(trial.get(group, 0)) for trial in trials])] for group in [*groups, "all"]
    ]
    report.text(common.table(["% of a core while measuring", "mean (95 %)", "highest"], rows))
    highest = max(trial["all"] for trial in trials)
    report.data["cpu_highest_percent"] = highest
    told = "met" if highest < AIM_CPU else "not met"
    report.text(
        f"Aim of under {AIM_CPU} % of a core in every trial: {told}"
        f" (highest {highest:.2f} %, {len(trials)} trials, {os.cpu_count()} cores)"
    )


def _percents(values: list[float]) -> tuple[str, str]:
    return _words(linear_mean(values), 3), f"{max(values):.3f}"


def _words(estimate: Estimate, digits: int = 2) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} – {estimate.high:.{digits}f})"


if __name__ == "__main__":
    common.main(main)
