"""Compare tests of standard tools with the same tools run by hand between the same pods of a lab network.

  tcp-stream, udp-stream   with iperf3
  tcp-rr, udp-rr           with sockperf, which measures with one connection; medians of round trips
  http                     with wrk, from the same nginx
  tcp-crr                  with wrk and `Connection: close`: nginx also parses HTTP, so it opens fewer connections

Each pair measures both programs one after the other, in random order, pinned to the same cores. A ratio is ours / by
hand. Requires root.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common

from k8sdds.campaign import record as records
from k8sdds.model.measurement import Launch, Listener
from k8sdds.model.trial import Cell, Trial
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.lab.session import LabSession
from k8sdds.testbeds.lab.testbed import Lab
from k8sdds.workloads import tool_packages

WARMUP_S = 1
OURS, BY_HAND = "ours", "by hand"
SOCKPERF_PORT = 11111
TOOLS = {**tool_packages(), "sockperf": "sockperf", "taskset": "util-linux"}


@dataclass(frozen=True)
class Comparison:
    """A cell, the metric to compare, and how to measure the same by hand."""

    title: str
    cell: Cell
    metric: str
    by_hand: Callable[[Bench], float]


class Bench:
    """The pods of one cell."""

    def __init__(self, lab: Lab, cell: Cell, seconds: float, folder: Path) -> None:
        self._lab, self._folder, self._session = lab, folder, LabSession(lab)
        folder.mkdir(parents=True, exist_ok=True)
        self.trial = Trial(
            cell=cell,
            testbed="lab",
            repetition=0,
            duration_s=seconds,
            warmup_s=WARMUP_S,
            max_loss_percent=100,  # an unlimited stream of datagrams fills all queues
        )
        lab.up([cell])
        self._network = next(item for item in lab.networks.values() if item.plan.cell.network == cell.network)
        self.endpoints = self._session.endpoints(self.trial)
        self.server = self.endpoints["sub0"].address

    def launches(self) -> list[Launch]:
        """Return the programs of our trial, with a new output folder for each participant."""
        return common.launches(self._session, self.trial, Path(tempfile.mkdtemp(dir=self._folder)))

    def ours(self, metric: str) -> float:
        """Run a trial as a campaign does, and return a metric. Raises PrerequisiteError if it is not valid."""
        launches = self.launches()
        measurement = self._session.run(self.trial, launches, 60)
        record = records.record(self.trial, 1, measurement, launches[0].directory.parent, {})
        value = record.values().get(metric)
        if not record.valid or value is None:
            raise PrerequisiteError(f"{self.trial.cell.describe()}: {record.reason or f'no {metric}'}")
        return float(value)

    def argv(self, pod: str, argv: Sequence[str]) -> list[str]:
        """Return a command line in a pod, pinned to the cores of its participant."""
        cpus = self.endpoints[pod].cpus
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cpus))] if cpus else []
        return [*self._network.enter(pod), *pinned, *argv]

    def client(self, server: Sequence[str], listens: Listener, client: Sequence[str]) -> str:
        """Start a server by hand, run a client, end the server, and return what the client printed."""
        process = subprocess.Popen(
            self.argv("sub0", server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._await(listens)
            done = subprocess.run(self.argv("pub0", client), capture_output=True, text=True, timeout=60)
        finally:
            # The process is nsenter: only its child is in the pod.
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            subprocess.run(["kill", *children, str(process.pid)], stderr=subprocess.DEVNULL)
            process.wait()
        if done.returncode:
            raise PrerequisiteError(f"{client[0]} failed: {(done.stderr or done.stdout)[-300:]}")
        return done.stdout

    def _await(self, listens: Listener) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            argv = [*self._network.enter("sub0"), *listens.tables]
            if listens.is_ready(subprocess.run(argv, capture_output=True, text=True).stdout):
                return
            time.sleep(0.02)
        raise PrerequisiteError(f"nothing listens on {listens}")

    def with_cell(self, cell: Cell) -> Bench:
        """Return the same pods for a trial of another test on the same network."""
        return Bench(self._lab, cell, self.trial.duration_s, self._folder / cell.test)

    def own_server(self) -> tuple[list[str], Listener]:
        """Return the command line of the server that our trial starts, with its files in the pod."""
        (launch,) = (launch for launch in self.launches() if launch.participant.name == "sub0")
        self._network.write_private_files([launch])
        assert launch.listens is not None
        return list(launch.argv), launch.listens


def iperf3(udp: bool = False, flows: int = 1) -> Callable[[Bench], float]:
    """Return how to measure the throughput in Mbit/s with iperf3."""

    def run(bench: Bench) -> float:
        cell = bench.trial.cell
        argv = ["iperf3", "-c", bench.server, "-J", "-t", f"{bench.trial.duration_s:g}", "-O", str(WARMUP_S)]
        argv += ["-P", str(flows), "-l", str(cell.payload_bytes), "-b", "0", *(["-u"] if udp else [])]
        printed = bench.client(["iperf3", "-s"], Listener("tcp", 5201), argv)
        received = json.loads(printed)["end"]["sum_received"]
        return float(received["bytes"] * 8 / received["seconds"] / 1e6)

    return run


def sockperf(protocol: str) -> Callable[[Bench], float]:
    """Return how to measure the median of round trips in µs with sockperf."""

    def run(bench: Bench) -> float:
        tcp = ["--tcp"] if protocol == "tcp" else []
        common_ = ["-i", bench.server, "-p", str(SOCKPERF_PORT), *tcp]
        size = ["-m", str(bench.trial.cell.payload_bytes)]
        argv = ["sockperf", "pp", *common_, *size, "-t", f"{bench.trial.duration_s:g}", "--full-rtt"]
        listens = Listener("tcp" if tcp else "udp", SOCKPERF_PORT)
        printed = bench.client(["sockperf", "sr", *common_], listens, argv)
        match = re.search(r"percentile 50\.000 =\s*([0-9.]+)", printed)
        if not match:
            raise PrerequisiteError(f"sockperf printed no median: {printed[-300:]}")
        return float(match[1])

    return run


def wrk(connections: int, close: bool = False, path: str = "object") -> Callable[[Bench], float]:
    """Return how to measure the requests per second with wrk."""

    def run(bench: Bench) -> float:
        server, listens = bench.own_server()
        argv = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{bench.trial.duration_s:g}s"]
        argv += ["-H", "Connection: close"] if close else []
        printed = bench.client(server, listens, [*argv, f"http://{bench.server}:{listens.port}/{path}"])
        match = re.search(r"Requests/sec:\s*([0-9.]+)", printed)
        if not match:
            raise PrerequisiteError(f"wrk printed no rate: {printed[-300:]}")
        return float(match[1])

    return run


def comparisons(network: str) -> list[Comparison]:
    """Return the comparisons on a network."""

    def cell(test: str, payload_bytes: int = 1024, **options: Any) -> Cell:
        return Cell(network=network, test=test, payload_bytes=payload_bytes, test_options=options)

    crr = cell("http", object_bytes=64)
    return [
        Comparison("tcp-stream, 1 flow, Mbit/s", cell("tcp-stream", 131072), "throughput_mbps", iperf3()),
        Comparison(
            "tcp-stream, 8 flows, Mbit/s",
            cell("tcp-stream", 131072, flows=8),
            "throughput_mbps",
            iperf3(flows=8),
        ),
        Comparison(
            "udp-stream, 1400 B, Mbit/s", cell("udp-stream", 1400), "throughput_mbps", iperf3(udp=True)
        ),
        Comparison("tcp-rr, 64 B, p50 µs", cell("tcp-rr", 64), "round_trip_p50_us", sockperf("tcp")),
        Comparison("udp-rr, 64 B, p50 µs", cell("udp-rr", 64), "round_trip_p50_us", sockperf("udp")),
        Comparison("http, 1 KiB, 8 connections, /s", cell("http", concurrency=8), "requests_per_s", wrk(8)),
        Comparison(
            "tcp-crr, 64 B, 8 connections, /s", cell("tcp-crr", 64, connections=8), "connections_per_s",
            lambda bench: wrk(8, close=True)(bench.with_cell(crr)),
        ),
    ]  # fmt: skip


def main() -> int:
    """Run the benchmark."""
    parser = common.parser(__doc__ or "", common.Defaults(10, 3, 5, 2))
    parser.add_argument(
        "--network", action="append", help="network of the lab; repeatable [host, flannel-vxlan]"
    )
    options = common.parse(parser)
    report = common.Report("tools", options)
    for missing in common.missing(TOOLS):
        raise PrerequisiteError(missing)
    rows = []
    data: dict[str, Any] = {}
    with Lab("benchmark-tools") as lab, tempfile.TemporaryDirectory() as folder:
        for network in options.network or ["host", "flannel-vxlan"]:
            items = comparisons(network)
            benches = {
                item.title: Bench(lab, item.cell, options.seconds, Path(folder, network, str(index)))
                for index, item in enumerate(items)
            }
            values = {item.title: common.Values() for item in items}
            groups = [[(item, who) for who in (OURS, BY_HAND)] for item in items]
            for item in items:
                # Steers packets to the cores that both programs then use, even if the attempt is not valid.
                with contextlib.suppress(PrerequisiteError):
                    benches[item.title].ours(item.metric)
            for number, (item, who) in common.interleave(options.pairs, groups, options.seed):
                bench = benches[item.title]
                try:
                    value = bench.ours(item.metric) if who == OURS else item.by_hand(bench)
                except PrerequisiteError as error:
                    report.skip(f"{network}: {item.title}, {who}, pair {number + 1}: {error.message}")
                    continue
                values[item.title].add(who, number, value)
                common.progress(f"{network}: {item.title}: {who} {value:.1f}")
            for item in items:
                own = values[item.title]
                ratio = own.ratio(OURS, BY_HAND)
                data.setdefault(network, {})[item.title] = {
                    OURS: own.median(OURS), BY_HAND: own.median(BY_HAND), "ratio": common.as_json(ratio),
                }  # fmt: skip
                rows.append(
                    (
                        f"{network}: {item.title}",
                        common.number(own.median(OURS), 1),
                        common.number(own.median(BY_HAND), 1),
                        common.describe(ratio),
                    )
                )
    report.data |= {"networks": data}
    report.text(common.table(("", OURS, BY_HAND, "ours / by hand"), rows))
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
