"""Compare the overhead of networks in the lab with that on a cluster, both on this machine.

Runs `k8sdds run cni-overhead` at 1 KiB for host, flannel-vxlan and flannel-hostgw in the lab and on a cluster
of local nodes. The nodes share this machine's kernel with each other and with the lab. Then prints:

  overheads  relative to host in the same campaign, in percent, paired by repetition
  added      the µs per sample that a network adds to host: time from sample to sample, CPU time of the
             participants' pods, of softirqs and of the whole machine, and one-way latency. Microseconds of
             the two testbeds can be subtracted; percentages of different baselines cannot
  facts      possible explanations of the remaining difference: packet filters on a node, MTU, bytes on the
  wire

Without --cluster, the benchmark deploys the profile one-machine with a separate state folder and destroys it
at the end. Run folders are kept in --folder; existing ones are not measured again. Requires root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import common

from k8sdds.analysis import background_cost, overhead
from k8sdds.analysis.statistics import Estimate, linear_mean
from k8sdds.kubernetes.metrics import packet_filters
from k8sdds.model.trial import Cell
from k8sdds.results import tidy
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.lab.testbed import Lab

BASELINE = "host"
NETWORKS = (BASELINE, "flannel-vxlan", "flannel-hostgw")
PAYLOAD_BYTES = 1024
TESTBEDS = ("lab", "cluster")
PROFILE = "one-machine"
RUN_TIMEOUT_S = 3600
K8SDDS = Path(sys.prefix) / "bin" / "k8sdds"
OVERHEADS = ("throughput_mbps", "latency_p50_us", "latency_p90_us")
RULES = "rules.json"
FILTERS = ("chains", "rules", "conntrack rules")

Row = dict[str, Any]


# -- measuring ----------------------------------------------------------------------------------------------


def k8sdds(*args: str, environment: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Run k8sdds; raise PrerequisiteError if it fails, except with exit code 4 (invalid trials)."""
    common.progress(f"k8sdds {' '.join(args)}")
    done = subprocess.run(
        [str(K8SDDS), *args], env=environment, cwd=folder, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=RUN_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode not in (0, 4):
        raise PrerequisiteError(
            f"k8sdds {args[0]} exited with code {done.returncode}: {done.stderr.strip()[-600:]}"
        )


@contextmanager
def cluster(name: str | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Provide the name of a deployed cluster and the environment in which k8sdds knows it."""
    if name is not None:
        yield name, dict(os.environ)
        return
    state = tempfile.mkdtemp(prefix="k8sdds-lab-cluster-")
    environment = {**os.environ, "K8SDDS_STATE_DIR": state}
    try:
        k8sdds("deploy", PROFILE, "--yes", environment=environment)
        yield PROFILE, environment
    finally:
        k8sdds("destroy", PROFILE, "--yes", environment=environment)
        # Last, because destroy needs the state folder.
        shutil.rmtree(state)


def campaign(folder: Path, testbed: str, repetitions: int, seconds: float, seed: int) -> list[str]:
    """Return the arguments that measure; they are the same on both testbeds."""
    args = ["run", "cni-overhead", "--testbed", testbed, "--output", str(folder.absolute())]
    args += [word for name in NETWORKS for word in ("--network", name)]
    args += ["--set", f"payload_bytes={PAYLOAD_BYTES}", "--repeat", str(repetitions)]
    return [*args, "--duration", f"{seconds:g}", "--seed", str(seed)]


def lab_rules() -> dict[str, dict[str, float]]:
    """Count the packet filters on a node of each network in the lab."""
    counted = {}
    with Lab("benchmark-rules") as lab:
        settings = {"test": "throughput", "payload_bytes": PAYLOAD_BYTES}
        lab.up([Cell(network=name, **settings) for name in NETWORKS])
        for lab_network in lab.networks.values():
            ruleset = lab_network.sandbox.run(
                ["nft", "--json", "list", "ruleset"], netns=lab_network.plan.topology.nodes[0].name
            )
            counted[lab_network.plan.key.label] = counts(json.loads(ruleset), "")
    return counted


def counts(nft: dict[str, Any], iptables: str) -> dict[str, float]:
    """Return the number of chains and rules on a node, and of rules that use connection tracking."""
    counted = packet_filters.count(nft, iptables)
    tracking = [item for item in nft["nftables"] if "rule" in item and _tracks(item["rule"].get("expr"))]
    return {
        "chains": counted.nft_chains + counted.legacy_chains,
        "rules": counted.nft_rules + counted.legacy_rules,
        "conntrack rules": len(tracking) + iptables.count("--ctstate"),
    }


def _tracks(expression: Any) -> bool:
    if isinstance(expression, dict):
        foreign = isinstance(expression.get("xt"), dict) and expression["xt"].get("name") == "conntrack"
        return "ct" in expression or foreign or any(map(_tracks, expression.values()))
    return isinstance(expression, list) and any(map(_tracks, expression))


def cluster_rules(run: RunFolder) -> dict[str, dict[str, float]]:
    """Return the same counts from the readings on nodes with participants at the end of a block."""
    results: dict[str, dict[str, float]] = {}
    for line in run.readings():
        if line.get("kind") == "node" and line.get("nft"):
            for label in str(line["network"]).split(" + "):
                results[label] = counts(line["nft"], line.get("iptables") or "")
    return results


# -- reading ------------------------------------------------------------------------------------------------


class Measured:
    """The results in one of the two run folders."""

    def __init__(self, folder: Path) -> None:
        self.run = RunFolder.open(folder)
        self.trials: list[Row] = overhead.plain_rows(tidy.best(tidy.frame(self.run)))
        self.overheads = {
            (row["network_label"], row["quantity"]): row
            for row in overhead.plain_rows(overhead.overheads(self.trials, BASELINE))
        }
        facts = self.run.campaign["testbed"]["facts"]
        nodes = facts.get("nodes") or {}
        cpu_counts = [node.get("cpu_count") for node in nodes.values() if isinstance(node, dict)]
        self.cpus = facts.get("cpu_count") or next(filter(None, cpu_counts), None) or os.cpu_count() or 1
        ids = {node.get("boot_id") for node in nodes.values() if isinstance(node, dict)} - {None}
        self.one_kernel = "boot_id" in facts or len(ids) == 1

    def load(self) -> str:
        """Return the lowest and the highest load average of the machine during the trials."""
        loads = []
        for path in self.run.path.glob("raw/*/*/pub0/meters.json"):
            loads.append(json.loads(path.read_text())["machine"]["load_1m"])
        return f"{min(loads):.0f} to {max(loads):.0f}" if loads else "unknown"

    def values(self, network: str, part: Callable[[Row], float | None], test: str) -> dict[int, float]:
        """Return the values by repetition."""
        results = {}
        for row in self.trials:
            if row["network_label"] == network and row["test"] == test and (value := part(row)) is not None:
                results[row["repetition"]] = value
        return results

    def added(self, network: str, part: Callable[[Row], float | None], test: str) -> Estimate | None:
        """Return what a network adds to the baseline, from the repetitions that have both."""
        ours, base = (self.values(name, part, test) for name in (network, BASELINE))
        both = sorted(ours.keys() & base.keys())
        return linear_mean([ours[i] - base[i] for i in both]) if both else None

    def mean(self, network: str, name: str, test: str = "throughput") -> float | None:
        """Return the mean of a column."""
        values = list(self.values(network, lambda row: row.get(name), test).values())
        return sum(values) / len(values) if values else None

    def parts(self) -> dict[str, tuple[str, Callable[[Row], float | None]]]:
        """Return the parts of a sample's time: title to (test, function from a trial to µs)."""
        return {
            "time from sample to sample": (
                "throughput",
                lambda row: 1e6 / row["samples_per_s"] if row["samples_per_s"] else None,
            ),
            "publisher's pod": ("throughput", lambda row: row["publisher_cpu_us_per_sample"]),
            "subscriber's pod": ("throughput", lambda row: row["subscriber_cpu_us_per_sample"]),
            "softirqs": ("throughput", self._softirq_us),
            "whole machine": ("throughput", _machine_us),
            "one-way latency, p50": ("latency", lambda row: row["latency_p50_us"]),
        }

    def _softirq_us(self, row: Row) -> float | None:
        if row["softirq_percent"] is None or not row["received"] or not row["measured_s"]:
            return None
        return row["softirq_percent"] / 100 * self.cpus * row["measured_s"] / row["received"] * 1e6


def _machine_us(row: Row) -> float | None:
    milliseconds = row["machine_cpu_ms_per_mb"]
    return None if milliseconds is None else milliseconds * row["payload_bytes"] / 1e3


# -- output ------------------------------------------------------------------------------------------------


def describe(estimate: Estimate | None, digits: int = 2) -> str:
    """Return an estimate with its interval, such as `1.23 (1.10 – 1.36)`."""
    if estimate is None:
        return "–"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f} (one)"
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} – {estimate.high:.{digits}f})"


def add_tables(report: common.Report, folder: Path) -> None:
    """Add the tables and the data of both run folders to the report."""
    both = {name: Measured(folder / name) for name in TESTBEDS}
    kernels = {name: "one kernel" if item.one_kernel else "several kernels" for name, item in both.items()}
    testbeds = [f"{name}: {kernels[name]}, load average {item.load()}" for name, item in both.items()]
    report.text(f"{PAYLOAD_BYTES} B, reliable unicast, one subscriber; {'; '.join(testbeds)}")
    add_overheads(report, both)
    add_added(report, both)
    add_facts(report, both, json.loads((folder / RULES).read_text()))
    report.data["upkeep"] = background_cost.by_network(both["cluster"].run)
    for name, item in both.items():
        for reason in {str(row["reason"]) for row in item.run.attempts() if not row["valid"]}:
            report.skip(f"an attempt in the {name}: {reason}")


def add_overheads(report: common.Report, both: dict[str, Measured]) -> None:
    """Add the overheads in percent of each testbed's baseline."""
    rows, report.data["overheads"] = [], []
    for network in NETWORKS[1:]:
        for quantity in OVERHEADS:
            results: dict[str, Estimate | None] = {}
            for name, item in both.items():
                row = item.overheads.get((network, quantity))
                results[name] = row and Estimate(
                    row["overhead_percent"], row["ci_low_percent"], row["ci_high_percent"], row["n"]
                )
            title = f"{network}, {METRICS[quantity].title}"
            rows.append(comparison_row(title, results, 1, report.data["overheads"]))
    report.text(common.table(["overhead relative to host, %", *TESTBEDS, "cluster - lab, points"], rows))


def add_added(report: common.Report, both: dict[str, Measured]) -> None:
    """Add the microseconds on top of each testbed's baseline."""
    rows, report.data["added"] = [], []
    for network in NETWORKS[1:]:
        for part in both["lab"].parts():
            results: dict[str, Estimate | None] = {}
            for name, item in both.items():
                test, microseconds = item.parts()[part]
                results[name] = item.added(network, microseconds, test)
            rows.append(comparison_row(f"{network}, {part}", results, 2, report.data["added"]))
    report.text(common.table(["added to host per sample, µs", *TESTBEDS, "cluster - lab"], rows))


def comparison_row(
    title: str, estimates_by_testbed: dict[str, Estimate | None], digits: int, data: list[Row]
) -> list[str]:
    """Return a table row with both testbeds and their difference, and add it to the data."""
    lab, cluster = (estimates_by_testbed[name] for name in TESTBEDS)
    difference = cluster.value - lab.value if lab and cluster else None
    estimates = {name: row and vars(row) for name, row in estimates_by_testbed.items()}
    data.append({"what": title, **estimates, "difference": difference})
    shown = "–" if difference is None else f"{difference:+.{digits}f}"
    return [title, describe(lab, digits), describe(cluster, digits), shown]


def add_facts(report: common.Report, both: dict[str, Measured], in_lab: dict[str, dict[str, float]]) -> None:
    """Add facts that can explain differences between the testbeds."""
    filters = {"lab": in_lab, "cluster": cluster_rules(both["cluster"].run)}
    rows, report.data["facts"] = [], []
    for network in NETWORKS:
        for name, item in both.items():
            columns = ("samples_per_s", "mtu_bytes", "wire_bytes_per_payload_byte")
            fact = {column: item.mean(network, column) for column in columns} | filters[name].get(network, {})
            report.data["facts"].append({"network": network, "testbed": name, **fact})
            digits = {"wire_bytes_per_payload_byte": 3}
            rows.append([
                f"{network}, {name}",
                *(common.number(fact.get(key), digits.get(key, 0)) for key in (*columns, *FILTERS)),
            ])  # fmt: skip
    head = ["means", "samples/s", "MTU", "bytes sent per payload byte", *FILTERS]
    report.text(common.table(head, rows))


def main() -> int:
    """Measure what is missing and print the result."""
    parser = common.parser(__doc__ or "", common.Defaults(5, 2, 3, 1, "repetitions"))
    parser.add_argument("--cluster", metavar="NAME", help="name of a deployed cluster")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("runs/lab-cluster"),
        help="folder of the run folders [runs/lab-cluster]",
    )
    options = common.parse(parser)
    report = common.Report("lab_cluster", options)
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    how = (options.pairs, options.seconds, options.seed)
    if not (folder / RULES).exists():
        (folder / RULES).write_text(json.dumps(lab_rules(), indent=1))
    if not (folder / "lab").exists():
        k8sdds(*campaign(folder / "lab", "lab", *how))
    if not (folder / "cluster").exists():
        with cluster(options.cluster) as (name, environment):
            k8sdds(*campaign(folder / "cluster", name, *how), "--meter", environment=environment)
    add_tables(report, folder)
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
