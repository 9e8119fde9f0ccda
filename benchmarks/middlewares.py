"""Compare Fast DDS, Cyclone DDS and raw UDP with the same program between two pods of the lab.

Shows the effect of the middleware, and how close each middleware is to the limit of the network. The same
k8sdds-perftest runs all three in the same two pods of one lab network, started by the same supervisor, pinned
to the same cores, in random order within each round. Ratios are between runs of the same round.

  cyclonedds  strict reliability, one sample per message; messages up to 14,720 bytes, fragments of 1,344
  fastdds     the same QoS and the same message length; a fragment fills a message
  raw         plain UDP datagrams of the same length, best effort, at full speed: the limit of the network
  eprosima    with --throughput-test and --latency-test: eProsima's ThroughputTest and LatencyTest, built by you
              from the sources of the installed Fast DDS; reliable, UDP only, synchronous. ThroughputTest keeps all
              samples and makes no pause between its bursts of samples; LatencyTest keeps the last one

The benchmark reports ratios with their intervals and no verdict. It also reports CPU time and bytes on the
wire per sample.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import common
from perftest import Key, measure
from program_results import DEFAULT, WARMUP_S, Run
from programs import EPROSIMA, MAX_DATAGRAM, PAYLOADS, QUANTITIES, Pods

from k8sdds.middleware.k8sdds_perftest import backends
from k8sdds.testbeds.lab.testbed import Lab

PROGRAMS = {"ours": "cyclonedds", "fastdds": "fastdds", "raw": "raw"}
"""Name in the shared code, and name in the output."""

RATIOS = (("fastdds", "ours"), ("ours", "raw"), ("fastdds", "raw"))


def main() -> int:
    """Run all programs on each network."""
    parser = common.parser(__doc__ or "", common.Defaults(6, 2, 3, 2))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [host]")
    parser.add_argument("--payload", action="append", type=int, help="bytes; repeatable [64 to 65536]")
    parser.add_argument("--receive", choices=("listener", "waitset"), default="listener", help="[listener]")
    parser.add_argument("--test", choices=("throughput", "latency"), help="run only this test")
    parser.add_argument("--throughput-test", type=Path, metavar="PROGRAM", help="eProsima's ThroughputTest")
    parser.add_argument("--latency-test", type=Path, metavar="PROGRAM", help="eProsima's LatencyTest")
    options = common.parse(parser)
    report = common.Report("middlewares", options)
    missing = [name for name in PROGRAMS.values() if name not in backends()]
    for name in missing:
        report.skip(f"{name}: this build of k8sdds-perftest does not contain it: make setup")
    programs = [program for program, name in PROGRAMS.items() if name not in missing]
    eprosima = {"throughput": options.throughput_test, "latency": options.latency_test}
    eprosima = {test: program.resolve() for test, program in eprosima.items() if program}
    if eprosima:
        programs.append(EPROSIMA)
    tests = [options.test] if options.test else ["throughput", "latency"]
    runs = [
        [
            Run(program, test, payload)
            for program in programs
            if _fits(program, test, payload) and (program != EPROSIMA or test in eprosima)
        ]
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
            pods.eprosima = eprosima
            values, wires = measure(pods, runs, options, report)
        add_tables(report, network, values, wires)
    report.show()
    return 0


def _fits(program: str, test: str, payload: int) -> bool:
    """Return whether the program has this test for this payload."""
    return program != "raw" or (test == "throughput" and payload <= MAX_DATAGRAM)


def add_tables(
    report: common.Report,
    network: str,
    values: dict[Key, common.Values],
    wires: dict[Key, dict[str, list[float]]],
) -> None:
    """Add the tables and the data of one network to the report."""
    names = PROGRAMS | {EPROSIMA: EPROSIMA}
    present = [program for program in names if any(program in v.by_item for v in values.values())]
    compared = [*RATIOS, ("fastdds", EPROSIMA)] if EPROSIMA in present else list(RATIOS)
    data: list[dict[str, Any]] = []
    for quantity, (title, digits) in QUANTITIES.items():
        rows = []
        for _, _, payload in sorted(key for key in values if key[1] == quantity):
            measured = values[DEFAULT, quantity, payload]
            medians = {names[program]: measured.median(program) for program in present}
            ratios = {
                f"{names[program]}/{names[other]}": measured.ratio(program, other)
                for program, other in compared
            }
            rows.append(
                [f"{payload} B", *(common.number(value, digits) for value in medians.values())]
                + [common.describe(ratio) for ratio in ratios.values()]
            )
            data.append(
                {"quantity": quantity, "payload_bytes": payload, **medians, "values": measured.by_item}
                | {name: common.as_json(ratio) for name, ratio in ratios.items()}
            )
        if rows:
            report.text(common.table([f"{network}: {title}", *medians, *ratios], rows))
    rows = []
    for _, program, payload in sorted(wires, key=lambda key: (key[2], key[1])):
        kinds = wires[DEFAULT, program, payload]
        mean = {kind: sum(samples) / len(samples) for kind, samples in kinds.items()}
        data.append({"quantity": "wire", "payload_bytes": payload, "middleware": names[program], **mean})
        cells = [common.number(mean.get(kind), 2) for kind in ("packets", "bytes")]
        rows.append([f"{payload} B {names[program]}", *cells])
    if rows:
        head = [f"{network}: sent by the publisher's pod", "packets/sample", "bytes/sample"]
        report.text(common.table(head, rows))
    report.data["networks"][network] = data


if __name__ == "__main__":
    common.main(main)
