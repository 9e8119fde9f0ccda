"""Compare k8sdds-perftest with ddsperf between two pods of the lab.

Shows whether k8sdds-perftest is as fast as the tool of the authors of Cyclone DDS. Both programs run in the same
two pods of one lab network, started by the same supervisor, pinned to the same cores, in random order within
each round. Ratios are between runs of the same round; all rounds count.

  ours      k8sdds-perftest with Cyclone DDS, strict reliability
  ours serialized
            with --serialized: the same with samples that were serialized before the test, which ddsperf cannot do;
            only for samples of 4 KiB and more
  ddsperf   Debian's ddsperf with the same shared library, the same configuration (interface, no multicast,
            peers, socket buffers), the same serialized size (its `size` includes all fields of the sample,
            like -dataLen), reliable, keep all, and the same receive mode

Both programs of a pair have the same settings:

  default   one sample per message, and the library's default queue. ddsperf always requests batching; a preloaded
            function ignores this request
  tuned     the same with messages and fragments of 65,500 bytes and a queue of 512 KiB of unacknowledged samples;
            only for samples of 4 KiB and more
  batched   ddsperf as shipped, and k8sdds-perftest with batches that fill a message; only for samples of which two
            fit in a message of 14,720 bytes

The CPU time per sample covers the measured interval in both programs: the preloaded library signals it to the
supervisor as k8sdds-perftest does. It explains differences in rate and is less sensitive to other load.

With --best-effort, rates and CPU times per sample are those of received samples. With --instances, the topic has a key
with so many values in both programs.

Latency is half a round trip in both programs, with both participants on one core. ddsperf reports percentiles
per second (of at most 20,000 round trips), so k8sdds-perftest measures one second too. The pings and pongs of
ddsperf are reliable with keep last 1, like those of k8sdds-perftest.

Requires: cyclonedds-tools (ddsperf), a C compiler. Verdicts use a margin of 3 %.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import common
from program_results import BATCHED, DEFAULT, TUNED, WARMUP_S, Failed, Run
from programs import PAYLOADS, QUANTITIES, SERIALIZED, Pods, preloaded

from k8sdds.testbeds.lab.testbed import Lab

MARGIN = 0.03
TRIES = 3


Key = tuple[str, str, int]
"""Settings, quantity and payload."""

PROGRAMS = ("ours", "ddsperf")
COMPARED = (("ours", "ddsperf"), (SERIALIZED, "ddsperf"), (SERIALIZED, "ours"))
"""The ratios: numerator and denominator."""
BATCHED_MAX, LONG_MIN = 7000, 4096
"""Payloads in bytes. Batching needs several samples in a message; tuning and serialized samples pay for long ones."""


def groups(payloads: list[int], programs: list[str], tests: set[str], settings: set[str]) -> list[list[Run]]:
    """Return the groups of runs to compare."""
    run_groups = []
    for payload in payloads:
        for chosen in sorted(settings):
            fits = {DEFAULT: True, TUNED: payload >= LONG_MIN, BATCHED: payload <= BATCHED_MAX}[chosen]
            for test in ("throughput", "latency"):
                if fits and test in tests and (test, chosen) != ("latency", BATCHED):
                    fitting = [name for name in programs if name != SERIALIZED or payload >= LONG_MIN]
                    run_groups.append([Run(program, test, payload, chosen) for program in fitting])
    return run_groups


def measure(
    pods: Pods, runs: list[list[Run]], options: Any, report: common.Report
) -> tuple[dict[Key, common.Values], dict[Key, dict[str, list[float]]]]:
    """Run all rounds; return values by (settings, quantity, payload), wire counters by (settings, program, payload)."""
    values: dict[Key, common.Values] = {}
    wires: dict[Key, dict[str, list[float]]] = {}
    schedule = common.interleave(options.pairs, runs, options.seed)
    for done, (number, run) in enumerate(schedule):
        for tried in range(TRIES):
            try:
                result = pods.measure(run)
                break
            except (Failed, ValueError, KeyError) as error:
                why = (
                    f"{run.program}, {run.settings}, {run.test}, {run.payload} B, round {number + 1}: {error}"
                )
                common.progress(f"  retry: {why}" if tried + 1 < TRIES else f"  failed: {why}")
        else:
            report.skip(why)
            continue
        numbers = ", ".join(f"{key} {value:,.1f}" for key, value in result.values.items())
        label = f"{run.program} {run.settings} {run.test} {run.payload} B"
        common.progress(f"[{done + 1}/{len(schedule)}] {label}: {numbers}")
        for quantity, value in result.values.items():
            key = (run.settings, quantity, run.payload)
            values.setdefault(key, common.Values()).add(run.item, number, value)
        for kind, value in result.wire.items():
            wires.setdefault((run.settings, run.program, run.payload), {}).setdefault(kind, []).append(value)
    return values, wires


def main() -> int:
    """Run all programs on each network."""
    parser = common.parser(__doc__ or "", common.Defaults(12, 2, 1, 1))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [host]")
    parser.add_argument("--payload", action="append", type=int, help="bytes; repeatable [64 to 65536]")
    parser.add_argument("--receive", choices=("listener", "waitset"), default="listener", help="[listener]")
    parser.add_argument(
        "--settings", action="append", choices=(DEFAULT, TUNED, BATCHED), help="repeatable [all]"
    )
    parser.add_argument("--serialized", action="store_true", help="also run k8sdds-perftest -serialized")
    parser.add_argument("--best-effort", action="store_true", help="best-effort instead of reliable samples")
    parser.add_argument(
        "--instances",
        type=int,
        default=0,
        help="write N instances of a topic with a key [a topic without key]",
    )
    parser.add_argument("--test", choices=("throughput", "latency"), help="run only this test")
    options = common.parse(parser)
    if options.serialized and options.instances:
        parser.error(
            "--serialized replaces the head of a sample, which contains the key: leave out --instances"
        )
    report = common.Report("perftest", options)
    missing_tools = common.missing({"ddsperf": "cyclonedds-tools", "cc": "gcc"})
    for message in missing_tools:
        report.skip(f"ddsperf: {message}")
    if missing_tools:
        report.show()
        return 1
    tests = {options.test} if options.test else {"throughput", "latency"}
    payloads = options.payload or list(PAYLOADS)
    settings = set(options.settings or (DEFAULT, TUNED, BATCHED))
    programs = [*PROGRAMS, SERIALIZED] if options.serialized else list(PROGRAMS)
    runs = groups(payloads, programs, tests, settings)
    report.data |= {"margin": MARGIN, "receive": options.receive, "warmup_s": WARMUP_S, "networks": {}}
    report.data |= {"best_effort": options.best_effort, "instances": options.instances}
    for network in options.network or ["host"]:
        common.progress(f"network {network}")
        with (
            tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as folder,
            preloaded() as libraries,
            Lab(f"benchmark-perftest-{network}") as lab,
        ):
            pods = Pods(
                lab,
                network,
                options.receive,
                options.seconds,
                Path(folder),
                options.best_effort,
                options.instances,
            )
            pods.preload(libraries)
            values, wires = measure(pods, runs, options, report)
        add_tables(report, network, values, wires, COMPARED)
    report.show()
    return 0


def add_tables(
    report: common.Report,
    network: str,
    values: dict[Key, common.Values],
    wires: dict[Key, dict[str, list[float]]],
    compared: Iterable[tuple[str, str]],
) -> None:
    """Add the tables and the data of one network to the report: ratios of the compared programs, and their packets."""
    data: dict[str, Any] = {"ratios": [], "wire": []}
    for program, other in compared:
        _add_ratios(report, network, values, program, other, data)
    _add_wire(report, network, wires, data)
    report.data["networks"][network] = data


def _add_ratios(
    report: common.Report,
    network: str,
    values: dict[Key, common.Values],
    program: str,
    other: str,
    data: dict[str, Any],
) -> None:
    rows = []
    for quantity, (title, digits) in QUANTITIES.items():
        for settings, _, payload in sorted(key for key in values if key[1] == quantity):
            measured = values[settings, quantity, payload]
            ratio = measured.ratio(program, other)
            if ratio is None:
                continue
            verdict = common.verdict(ratio, quantity == "rate", MARGIN)
            medians = {name: measured.median(name) for name in (program, other)}
            numbers = [common.number(value, digits) for value in medians.values()]
            rows.append([f"{title}, {settings}, {payload} B", *numbers, common.describe(ratio), verdict])
            data["ratios"].append(
                {
                    "quantity": quantity, "settings": settings, "payload_bytes": payload, "medians": medians,
                    "ratio": common.as_json(ratio), "verdict": verdict, "values": measured.by_item,
                }
            )  # fmt: skip
    if rows:
        report.text(common.table([network, program, other, "ratio (95 %)", "margin 3 %"], rows))


def _add_wire(
    report: common.Report, network: str, wires: dict[Key, dict[str, list[float]]], data: dict[str, Any]
) -> None:
    rows = []
    for settings, name, payload in sorted(wires, key=lambda key: (key[0], key[2], key[1])):
        kinds = wires[settings, name, payload]
        mean = {kind: sum(samples) / len(samples) for kind, samples in kinds.items()}
        data["wire"].append({"program": name, "settings": settings, "payload_bytes": payload, **mean})
        rows.append(
            [
                f"{settings}, {payload} B, {name}",
                common.number(mean.get("packets"), 3),
                common.number(mean.get("bytes"), 1),
                common.number(mean.get("bytes_per_packet"), 1),
                common.number(mean.get("lost_percent"), 2),
            ]
        )
    if rows:
        head = [
            f"{network}: sent by the publisher's pod",
            "packets/sample",
            "bytes/sample",
            "bytes/packet",
            "lost %",
        ]
        report.text(common.table(head, rows))


if __name__ == "__main__":
    common.main(main)
