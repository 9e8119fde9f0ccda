"""Compare k8sdds-perftest with ddsperf, raw UDP and iperf3 between two pods of the lab.

Shows whether k8sdds-perftest is as fast as the tool of the authors of Cyclone DDS, and how close DDS is to
the limit of the network. All programs run in the same two pods of one lab network, started by the same
supervisor, pinned to the same cores, in random order within each round. Ratios are between runs of the same
round.

  ours      k8sdds-perftest with Cyclone DDS, strict reliability, one sample per message
  ddsperf   Debian's ddsperf with the same shared library, the same configuration (interface, no multicast,
            peers, socket buffers), the same serialized size (its `size` includes all fields of the sample,
            like -dataLen), reliable, keep all, and the same receive mode. ddsperf always requests batching; a
            preloaded function ignores this request and changes nothing else. The packets per sample on the
            interface show that neither program batches.
  raw       k8sdds-perftest with plain UDP datagrams of the same length, best effort, at full speed
  iperf3    UDP, -b 0, datagrams of the same length; the rate that the server received

The CPU time per sample explains differences in rate and is less sensitive to other load.

Latency is half a round trip in both programs, with both participants on one core. ddsperf reports percentiles
per second (of at most 20,000 round trips), so k8sdds-perftest measures one second too. The pings and pongs of
ddsperf are reliable with keep last 1, like those of k8sdds-perftest. ddsperf flushes its pings at once, so it
needs no change there.

Requires: cyclonedds-tools (ddsperf), iperf3, a C compiler. Verdicts use a margin of 3 %.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import common
from programs import PAYLOADS, QUANTITIES, WARMUP_S, Failed, Pods, Run, shim

from k8sdds.middleware.k8sdds_perftest import backends
from k8sdds.testbeds.lab.testbed import Lab

MARGIN = 0.03
TRIES = 3


def groups(payloads: list[int], programs: list[str], tests: set[str], batched: bool) -> list[list[Run]]:
    """Return the groups of runs to compare: all programs of one test and payload."""
    run_groups = []
    for payload in payloads:
        if "throughput" in tests:
            run_groups.append([Run(program, "throughput", payload) for program in programs])
        two = [program for program in programs if program in ("ours", "ddsperf")]
        if "latency" in tests:
            run_groups.append([Run(program, "latency", payload) for program in two])
        # Batching requires that two samples fit into a message.
        if batched and payload <= 4096:
            run_groups.append([Run(program, "throughput", payload, batched=True) for program in two])
    return run_groups


def measure(
    pods: Pods, runs: list[list[Run]], options: Any, report: common.Report
) -> tuple[dict[tuple[str, int], common.Values], dict[tuple[str, int], dict[str, list[float]]]]:
    """Run all rounds; return values by (quantity, payload), and wire counters by (program, payload)."""
    values: dict[tuple[str, int], common.Values] = {}
    wires: dict[tuple[str, int], dict[str, list[float]]] = {}
    schedule = common.interleave(options.pairs, runs, options.seed)
    for done, (number, run) in enumerate(schedule):
        for tried in range(TRIES):
            try:
                result = pods.measure(run)
                break
            except (Failed, ValueError, KeyError) as error:
                why = f"{run.name}, {run.test}, {run.payload} B, round {number + 1}: {error}"
                common.progress(f"  retry: {why}" if tried + 1 < TRIES else f"  failed: {why}")
        else:
            report.skip(why)
            continue
        numbers = ", ".join(f"{key} {value:,.1f}" for key, value in result.values.items())
        common.progress(f"[{done + 1}/{len(schedule)}] {run.name} {run.test} {run.payload} B: {numbers}")
        for quantity, value in result.values.items():
            key = (f"batched {quantity}" if run.batched else quantity, run.payload)
            values.setdefault(key, common.Values()).add(run.item, number, value)
        for kind, value in result.wire.items():
            name = run.name if run.test == "throughput" else f"{run.name} {run.test}"
            wires.setdefault((name, run.payload), {}).setdefault(kind, []).append(value)
    return values, wires


def main() -> int:
    """Run all programs on each network."""
    parser = common.parser(__doc__ or "", common.Defaults(10, 2, 3, 2))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [host]")
    parser.add_argument("--payload", action="append", type=int, help="bytes; repeatable [64 to 16384]")
    parser.add_argument("--receive", choices=("listener", "waitset"), default="listener", help="[listener]")
    parser.add_argument("--batched", action="store_true", help="also compare both with batching")
    parser.add_argument("--test", choices=("throughput", "latency"), help="run only this test")
    parser.add_argument("--no-limit", action="store_true", help="leave out raw and iperf3")
    options = common.parse(parser)
    report = common.Report("perftest", options)
    programs = ["ours"]
    missing_tools = common.missing({"ddsperf": "cyclonedds-tools", "cc": "gcc"})
    for message in missing_tools:
        report.skip(f"ddsperf: {message}")
    if not missing_tools:
        programs.append("ddsperf")
    if not options.no_limit:
        if "raw" in backends():
            programs.append("raw")
        else:
            report.skip("raw: this build of k8sdds-perftest does not contain it: make setup")
        missing_tools = common.missing({"iperf3": "iperf3"})
        for message in missing_tools:
            report.skip(f"iperf3: {message}")
        if not missing_tools:
            programs.append("iperf3")
    tests = {options.test} if options.test else {"throughput", "latency"}
    payloads = options.payload or list(PAYLOADS)
    runs = groups(payloads, programs, tests, options.batched)
    report.data |= {"margin": MARGIN, "receive": options.receive, "warmup_s": WARMUP_S, "networks": {}}
    for network in options.network or ["host"]:
        common.progress(f"network {network}")
        with (
            tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as folder,
            shim() if "ddsperf" in programs else nullcontext() as library,
            Lab(f"benchmark-perftest-{network}") as lab,
        ):
            pods = Pods(lab, network, options.receive, options.seconds, Path(folder))
            if library:
                pods.use_shim(library)
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
    data: dict[str, Any] = {"against_ddsperf": [], "against_limit": [], "wire": []}
    for quantity, (title, digits) in QUANTITIES.items():
        rows = []
        for payload in sorted(size for kind, size in values if kind == quantity):
            measured = values[quantity, payload]
            ratio = measured.ratio("ours", "ddsperf")
            verdict = common.verdict(ratio, quantity.endswith("rate"), MARGIN)
            ours, other = measured.median("ours"), measured.median("ddsperf")
            rows.append(
                [
                    f"{payload} B",
                    common.number(ours, digits),
                    common.number(other, digits),
                    ratio.describe() if ratio else "–",
                    verdict,
                ]
            )
            data["against_ddsperf"].append(
                {
                    "quantity": quantity, "payload_bytes": payload, "ours": ours, "ddsperf": other,
                    "ratio": ratio.json() if ratio else None, "verdict": verdict, "values": measured.by_item,
                }
            )  # fmt: skip
        if rows:
            head = [f"{network}: {title}", "ours", "ddsperf", "ours/ddsperf (95 %)", "margin 3 %"]
            report.text(common.table(head, rows))
    _add_limit(report, network, values, data)
    _add_wire(report, network, wires, data)
    report.data["networks"][network] = data


def _add_limit(
    report: common.Report, network: str, values: dict[tuple[str, int], common.Values], data: dict[str, Any]
) -> None:
    rows = []
    for payload in sorted(size for kind, size in values if kind == "rate"):
        measured = values["rate", payload]
        ratios = {name: measured.ratio("ours", name) for name in ("raw", "iperf3")}
        if not any(ratios.values()):
            continue
        rows.append(
            [
                f"{payload} B",
                *(common.number(measured.median(name)) for name in ("ours", "raw", "iperf3")),
                *(ratio.describe() if ratio else "–" for ratio in ratios.values()),
            ]
        )
        data["against_limit"].append(
            {
                "payload_bytes": payload,
                **{name: measured.median(name) for name in ("ours", "raw", "iperf3")},
                **{f"ours/{name}": ratio.json() if ratio else None for name, ratio in ratios.items()},
            }
        )
    if rows:
        head = [f"{network}: received samples/s", "ours", "raw", "iperf3", "ours/raw", "ours/iperf3"]
        report.text(common.table(head, rows))


def _add_wire(
    report: common.Report,
    network: str,
    wires: dict[tuple[str, int], dict[str, list[float]]],
    data: dict[str, Any],
) -> None:
    rows = []
    for (name, payload), kinds in sorted(wires.items(), key=lambda item: (item[0][1], item[0][0])):
        mean = {kind: sum(samples) / len(samples) for kind, samples in kinds.items()}
        data["wire"].append({"program": name, "payload_bytes": payload, **mean})
        rows.append(
            [
                f"{payload} B {name}",
                common.number(mean.get("packets"), 3),
                common.number(mean.get("bytes"), 1),
                common.number(mean.get("bytes_per_packet"), 1),
                common.number(mean.get("lost_percent"), 1),
            ]
        )
    if rows:
        head = [f"{network}: sent by the publisher's pod"]
        head += ["packets/sample", "bytes/sample", "bytes/packet", "lost %"]
        report.text(common.table(head, rows))


if __name__ == "__main__":
    common.main(main)
