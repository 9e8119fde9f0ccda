"""Cross-check the raw middleware, which measures the limit of the machine, against iperf3 and sockperf.

All programs run in the same two pods of one lab network, started by the same supervisor, pinned to the same
cores, in random order within each round. Ratios are between runs of the same round.

  raw, raw-MODE   k8sdds-perftest with plain UDP, best effort, at full speed: received samples
  iperf3          UDP, -b 0, datagrams of the same length, connected sockets, one datagram per system call; the
                  rate that the server received, without its first second
  sockperf        ping-pong, messages of the same length; half of the round trip, as k8sdds-perftest reports it

Throughput has both participants on separate cores. Latency has both on one core, blocked in a system call
while they wait; with `spin` both poll on separate cores (`-receive spin`, `sockperf --nonblocked`).

Plain UDP loses what the receiver does not take in time. The received rate is what counts; the sent rate shows
which side limits it: the server of iperf3 waits with select() before it reads each datagram.

Requires: iperf3, sockperf.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import common
from perftest import measure
from program_results import RAW, WARMUP_S, Run
from programs import Pods

from k8sdds.analysis.statistics import log_mean
from k8sdds.testbeds.lab.testbed import Lab

PAYLOADS = (64, 1024, 1400, 16384)
LATENCY_MODES = ("raw", "raw-single", "raw-connected")
TITLES = {"rate": "received", "sent rate": "sent", "p50": "p50", "p90": "p90"}
PEERS = {"throughput": "iperf3", "latency": "sockperf"}


def groups(payloads: list[int], peers: set[str], tests: list[str]) -> list[list[Run]]:
    """Return the groups of runs to compare: all programs of one test and payload."""
    listed = []
    for payload in payloads:
        for test in tests:
            modes = RAW if test == "throughput" else LATENCY_MODES
            programs = [*modes, *({PEERS[test]} & peers)]
            listed.append([Run(program, test, payload) for program in programs])
            if test == "latency":
                programs = ["raw-connected", *({PEERS[test]} & peers)]
                listed.append([Run(program, test, payload, spins=True) for program in programs])
    return listed


def main() -> int:
    """Run all programs on each network."""
    parser = common.parser(__doc__ or "", common.Defaults(6, 2, 2, 1))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [host]")
    parser.add_argument("--payload", action="append", type=int, help="bytes; repeatable [64 to 16384]")
    parser.add_argument("--test", choices=tuple(PEERS), help="run only this test")
    options = common.parse(parser)
    report = common.Report("limit", options)
    missing_tools = {tool: common.missing({tool: tool}) for tool in PEERS.values()}
    for messages in missing_tools.values():
        for message in messages:
            report.skip(message)
    peers = {tool for tool, messages in missing_tools.items() if not messages}
    tests = [options.test] if options.test else list(PEERS)
    runs = groups(options.payload or list(PAYLOADS), peers, tests)
    report.data |= {"warmup_s": WARMUP_S, "networks": {}}
    for network in options.network or ["host"]:
        common.progress(f"network {network}")
        with (
            tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as folder,
            Lab(f"benchmark-limit-{network}") as lab,
        ):
            pods = Pods(lab, network, "listener", options.seconds, Path(folder))
            values, wires = measure(pods, runs, options, report)
        report.data["networks"][network] = []
        for (_, quantity, payload), measured in sorted(values.items()):
            if quantity in TITLES:
                loss = {
                    name: _mean(kinds.get("lost_percent"))
                    for (_, name, size), kinds in wires.items()
                    if size == payload
                }
                add_table(report, network, quantity, payload, measured, loss)
    report.show()
    return 0


def add_table(
    report: common.Report,
    network: str,
    quantity: str,
    payload: int,
    measured: common.Values,
    loss: dict[str, float | None],
) -> None:
    """Add the table and the data of one quantity and payload: levels with intervals, and ratios to the peer."""
    rate = quantity.endswith("rate")
    peer = PEERS["throughput" if rate else "latency"]
    rows = []
    for item in sorted(measured.by_item):
        level = log_mean(list(measured.by_item[item].values()))
        other = f"{peer} spin" if item.endswith(" spin") else peer
        ratio = measured.ratio(item, other) if item != other else None
        data: dict[str, Any] = {
            "quantity": quantity, "payload_bytes": payload, "program": item, "mean": level.value,
            "low": level.low, "high": level.high, "n": level.n, "lost_percent": loss.get(item) if rate else None,
            "ratio": common.as_json(ratio), "values": measured.by_item[item],
        }  # fmt: skip
        report.data["networks"][network].append(data)
        cells = [common.describe(level, 0 if rate else 2)]
        if rate:
            mbit = log_mean([8e-6 * payload * value for value in measured.by_item[item].values()])
            cells += [common.describe(mbit, 1), common.number(loss.get(item), 1)]
        rows.append([item, *cells, common.describe(ratio)])
    title = TITLES[quantity]
    heads = [f"{title} samples/s", "Mbit/s", "lost %"] if rate else [f"{title}, µs"]
    report.text(common.table([f"{network}, {payload} B", *heads, f"ratio to {peer}"], rows))


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


if __name__ == "__main__":
    common.main(main)
