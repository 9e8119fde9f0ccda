"""Compare k8sdds-perftest with a program of a few lines that uses Zenoh itself, between two pods of the lab.

Shows what k8sdds-perftest adds to the library that it measures. Both programs run in the same two pods of one lab
network, started by the same supervisor, pinned to the same cores, in random order within each round. Ratios are
between runs of the same round.

  zenoh             k8sdds-perftest with Zenoh over TCP, reliable
  zenoh serialized  the same with -serialized: all samples share one buffer
  direct            the program in benchmarks/zenoh: Rust, the same version and features of the library, peers over
                    TCP, reliable with congestion control `block`, received by a callback. Its samples are as long,
                    and each is copied into a new buffer, as by k8sdds-perftest
  direct shared     the same, but all samples share one buffer

Latency is half a round trip, with both participants on one core. Both programs read a sample in one piece, answer with
a copy, and leave the library's settings as they are: it collects samples into batches while they wait for the socket.

Requires: cargo, which builds the program and the library (minutes), or --program. Verdicts use a margin of 3 %.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import common
from perftest import MARGIN, add_tables, measure
from program_results import WARMUP_S, Run
from programs import PAYLOADS, ZENOH, Pods

from k8sdds.middleware.k8sdds_perftest import backends
from k8sdds.testbeds.lab.testbed import Lab

SOURCE = Path(__file__).resolve().with_name("zenoh")
TARGET = SOURCE.parents[1] / "build" / "benchmarks" / "zenoh"


def build(target: Path) -> Path:
    """Build the program with the pinned versions of all libraries, and return it."""
    common.progress(f"building {SOURCE} in {target}")
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", str(target)]
    subprocess.run([*command, "--manifest-path", str(SOURCE / "Cargo.toml")], check=True)
    return target / "release" / "zenoh-direct"


def groups(payloads: list[int], tests: list[str]) -> list[list[Run]]:
    """Return the groups of runs to compare: all programs of one test and payload."""
    every = [*ZENOH, *ZENOH.values()]
    programs = {"throughput": every, "latency": ["zenoh", ZENOH["zenoh"]]}
    return [
        [Run(program, test, payload) for program in programs[test]] for payload in payloads for test in tests
    ]


def main() -> int:
    """Run all programs on each network."""
    parser = common.parser(__doc__ or "", common.Defaults(12, 2, 2, 1))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [host]")
    parser.add_argument("--payload", action="append", type=int, help="bytes; repeatable [64 to 65536]")
    parser.add_argument("--test", choices=("throughput", "latency"), help="run only this test")
    parser.add_argument("--program", type=Path, help="the built zenoh-direct [built by cargo]")
    parser.add_argument("--target-dir", type=Path, default=TARGET, help=f"where cargo builds it [{TARGET}]")
    options = common.parse(parser)
    report = common.Report("zenoh", options)
    missing = common.missing({} if options.program else {"cargo": "cargo"})
    missing += (
        []
        if "zenoh" in backends()
        else ["k8sdds-perftest was built without Zenoh: k8sdds setup --for lab-zenoh"]
    )
    for message in missing:
        report.skip(message)
    if missing:
        report.show()
        return 1
    program = options.program.resolve() if options.program else build(options.target_dir)
    runs = groups(
        options.payload or list(PAYLOADS), [options.test] if options.test else ["throughput", "latency"]
    )
    report.data |= {"margin": MARGIN, "warmup_s": WARMUP_S, "networks": {}}
    for network in options.network or ["host"]:
        common.progress(f"network {network}")
        with (
            tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as folder,
            Lab(f"benchmark-zenoh-{network}") as lab,
        ):
            pods = Pods(lab, network, "listener", options.seconds, Path(folder))
            pods.direct = program
            values, wires = measure(pods, runs, options, report)
        add_tables(report, network, values, wires, ZENOH.items())
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
