"""Compare the overhead of networks in the lab with that on a cluster, both on this machine.

Each pair is one repetition in the lab and one on a cluster of local nodes, in random order. The networks of the cluster
are the real daemons, and its nodes share this machine's kernel with each other and with the lab. A repetition measures
every network with payloads of 64 B to 16 KiB: throughput, latency, and the delay of samples at a fixed rate. All pairs
are pooled, and differences are paired:

  overheads  relative to host in the same repetition, in percent, and the difference cluster - lab in percentage points
  added      the µs per sample that a network adds to host, from sample to sample and one way. Microseconds of the two
             testbeds can be subtracted; percentages of different baselines cannot. A residual cluster - lab that
             excludes 0 is explained by the components with an interval that excludes 0
  components CPU time of the participants' pods, of softirqs and of the whole machine, in µs per sample
  facts      what each campaign observed of a network: MTU, rules of the packet filters and those that packets
             match, connection tracking; and the times with host

The cluster has one pod network at a time. With several, host is measured in random order with the others, while the
network before it is installed, or that of the cluster. The agent of that network can change host: with Cilium it takes
1.27 times as long as in the lab (docs/reference/networks.md), which changes all overheads of this pair. With one
network, host is always measured while it is installed. Measure networks that change host in calls of their own, with
other folders.

Without --cluster, the benchmark creates a bundle from the archives of --image, deploys the profile one-machine with a
separate state folder, and destroys it at the end. Every call measures what is missing of the pairs in --folder, so the
pairs can be measured in several calls: an interrupted campaign is resumed, a complete one is not measured again. A
folder with pairs of other networks or payloads is refused. Requires root.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import common

from k8sdds.analysis import overhead
from k8sdds.analysis.statistics import Estimate, linear_mean
from k8sdds.results import tidy
from k8sdds.results.metrics import METRICS
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError, PrerequisiteError
from k8sdds.system.grouping import Row
from k8sdds.system.paths import shared

BASELINE = "host"
NETWORKS = ("flannel-vxlan", "flannel-hostgw", "kube-router")
PAYLOADS = (64, 1024, 16384)
TESTBEDS = ("lab", "cluster")
PROFILE = "one-machine"
RUN_TIMEOUT_S = 3600
RATE = 1000
"""Samples per second of the paced test."""
OVERHEADS = {"throughput_mbps": "throughput", "latency_p50_us": "latency", "delay_p50_us": "paced"}
"""Quantity to the test that measures it."""
FACTS = ("rules", "rules_matched", "conntrack", "added_bytes")
"""What the fingerprint of a campaign contains."""

Part = tuple[str, Callable[[Row], float | None]]
"""Test, and function from a trial to µs per sample."""
Cases = Sequence[tuple[str, int]]
"""Networks and payloads in bytes."""


# -- measuring ----------------------------------------------------------------------------------------------


def k8sdds(*args: str, environment: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Run k8sdds; raise PrerequisiteError if it fails, except with exit code 4 (invalid trials)."""
    common.progress(f"k8sdds {' '.join(args)}")
    done = subprocess.run(
        [common.K8SDDS, *args], env=environment, cwd=folder, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=RUN_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode not in (0, 4):
        raise PrerequisiteError(
            f"k8sdds {args[0]} exited with code {done.returncode}: {done.stderr.strip()[-600:]}"
        )


@contextmanager
def cluster(name: str | None, images: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, str]]]:
    """Provide the name of a deployed cluster and the environment in which k8sdds knows it.

    Without a name, a cluster is deployed, from a bundle with these `images` (NETWORK=FILE) if there are any.
    """
    if name is not None:
        yield name, dict(os.environ)
        return
    with tempfile.TemporaryDirectory(prefix="k8sdds-bundle-") as folder:
        profile = with_bundle(Path(folder), images) if images else PROFILE
        state = tempfile.mkdtemp(prefix="k8sdds-lab-cluster-")
        environment = {**os.environ, "K8SDDS_STATE_DIR": state}
        try:
            k8sdds("deploy", profile, "--yes", environment=environment)
            yield PROFILE, environment
        finally:
            k8sdds("destroy", PROFILE, "--yes", environment=environment)
            # Last, because destroy needs the state folder.
            shutil.rmtree(state)


def with_bundle(folder: Path, images: Sequence[str]) -> str:
    """Create a bundle with these archives of images, and return the path of a profile that deploys from it."""
    options = [word for image in images for word in ("--image", image)]
    k8sdds("bundle", "create", str(folder / "bundle"), "--suite", "none", *options)
    text = (shared("profiles") / f"{PROFILE}.yaml").read_text()
    software = f"software: {{source: bundle, bundle: {folder / 'bundle'}}}"
    profile = folder / f"{PROFILE}.yaml"
    profile.write_text(re.sub("(?m)^software: .*", software, text))
    return str(profile)


def measure(folder: Path, testbed: str, options: Any, seed: int, environment: dict[str, str]) -> None:
    """Run the campaign of a pair, or what is missing of it; it is the same on both testbeds."""
    if folder.exists():
        k8sdds("run", "--resume", str(folder), environment=environment)
        return
    what = measured_cases(options)
    sweeps = [{"test": ["throughput", "latency"], **what}, {"test": "paced", "rate": RATE, **what}]
    campaign = {
        "name": "lab-cluster", "baseline": BASELINE, "repetitions": 1, "duration_s": options.seconds,
        "warmup_s": options.seconds / 4, "sweeps": sweeps,
    }  # fmt: skip
    file = campaign_file(folder)
    file.write_text(json.dumps(campaign))
    command = ("run", str(file), "--testbed", testbed, "--output", str(folder), "--seed", str(seed))
    k8sdds(*command, environment=environment)


def measured_cases(options: Any) -> dict[str, list[Any]]:
    """Return the networks and payloads of each sweep."""
    return {"networks": [BASELINE, *options.network], "payload_bytes": list(options.payload)}


def campaign_file(folder: Path) -> Path:
    """Return the file with the campaign of a run folder."""
    return folder.with_name(f"{folder.name}.yaml")


def require_same_cases(folders: Sequence[Path], options: Any) -> None:
    """Refuse run folders whose campaigns have other networks or payloads, also if they are incomplete."""
    for folder in (folder for folder in folders if folder.exists()):
        sweeps = json.loads(campaign_file(folder).read_text())["sweeps"]
        for key, wanted in measured_cases(options).items():
            stored = sorted({value for sweep in sweeps for value in sweep[key]})
            if stored != sorted(set(wanted)):
                raise InputError(
                    f"{folder} has the {key} {', '.join(map(str, stored))}, not {', '.join(map(str, wanted))}",
                    "use another --folder, or the same --network and --payload as before",
                )


def is_complete(folder: Path) -> bool:
    """Return whether the campaign of a run folder has ended, also if some trials have no valid attempt."""
    events = RunFolder.open(folder).events() if folder.exists() else []
    return bool(events) and events[-1]["event"] == "ended"


# -- reading ------------------------------------------------------------------------------------------------


class Measured:
    """The results of a testbed: its run folders are the repetitions."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.runs = [RunFolder.open(folder) for folder in folders]
        self.trials: list[Row] = tidy.comparable(
            [
                row | {"repetition": number}
                for number, run in enumerate(self.runs)
                for row in tidy.best(tidy.rows(run))
            ]
        )
        self.overheads = {
            (row["network_label"], row["payload_bytes"], row["quantity"]): row
            for row in overhead.overheads(self.trials, BASELINE)
        }
        facts = self.runs[0].campaign["testbed"]["facts"]
        nodes = facts.get("nodes") or {}
        cpu_counts = [node.get("cpu_count") for node in nodes.values() if isinstance(node, dict)]
        self.cpus = facts.get("cpu_count") or next(filter(None, cpu_counts), None) or os.cpu_count() or 1
        ids = {node.get("boot_id") for node in nodes.values() if isinstance(node, dict)} - {None}
        self.one_kernel = "boot_id" in facts or len(ids) == 1

    def load(self) -> str:
        """Return the lowest and the highest load average of the machine during the trials."""
        loads = []
        for path in (path for run in self.runs for path in run.path.glob("raw/*/*/pub0/meters.json")):
            loads.append(json.loads(path.read_text())["machine"]["load_1m"])
        return f"{min(loads):.0f} to {max(loads):.0f}" if loads else "unknown"

    def values(self, network: str, payload: int, part: Part) -> dict[int, float]:
        """Return the values by repetition."""
        test, microseconds = part
        results = {}
        for row in self.trials:
            if (row["network_label"], row["payload_bytes"], row["test"]) == (network, payload, test):
                value = microseconds(row)
                if value is not None:
                    results[row["repetition"]] = value
        return results

    def added(self, network: str, payload: int, part: Part) -> dict[int, float]:
        """Return the overhead of a network over the baseline, in each repetition that has both."""
        ours, base = (self.values(name, payload, part) for name in (network, BASELINE))
        return {i: ours[i] - base[i] for i in sorted(ours.keys() & base.keys())}

    def relative(self, network: str, payload: int, quantity: str) -> dict[int, float]:
        """Return the overhead relative to the baseline in percent, in each repetition that has both."""
        part: Part = (OVERHEADS[quantity], lambda row: row[quantity])
        ours, base = (self.values(name, payload, part) for name in (network, BASELINE))
        sign = 1 if METRICS[quantity].gain else -1
        return {i: sign * (1 - ours[i] / base[i]) * 100 for i in sorted(ours.keys() & base.keys())}

    def times(self) -> dict[str, Part]:
        """Return the times of a sample by title."""
        return {
            "from sample to sample": (
                "throughput",
                lambda row: 1e6 / row["samples_per_s"] if row["samples_per_s"] else None,
            ),
            "one-way latency, p50": ("latency", lambda row: row["latency_p50_us"]),
            f"delay at {RATE}/s, p50": ("paced", lambda row: row["delay_p50_us"]),
        }

    def components(self) -> dict[str, Part]:
        """Return the CPU times per sample by title, of which the times consist."""
        return {
            "publisher's pod": ("throughput", lambda row: row["publisher_cpu_us_per_sample"]),
            "subscriber's pod": ("throughput", lambda row: row["subscriber_cpu_us_per_sample"]),
            "softirqs": ("throughput", self._softirq_us),
            "whole machine": ("throughput", _machine_us),
        }

    def _softirq_us(self, row: Row) -> float | None:
        if row["softirq_percent"] is None or not row["received"] or not row["measured_s"]:
            return None
        return float(row["softirq_percent"] / 100 * self.cpus * row["measured_s"] / row["received"] * 1e6)

    def facts(self, network: str) -> Row:
        """Return the fingerprint of a network, and its MTU."""
        row = next((row for row in self.trials if row["network_label"] == network), {})
        observed = row.get("fingerprint") or {}
        return {"mtu": row.get("mtu_bytes"), **{key: observed.get(key) for key in FACTS}}


def _machine_us(row: Row) -> float | None:
    milliseconds = row["machine_cpu_ms_per_mb"]
    return None if milliseconds is None else milliseconds * row["payload_bytes"] / 1e3


def difference(ours: dict[int, float], others: dict[int, float]) -> Estimate | None:
    """Return the mean of the paired differences; None without pairs."""
    pairs = [ours[i] - others[i] for i in ours.keys() & others.keys()]
    return linear_mean(pairs) if pairs else None


def excludes_0(estimate: Estimate | None) -> bool:
    """Return whether 0 is outside of an interval."""
    return bool(estimate and estimate.low is not None and not estimate.low <= 0 <= (estimate.high or 0))


# -- output ------------------------------------------------------------------------------------------------


def add_tables(report: common.Report, folder: Path, options: Any) -> None:
    """Add the tables and the data of the complete pairs to the report."""
    pairs = [i for i in range(options.pairs) if all(is_complete(folder / f"{name}-{i}") for name in TESTBEDS)]
    if not pairs:
        raise PrerequisiteError(
            f"no pair in {folder} is complete", "start the benchmark again to resume them"
        )
    both = {name: Measured([folder / f"{name}-{i}" for i in pairs]) for name in TESTBEDS}
    kernels = {name: "one kernel" if item.one_kernel else "several kernels" for name, item in both.items()}
    testbeds = [f"{name}: {kernels[name]}, load average {item.load()}" for name, item in both.items()]
    report.text(f"Reliable unicast, one subscriber; {'; '.join(testbeds)}")
    cases = [(network, payload) for network in options.network for payload in options.payload]
    add_overheads(report, both, cases)
    add_added(report, both, cases)
    add_facts(report, both, options)
    for name, item in both.items():
        attempts = (row for run in item.runs for row in run.attempts())
        for reason in {str(row["reason"]) for row in attempts if not row["valid"]}:
            report.skip(f"an attempt in the {name}: {reason}")


def add_overheads(report: common.Report, both: dict[str, Measured], cases: Cases) -> None:
    """Add the overheads in percent of each testbed's baseline, and their differences in percentage points."""
    rows, report.data["overheads"], report.data["differences"] = [], [], []
    for (network, payload), quantity in product(cases, OVERHEADS):
        shown = [f"{network}, {payload} B, {METRICS[quantity].title}"]
        for name, item in both.items():
            row = item.overheads.get((network, payload, quantity))
            shown.append(common.describe(_overhead(row) if row else None, 1))
            report.data["overheads"].append({"testbed": name, **(row or {})})
        apart = difference(*(both[name].relative(network, payload, quantity) for name in ("cluster", "lab")))
        what = {"network": network, "payload_bytes": payload, "quantity": quantity}
        report.data["differences"].append(what | (vars(apart) if apart else {"value": None}))
        verdict = "differs" if excludes_0(apart) else "contains 0"
        rows.append([*shown, common.describe(apart, 1), verdict if apart else "–"])
    head = ["overhead relative to host, %", *TESTBEDS, "cluster - lab, points", "interval"]
    report.text(common.table(head, rows))


def _overhead(row: Row) -> Estimate:
    return Estimate(row["overhead_percent"], row["ci_low_percent"], row["ci_high_percent"], row["n"])


def add_added(report: common.Report, both: dict[str, Measured], cases: Cases) -> None:
    """Add the microseconds on top of each testbed's baseline, and the components of their differences."""
    rows, report.data["added"] = [], []
    components: list[list[str]] = []
    head = [*TESTBEDS, "cluster - lab"]
    for network, payload in cases:
        different = []
        for title in both["lab"].components():
            shown, residual = _compared(report, both, network, payload, title)
            components.append(shown)
            if residual and excludes_0(residual):
                different.append(f"{title} {residual.value:+.1f}")
        for title in both["lab"].times():
            shown, residual = _compared(report, both, network, payload, title)
            explained = ", ".join(different) or "not explained"
            known = residual is not None and residual.low is not None
            rows.append([*shown, explained if excludes_0(residual) else "inside" if known else "–"])
    report.text(common.table(["added to host per sample, µs", *head, "residual"], rows))
    report.text(common.table(["CPU time added to host per sample, µs", *head], components))


def _compared(
    report: common.Report, both: dict[str, Measured], network: str, payload: int, title: str
) -> tuple[list[str], Estimate | None]:
    """Return the table row of a time or component on both testbeds, and the residual; add them to the data."""
    added = {
        name: item.added(network, payload, (item.times() | item.components())[title])
        for name, item in both.items()
    }
    estimates = {name: linear_mean([*values.values()]) if values else None for name, values in added.items()}
    residual = difference(added["cluster"], added["lab"])
    data = {name: item and vars(item) for name, item in (*estimates.items(), ("residual", residual))}
    report.data["added"].append({"network": network, "payload_bytes": payload, "what": title, **data})
    cells = [common.describe(item, 2) for item in (*estimates.values(), residual)]
    return [f"{network}, {payload} B, {title}", *cells], residual


def add_facts(report: common.Report, both: dict[str, Measured], options: Any) -> None:
    """Add what each campaign observed of the networks, and the times with host."""
    rows, report.data["facts"] = [], []
    for network in (BASELINE, *options.network):
        for name, item in both.items():
            fact = item.facts(network)
            report.data["facts"].append({"network": network, "testbed": name, **fact})
            rows.append(
                [f"{network}, {name}", *("–" if value is None else str(value) for value in fact.values())]
            )
    report.text(common.table(["observed", "MTU", *(name.replace("_", " ") for name in FACTS)], rows))
    rows, report.data["baseline"] = [], []
    for payload in options.payload:
        for title in both["lab"].times() | both["lab"].components():
            shown = [f"{BASELINE}, {payload} B, {title}"]
            for name, item in both.items():
                values = list(
                    item.values(BASELINE, payload, (item.times() | item.components())[title]).values()
                )
                shown.append(common.describe(linear_mean(values) if values else None, 2))
                report.data["baseline"].append(
                    {"testbed": name, "payload_bytes": payload, "what": title, "values": values}
                )
            rows.append(shown)
    report.text(common.table(["per sample, µs", *TESTBEDS], rows))


def main() -> int:
    """Measure what is missing and print the result."""
    parser = common.parser(__doc__ or "", common.Defaults(5, 1, 1, 0.5))
    parser.add_argument("--cluster", metavar="NAME", help="name of a deployed cluster")
    parser.add_argument(
        "--image", action="append", default=[], metavar="NETWORK=FILE",
        help="archive of the images of kube-router or Cilium, as for `k8sdds bundle create`; repeatable",
    )  # fmt: skip
    parser.add_argument("--network", action="append", help=f"repeatable {list(NETWORKS)}")
    parser.add_argument(
        "--payload", type=int, action="append", help=f"payload in bytes; repeatable {list(PAYLOADS)}"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("runs/lab-cluster"),
        help="folder of the run folders [runs/lab-cluster]",
    )
    options = common.parse(parser)
    if BASELINE in (options.network or ()):
        parser.error(f"--network {BASELINE}: every pair measures it as the baseline; name other networks")
    options.network, options.payload = options.network or NETWORKS, options.payload or PAYLOADS
    report = common.Report("lab_cluster", options)
    folder: Path = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    schedule = common.interleave(options.pairs, [TESTBEDS], options.seed)
    require_same_cases([folder / f"{name}-{i}" for i, name in schedule], options)
    missing = [pair for pair in schedule if not is_complete(folder / f"{pair[1]}-{pair[0]}")]
    if missing:
        with cluster(options.cluster, options.image) as (deployed, environment):
            for i, name in missing:
                testbed = deployed if name == "cluster" else name
                measure(folder / f"{name}-{i}", testbed, options, options.seed + i, environment)
    add_tables(report, folder, options)
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
