"""Compare Fast DDS, Cyclone DDS and raw UDP with the same program between two pods of the lab.

Shows the effect of the middleware, and how close each middleware is to the limit of the network. The same
k8sdds-perftest runs all three in the same two pods of one lab network, started by the same supervisor, pinned
to the same cores, in random order within each round. Ratios are between runs of the same round.

  cyclonedds  strict reliability, one sample per message; messages up to 14,720 bytes, fragments of 1,344
  fastdds     the same QoS and the same message length; a fragment fills a message
  raw         plain UDP datagrams of the same length, best effort, at full speed: the limit of the network

The benchmark reports ratios with their intervals and no verdict. It also reports CPU time and bytes on the
wire per sample.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import common
from perftest import measure
from programs import PAYLOADS, QUANTITIES, WARMUP_S, Pods, Run

from k8sdds.middleware.k8sdds_perftest import backends
from k8sdds.testbeds.lab.testbed import Lab

PROGRAMS = {"ours": "cyclonedds", "fastdds": "fastdds", "raw": "raw"}
"""Name in the shared code, and name in the output."""

TITLES = QUANTITIES | {"rate": ("received samples/s", 0)}


def main() -> int:
    """Run all programs on each network."""
    parser = common.parser(__doc__ or "", common.Defaults(6, 2, 3, 2))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [host]")
    parser.add_argument("--payload", action="append", type=int, help="bytes; repeatable [64 to 16384]")
    parser.add_argument("--receive", choices=("listener", "waitset"), default="listener", help="[listener]")
    parser.add_argument("--test", choices=("throughput", "latency"), help="run only this test")
    options = common.parse(parser)
    report = common.Report("middlewares", options)
    missing = [name for name in PROGRAMS.values() if name not in backends()]
    for name in missing:
        report.skip(f"{name}: this build of k8sdds-perftest does not contain it: make setup")
    programs = [program for program, name in PROGRAMS.items() if name not in missing]
    tests = [options.test] if options.test else ["throughput", "latency"]
    runs = [
        [Run(program, test, payload) for program in programs if test == "throughput" or program != "raw"]
        for payload in options.payload or PAYLOADS
        for test in tests
    ]
    report.data |= {"receive": options.receive, "warmup_s": WARMUP_S, "networks": {}}
    for network in options.network or ["host"]:
        common.progress(f"network {network}")
        with (
            tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as folder,
            Lab(f"benchmark-middlewares-{network}") as lab,
        ):
            pods = Pods(lab, network, options.receive, options.seconds, Path(folder))
            values, wires = measure(pods, runs, options, report)
        add_tables(report, network, values, wires)
    report.show()
    return 0


def add_tables(
    report: common.Report,
    network: str,
    values: dict[tuple[str, int], common.Values],
    wires: dict[tuple[str, int], dict[str, list[float]]],
) -> None:
    """Add the tables and the data of one network to the report."""
    data: list[dict[str, Any]] = []
    for quantity, (title, digits) in TITLES.items():
        rows = []
        for payload in sorted(size for kind, size in values if kind == quantity):
            measured = values[quantity, payload]
            medians = {name: measured.median(program) for program, name in PROGRAMS.items()}
            ratios = {
                "fastdds/cyclonedds": measured.ratio("fastdds", "ours"),
                "cyclonedds/raw": measured.ratio("ours", "raw"),
                "fastdds/raw": measured.ratio("fastdds", "raw"),
            }
            rows.append(
                [f"{payload} B", *(common.number(value, digits) for value in medians.values())]
                + [ratio.describe() if ratio else "–" for ratio in ratios.values()]
            )
            data.append(
                {"quantity": quantity, "payload_bytes": payload, **medians, "values": measured.by_item}
                | {name: ratio.json() if ratio else None for name, ratio in ratios.items()}
            )
        if rows:
            report.text(common.table([f"{network}: {title}", *PROGRAMS.values(), *ratios], rows))
    rows = []
    for (program, payload), kinds in sorted(wires.items(), key=lambda item: (item[0][1], item[0][0])):
        mean = {kind: sum(samples) / len(samples) for kind, samples in kinds.items()}
        if program in PROGRAMS:
            name = PROGRAMS[program]
            data.append({"quantity": "wire", "payload_bytes": payload, "middleware": name, **mean})
            cells = [common.number(mean.get(kind), 2) for kind in ("packets", "bytes")]
            rows.append([f"{payload} B {name}", *cells])
    if rows:
        head = [f"{network}: sent by the publisher's pod", "packets/sample", "bytes/sample"]
        report.text(common.table(head, rows))
    report.data["networks"][network] = data


if __name__ == "__main__":
    common.main(main)
