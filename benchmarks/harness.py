"""Measure the overhead of the harness: time and CPU of a campaign outside of measurements.

Runs `k8sdds run` with a small experiment (one publisher, one subscriber, host and flannel-vxlan, throughput
and latency, trials of 5 s after a warm-up of 0.5 s) into a temporary folder. With `--testbed cluster`, it deploys
the profile one-machine and runs the experiment there with flannel-hostgw as a third network, so that the campaign
switches the cluster's network; `--cluster NAME` uses an existing cluster. The target there is for `--seconds 10`. It
reports:

  time    the share of warm-up and measurement in the wall time from the start of the process to the end of
          the campaign (target: 85 %). The wall time includes starting Python, checks, building and verifying
          the networks, starting and stopping participants, and writing results. The time of the report is
          listed separately. The share is higher with longer trials. On a cluster, only measured intervals
          count, of the whole wall time with cleanup and report (target: 60 %), and the time to prepare a
          block is listed by whether a network was switched for it
  CPU     the CPU of all processes of k8sdds except perftest during a measurement, in percent of one core
          (target: under 1 %): the k8sdds process, nsenter, the first processes of pods and sandboxes, and the
          supervisors. The benchmark reads the run times of these processes from the kernel twice per second
          and uses the first and the last reading within the measured interval. The supervisors also report
          their own CPU over the whole interval. The readings run in the benchmark's process and are not
          included.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import common
import lab_cluster

from k8sdds.analysis.statistics import linear_mean
from k8sdds.results.run_folder import RunFolder
from k8sdds.system import processes, yaml_text

AIM_SHARE = {"lab": 85, "cluster": 60}
SHARE = {"lab": "share_percent", "cluster": "measured_share_percent"}
AIM_CPU = 1
HOST = "host"
SAMPLING_S = 0.5
NETWORKS = {"lab": (HOST, "flannel-vxlan"), "cluster": (HOST, "flannel-vxlan", "flannel-hostgw")}
PARTICIPANT = "perftest"
GROUPS = {
    "k8sdds-perftest": PARTICIPANT,
    "k8sdds-supervisor": "supervisors",
    "nsenter": "nsenter",
    "unshare": "first processes",
    "pause": "first processes",
}


def experiment(networks: Sequence[str], seconds: float, repetitions: int) -> str:
    """Return the small experiment as YAML."""
    return yaml_text.dump(
        {
            "name": "benchmark-harness",
            "title": "Overhead of the harness",
            "baseline": networks[0],
            "repetitions": repetitions,
            "duration_s": seconds,
            "warmup_s": 0.5,
            "sweeps": [
                {"networks": list(networks), "test": ["throughput", "latency"], "payload_bytes": 1024}
            ],
        }
    )


# -- CPU of the campaign's processes ----------------------------------------------------------------------


@dataclass
class Watcher:
    """Reads the run times of a process and its descendants twice per second."""

    pid: int
    readings: list[tuple[int, dict[tuple[int, str], int]]] = field(default_factory=list)
    """(monotonic ns, {(process id, group): run time in ns})"""

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(SAMPLING_S):
            results = {}
            waiting = [self.pid]
            while waiting:
                pid = waiting.pop()
                with contextlib.suppress(OSError):
                    group = "k8sdds" if pid == self.pid else _group(pid)
                    # Children of perftest count as perftest.
                    if group != PARTICIPANT:
                        waiting += processes.children(pid)
                        results[pid, group] = _run_time_ns(pid)
            self.readings.append((time.monotonic_ns(), results))

    def end(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()

    def used_percent(self, start_ns: int, end_ns: int) -> dict[str, float] | None:
        """Return percent of a core by group between the first and the last reading in an interval.

        None with fewer than two readings.
        """
        inside = [(at, run_times) for at, run_times in self.readings if start_ns <= at <= end_ns]
        if len(inside) < 2:
            return None
        (begun, first), (ended, last) = inside[0], inside[-1]
        used: dict[str, float] = {}
        for (pid, group), run_time in last.items():
            spent = run_time - first.get((pid, group), 0)
            used[group] = used.get(group, 0) + 100 * spent / (ended - begun)
        return used


def _group(pid: int) -> str:
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    program = Path(argv[0]).name
    if program == "k8sdds-supervisor" and argv[1:2] == ["pause"]:
        program = "pause"
    return GROUPS.get(program, program or "other")


def _run_time_ns(pid: int) -> int:
    return sum(
        int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()
    )


# -- one campaign -------------------------------------------------------------------------------------------


def campaign(
    text: str, testbed: str, environment: dict[str, str] | None, seed: int, report: common.Report
) -> dict[str, Any]:
    """Run the experiment once and return its times and its CPU usage."""
    with tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as place:
        file, folder = Path(place) / "harness.yaml", Path(place) / "run"
        file.write_text(text)
        program = [common.K8SDDS, "run", str(file), "--seed", str(seed)]
        program += ["--testbed", testbed]
        begun = time.monotonic()
        subprocess.run(
            [*program, "--dry-run"], check=True, stdout=subprocess.DEVNULL, cwd=place, env=environment
        )
        dry = time.monotonic() - begun
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        begun_at, begun = time.time(), time.monotonic()
        process = subprocess.Popen(
            [*program, "--output", str(folder)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=place, env=environment,
        )  # fmt: skip
        watcher = Watcher(process.pid)
        try:
            output = process.communicate()[0].decode(errors="replace")
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
            watcher.end()
        wall = time.monotonic() - begun
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            report.skip(f"campaign with seed {seed}: exit code {process.returncode}: {output.strip()[-300:]}")
        run = RunFolder.open(folder)
        at = {event["event"]: _seconds(event["at"]) for event in run.events()}
        attempts = run.attempts()
        return {
            **_times(attempts, at["started"] - begun_at, at["ended"] - begun_at, wall, dry),
            "prepared": _preparations(run),
            "cpu": [
                usage for record in attempts if record["valid"] and (usage := _cpu(run, record, watcher))
            ],
            "cpu_of_all_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        }


def _preparations(run: RunFolder) -> list[dict[str, Any]]:
    """Return the blocks in order: their pod networks, how long they were prepared, and if another one came first."""
    networks: dict[int, set[str]] = {}
    for record in run.attempts():
        networks.setdefault(record["block"], set()).add(record["network"])
    prepared: list[dict[str, Any]] = []
    for event in run.events():
        if event["event"] == "prepared":
            pods = networks[event["block"]] - {HOST}
            before = next((set(row["pods"]) for row in reversed(prepared) if row["pods"]), pods)
            switched = bool(pods) and pods != before
            prepared.append({"pods": sorted(pods), "took_s": event["took_s"], "switched": switched})
    return prepared


def _seconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp()


def _times(
    attempts: list[dict[str, Any]], started: float, ended: float, wall: float, dry: float
) -> dict[str, float]:
    valid = [record for record in attempts if record["valid"]]
    measuring = sum(record["warmup_s"] + record["measured_s"] for record in valid)
    in_trials = sum(record["wall_s"] for record in attempts)
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
        "measured_share_percent": 100 * sum(record["measured_s"] for record in valid) / wall,
    }


def _cpu(run: RunFolder, record: dict[str, Any], watcher: Watcher) -> dict[str, Any] | None:
    """Return the CPU of the harness during one trial in percent of a core, or None."""
    folder = run.raw(record["trial_id"], record["attempt"])
    meters = [json.loads(path.read_text()) for path in folder.glob("*/meters.json")]
    interval = next((meter["interval"] for meter in meters if meter["interval"]["kind"] == "measured"), None)
    if interval is None:
        return None
    start = interval["start_monotonic_ns"]
    used = watcher.used_percent(start, start + round(1e9 * interval["duration_s"]))
    if used is None:
        return None
    own = sum(meter["supervisor_cpu_s"] / meter["interval"]["duration_s"] for meter in meters)
    used["supervisors' own meters"] = 100 * own
    rest = sum(percent for group, percent in used.items() if not group.startswith("supervisors"))
    # The supervisors count with the higher of their two readings.
    used["all"] = rest + max(used.get("supervisors", 0), 100 * own)
    return used | {"test": record["test"], "network": record["network_label"]}


# -- the benchmark ------------------------------------------------------------------------------------------


TIMES = {
    "wall_s": "wall time, s",
    "dry_run_s": "wall time with --dry-run (startup and checks only), s",
    "until_first_trial_s": "startup, checks and networks before the campaign, s",
    "measuring_s": "warm-up and measurement, s",
    "around_a_trial_s": "a trial without its warm-up and measurement, s",
    "between_trials_s": "from one trial to the next, s",
    "report_s": "report and cleanup, s",
    "cpu_of_all_s": "CPU of all processes including perftest, s",
    "share_percent": "SHARE of measuring time without the report, %",
    "share_with_report_percent": "share of measuring time with the report, %",
    "measured_share_percent": "share of measured intervals alone in the wall time, %",
}


def main() -> int:
    """Run the campaigns."""
    parser = common.parser(__doc__ or "", common.Defaults(3, 1, 5, 5, "campaigns"))
    parser.add_argument(
        "--repetitions", type=int, default=2, help="repetitions of each of the four cells [2]"
    )
    parser.add_argument("--testbed", choices=tuple(AIM_SHARE), default="lab", help="where to measure [lab]")
    parser.add_argument("--cluster", help="a deployed cluster [deploys one-machine]")
    parser.add_argument("--network", action="append", help="repeatable; the first is the baseline")
    options = common.parse(parser)
    networks = options.network or NETWORKS[options.testbed]
    report = common.Report("harness", options)
    report.data |= {"testbed": options.testbed, "networks": list(networks)}
    if not Path("/proc/self/schedstat").exists():
        report.skip("CPU: this kernel has no /proc/PID/schedstat")
    campaigns = []
    text, key = experiment(networks, options.seconds, options.repetitions), SHARE[options.testbed]
    on_cluster = options.testbed == "cluster"
    where = lab_cluster.cluster(options.cluster) if on_cluster else contextlib.nullcontext(("lab", None))
    with where as (testbed, environment):
        for number in range(options.pairs):
            result = campaign(text, testbed, environment, options.seed + number, report)
            common.progress(
                f"[{number + 1}/{options.pairs}] {result[key]:.1f} % of {result['wall_s']:.1f} s measuring"
            )
            campaigns.append(result)
    report.data["campaigns"] = campaigns
    rows = [
        [title, common.describe(linear_mean([result[key] for result in campaigns]), 2)]
        for key, title in TIMES.items()
    ]
    report.text(common.table(["mean of campaigns (95 %)", "value"], rows))
    share = sum(result[key] for result in campaigns) / len(campaigns)
    aim = AIM_SHARE[options.testbed]
    outcome = "met" if share >= aim else "not met"
    report.text(f"Target of {aim} % measuring: {outcome} ({share:.1f} %)")
    if on_cluster:
        _add_preparations(report, campaigns)
    _add_cpu(report, campaigns)
    report.show()
    return 0


def _add_preparations(report: common.Report, campaigns: list[dict[str, Any]]) -> None:
    """Add the times to prepare blocks, with and without a switch of the network."""
    rows = []
    for title, switched in (("after another network", True), ("with the installed network, or host", False)):
        times = [row["took_s"] for one in campaigns for row in one["prepared"] if row["switched"] is switched]
        if times:
            rows.append([title, str(len(times)), common.describe(linear_mean(times), 2), f"{max(times):.2f}"])
    report.text(common.table(["preparing a block, s", "blocks", "mean (95 %)", "longest"], rows))


def _add_cpu(report: common.Report, campaigns: list[dict[str, Any]]) -> None:
    trials = [trial for result in campaigns for trial in result["cpu"]]
    if not trials:
        report.skip("CPU: no trial was long enough for two readings")
        return
    groups = sorted({key for trial in trials for key in trial} - {"test", "network", "all"})
    rows = [
        [group, *_percents([float(trial.get(group, 0)) for trial in trials])] for group in [*groups, "all"]
    ]
    report.text(common.table(["% of a core while measuring", "mean (95 %)", "highest"], rows))
    highest = max(trial["all"] for trial in trials)
    report.data["cpu_highest_percent"] = highest
    outcome = "met" if highest < AIM_CPU else "not met"
    report.text(
        f"Target of under {AIM_CPU} % of a core in every trial: {outcome}"
        f" (highest {highest:.2f} %, {len(trials)} trials, {os.cpu_count()} cores)"
    )


def _percents(values: list[float]) -> tuple[str, str]:
    return common.describe(linear_mean(values), 3), f"{max(values):.3f}"


if __name__ == "__main__":
    common.main(main)
