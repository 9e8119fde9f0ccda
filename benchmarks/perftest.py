"""k8sdds-perftest beside ddsperf, raw UDP and iperf3, between two pods of the lab.

Is our program as fast as the tool of the library's own authors, and how near is DDS to what the
network carries? All run in the same two pods of one bench, started by the same supervisor, pinned to
the same cores, in a random order within each round; ratios are of runs of the same round.

  ours      k8sdds-perftest with Cyclone DDS, strict reliability, one sample per message
  ddsperf   Debian's ddsperf on the very same shared library, with the same configuration (interface,
            no multicast, peers, socket buffers), the same serialized size (its `size` is all of the
            sample's fields, as our -dataLen is), reliable, keep all, the same receive mode. ddsperf
            always asks the library to batch; here a preloaded function makes that request void, which
            leaves all else as it is. Packets per sample on the interface prove that neither batches.
  raw       k8sdds-perftest with plain UDP datagrams of the same length, best effort, as fast as it goes
  iperf3    UDP, -b 0, datagrams of the same length; what the server received

CPU time for each sample stands beside: it says why a rate differs, and other work disturbs it less.

Latency is half a round trip in both programs, both participants on one core. ddsperf gives percentiles
per second (of at most 20,000 round trips), so ours measures one second too. Its pings and pongs are
reliable and keep the last sample alone, as ours do. Its ping is flushed at once and needs no change.

Needs: cyclonedds-tools (ddsperf), iperf3, a C compiler. Verdicts: against a margin of 3 %.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common

from k8sdds import attempt
from k8sdds.folders import native_program
from k8sdds.model.trial import Cell, Place, Trial
from k8sdds.perftest import command
from k8sdds.testbeds import Launch, Measurement
from k8sdds.testbeds.lab.testbed import Lab

MARGIN = 0.03
PAYLOADS = (64, 256, 1024, 4096, 16384)
WARMUP_S = 1.0
LATENCY_S = 1.0
"""ddsperf's percentiles are of one second."""
TRIES = 3
IPERF3_PATIENCE_S = 10
BATCH_BYTES = 1_000_000
"""Far more than a message: as with ddsperf, a message leaves when it is full."""

UNBATCHED = "#include <stdbool.h>\nvoid dds_write_set_batch(bool on) { (void) on; }\n"

THROUGHPUT_LINE = re.compile(r"^\[\d+\] (?P<t>[\d.]+)\s+size \d+ total (?P<total>\d+) lost (?P<lost>\d+) ")
LATENCY_LINE = re.compile(
    r"^\[\d+\] (?P<t>[\d.]+)\s+\S+ size \d+ mean .* 50% (?P<p50>[\d.]+)us 90% (?P<p90>[\d.]+)us"
)


class Failed(Exception):
    """A run that gave no number, with the reason."""


@dataclass(frozen=True)
class Run:
    """One thing to run: which program, which test, which payload."""

    program: str
    test: str
    payload: int
    batched: bool = False

    @property
    def name(self) -> str:
        """How tables and data call the program."""
        return f"{self.program} batched" if self.batched else self.program


@dataclass
class Result:
    """Numbers of one run: samples per second or µs, and what the interface carried for each sample."""

    values: dict[str, float]
    wire: dict[str, float] = field(default_factory=dict)


class Pods:
    """A bench of two nodes with a publisher's and a subscriber's pod, and the programs run in them."""

    def __init__(self, lab: Lab, network: str, receive: str, seconds: float, folder: Path) -> None:
        self._lab = lab
        self._network = network
        self._receive = receive
        self._seconds = seconds
        self._folder = folder
        self._count = 0
        self._shim: Path | None = None
        lab.up([self._cell(Run("ours", "throughput", PAYLOADS[0]))])

    def use_shim(self, path: Path) -> None:
        """The library that voids ddsperf's request to batch."""
        self._shim = path

    def _cell(self, run: Run) -> Cell:
        raw = run.program in ("raw", "iperf3")
        return Cell(
            network=self._network,
            test=run.test,
            payload_bytes=run.payload,
            reliability="best-effort" if raw else "reliable",
            middleware="raw" if raw else "cyclonedds",
            batch_bytes=BATCH_BYTES if run.batched else 0,
            receive_mode=self._receive,
            layout="same" if run.test == "latency" else "split",
        )

    def measure(self, run: Run) -> Result:
        """Run it once. Raises Failed."""
        seconds = LATENCY_S if run.test == "latency" else self._seconds
        trial = Trial(
            cell=self._cell(run), testbed="lab", repetition=0, duration_s=seconds, warmup_s=WARMUP_S
        )
        self._count += 1
        folder = self._folder / f"{self._count}-{run.program}-{run.test}-{run.payload}"
        places = self._lab.places(trial)
        launches = {"ours": self._ours, "raw": self._ours, "ddsperf": self._ddsperf, "iperf3": self._iperf3}
        started = [
            Launch(name, tuple(argv), folder / name, env)
            for name, (argv, env) in launches[run.program](run, trial, places, folder).items()
        ]
        for launch in started:
            launch.directory.mkdir(parents=True)
        deadline = command.deadline_s(trial)
        if run.program == "iperf3":
            # Its server waits for ever where its client could not start.
            deadline = WARMUP_S + trial.duration_s + IPERF3_PATIENCE_S
        measurement = self._lab.run(trial, started, deadline)
        if run.program in ("ours", "raw"):
            return _ours_result(run, trial, measurement, folder)
        failed = [
            f"{name} ended with {outcome.exit_code}: {_said(folder / name)}"
            for name, outcome in measurement.outcomes.items()
            if outcome.exit_code
        ]
        if failed:
            raise Failed("; ".join(failed))
        if run.program == "iperf3":
            return _iperf3_result(folder, run)
        return _ddsperf_result(run, trial, measurement, folder)

    # -- command lines --------------------------------------------------------------------------------

    def _ours(
        self, run: Run, trial: Trial, places: dict[str, Place], folder: Path
    ) -> dict[str, tuple[list[str], dict[str, str]]]:
        program, domain = native_program("k8sdds-perftest"), self._domain()
        return {
            name: (command.command_line(trial, name, places, domain, program, folder / name), {})
            for name in ("sub0", "pub0")
        }

    def _domain(self) -> int:
        return command.DOMAINS[self._count % len(command.DOMAINS)]

    def _ddsperf(
        self, run: Run, trial: Trial, places: dict[str, Place], folder: Path
    ) -> dict[str, tuple[list[str], dict[str, str]]]:
        # Whole seconds, since ddsperf reports each: one more than is used for the end of the last.
        length = math.ceil(WARMUP_S + trial.duration_s) + 1 + (run.test == "latency")
        start = [shutil.which("ddsperf") or "ddsperf", "-i", str(self._domain()), "-X"]
        here = self._receive
        if run.test == "latency":
            modes = {"pub0": ["ping", "size", str(run.payload), here], "sub0": ["pong", here]}
        else:
            modes = {"pub0": ["pub", "size", str(run.payload)], "sub0": ["sub", here]}
        found: dict[str, tuple[list[str], dict[str, str]]] = {}
        for name, other in (("sub0", "pub0"), ("pub0", "sub0")):
            argv = [*start, "-D", str(length + (name == "sub0")), "-k", "all"]
            if name == "pub0":
                argv += ["-Q", "minmatch:1", "-Q", "initwait:20"]
            env = {"CYCLONEDDS_URI": cyclone_config(places[name], places[other], name, run.test)}
            if run.test == "throughput" and not run.batched:
                env["LD_PRELOAD"] = str(self._shim)
            found[name] = ([*argv, *modes[name]], env)
        return found

    def _iperf3(
        self, run: Run, trial: Trial, places: dict[str, Place], folder: Path
    ) -> dict[str, tuple[list[str], dict[str, str]]]:
        program = shutil.which("iperf3") or "iperf3"
        address = places["sub0"].address
        length = f"{WARMUP_S + trial.duration_s:g}"
        # Both start together; the client asks again until the server is there.
        once = f"{program} -c {address} -u -b 0 -l {run.payload} -t {length} -J"
        client = f"for try in $(seq 50); do {once} && exit 0; sleep 0.1; done; exit 1"
        return {
            "sub0": ([program, "-s", "-1", "-J"], {}),
            "pub0": (["/bin/sh", "-c", client], {}),
        }


def cyclone_config(own: Place, other: Place, participant: str, test: str) -> str:
    """What k8sdds-perftest configures of Cyclone DDS, as CYCLONEDDS_URI."""
    watermarks = ""
    if test == "latency" or participant == "sub0":
        watermarks = (
            "<Watermarks><WhcLow>1000 B</WhcLow><WhcHigh>16777216 B</WhcHigh>"
            "<WhcHighInit>16777216 B</WhcHighInit><WhcAdaptive>false</WhcAdaptive></Watermarks>"
        )
    return (
        '<Domain id="any"><General>'
        f'<Interfaces><NetworkInterface name="{own.interface}"/></Interfaces>'
        "<AllowMulticast>false</AllowMulticast></General>"
        "<Discovery><ParticipantIndex>auto</ParticipantIndex>"
        "<MaxAutoParticipantIndex>11</MaxAutoParticipantIndex>"
        f'<Peers><Peer Address="{other.address}"/></Peers></Discovery>'
        '<Internal><SocketReceiveBufferSize min="default" max="8 MiB"/>'
        f"<WriterLingerDuration>0 s</WriterLingerDuration>{watermarks}</Internal></Domain>"
    )


# -- results ------------------------------------------------------------------------------------------------


def _ours_result(run: Run, trial: Trial, measurement: Measurement, folder: Path) -> Result:
    record = attempt.record(trial, 1, measurement, folder, {})
    if not record["valid"]:
        raise Failed(str(record["reason"]))
    if run.test == "latency":
        found = {"p50": record["latency_p50_us"], "p90": record["latency_p90_us"]}
        return Result(found, _wire(measurement, None))
    sent = record["sent"]
    values = {"rate": record["samples_per_s"], **_cpu(measurement, sent)}
    lost = {"lost_percent": record["lost_percent"]} if run.program == "raw" else {}
    return Result(values, _wire(measurement, sent) | lost)


def _ddsperf_result(run: Run, trial: Trial, measurement: Measurement, folder: Path) -> Result:
    if run.test == "latency":
        lines = _lines(folder / "pub0" / "stdout", LATENCY_LINE)
        if len(lines) < 2:
            raise Failed("ddsperf reported less than two seconds of round trips")
        # The first second holds the start; the last may be cut short.
        found = {"p50": float(lines[1]["p50"]), "p90": float(lines[1]["p90"])}
        return Result(found, _wire(measurement, None))
    lines = _lines(folder / "sub0" / "stdout", THROUGHPUT_LINE)
    if not lines or int(lines[-1]["lost"]):
        raise Failed("ddsperf lost samples" if lines else "ddsperf reported no samples")
    first = next((line for line in lines if float(line["t"]) >= WARMUP_S - 0.05), None)
    until = WARMUP_S + trial.duration_s - 0.05
    last = next((line for line in lines if float(line["t"]) >= until), None)
    if first is None or last is None or last is first:
        raise Failed("ddsperf reported too few seconds")
    seconds = float(last["t"]) - float(first["t"])
    # ddsperf marks no interval, so its meters are of the whole run, as is the total.
    total = int(lines[-1]["total"])
    rate = (int(last["total"]) - int(first["total"])) / seconds
    return Result({"rate": rate, **_cpu(measurement, total)}, _wire(measurement, total))


def _said(folder: Path) -> str:
    text = (folder / "stderr").read_text(errors="replace") + (folder / "stdout").read_text(errors="replace")
    return " ".join(text.split())[-200:]


def _lines(path: Path, pattern: re.Pattern[str]) -> list[dict[str, str]]:
    found = (pattern.match(line) for line in path.read_text(errors="replace").splitlines())
    return [match.groupdict() for match in found if match]


def _iperf3_result(folder: Path, run: Run) -> Result:
    data: dict[str, Any] = json.loads((folder / "sub0" / "stdout").read_text())
    if "error" in data:
        raise Failed(f"iperf3: {data['error']}")
    # The first second is the warm-up; the last interval is what was left over.
    sums = [interval["sum"] for interval in data["intervals"]]
    whole = [one for one in sums if one["seconds"] > 0.5][1:]
    seconds = sum(one["seconds"] for one in whole)
    if not seconds:
        raise Failed("iperf3 reported too few seconds")
    received = sum(one["bytes"] for one in whole) / run.payload
    packets = sum(one["packets"] for one in whole)
    lost = sum(one["lost_packets"] for one in whole)
    return Result({"rate": received / seconds}, {"lost_percent": 100 * lost / packets if packets else 0.0})


def _cpu(measurement: Measurement, samples: int) -> dict[str, float]:
    """CPU time in µs for each sample of both participants; of the kernel's softirqs not all is in it."""
    found = {}
    for name, key in (("pub0", "publisher cpu"), ("sub0", "subscriber cpu")):
        spent = (measurement.outcomes[name].meters or {}).get("cpu_s")
        if spent:
            found[key] = 1e6 * spent / samples
    return found


def _wire(measurement: Measurement, samples: int | None) -> dict[str, float]:
    """Packets and bytes that the publisher's pod sent for each sample, and bytes in a packet."""
    meters = measurement.outcomes["pub0"].meters or {}
    counters = (meters.get("interfaces") or {}).get("eth0")
    if not counters or not counters["tx_packets"]:
        return {}
    found = {"bytes_per_packet": counters["tx_bytes"] / counters["tx_packets"]}
    if samples:
        found |= {"packets": counters["tx_packets"] / samples, "bytes": counters["tx_bytes"] / samples}
    return found


# -- the benchmark ------------------------------------------------------------------------------------------


@contextmanager
def shim() -> Iterator[Path]:
    """The library that voids a request to batch, compiled for the time of the run."""
    with tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as folder:
        source = Path(folder) / "unbatched.c"
        source.write_text(UNBATCHED)
        built = Path(folder) / "unbatched.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(built), str(source)], check=True)
        yield built


def groups(payloads: list[int], programs: list[str], tests: set[str], batched: bool) -> list[list[Run]]:
    """What is measured side by side: all programs of one test and payload."""
    found = []
    for payload in payloads:
        if "throughput" in tests:
            found.append([Run(program, "throughput", payload) for program in programs])
        two = [program for program in programs if program in ("ours", "ddsperf")]
        if "latency" in tests:
            found.append([Run(program, "latency", payload) for program in two])
        # Two samples must fit a message, else there is nothing to batch.
        if batched and payload <= 4096:
            found.append([Run(program, "throughput", payload, batched=True) for program in two])
    return found


def measure(
    pods: Pods, runs: list[list[Run]], options: Any, report: common.Report
) -> tuple[dict[tuple[str, int], common.Values], dict[tuple[str, int], dict[str, list[float]]]]:
    """All rounds: (quantity, payload) to values, and (program, payload) to what the wire carried."""
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
                common.say(f"  again: {why}" if tried + 1 < TRIES else f"  given up: {why}")
        else:
            report.lack(why)
            continue
        shown = ", ".join(f"{key} {value:,.1f}" for key, value in result.values.items())
        common.say(f"[{done + 1}/{len(schedule)}] {run.name} {run.test} {run.payload} B: {shown}")
        for quantity, value in result.values.items():
            key = (f"batched {quantity}" if run.batched else quantity, run.payload)
            values.setdefault(key, common.Values()).add(run.program, number, value)
        for kind, value in result.wire.items():
            name = run.name if run.test == "throughput" else f"{run.name} {run.test}"
            wires.setdefault((name, run.payload), {}).setdefault(kind, []).append(value)
    return values, wires


def main() -> int:
    """Run it all on each network."""
    parser = common.parser(__doc__ or "", common.Defaults(10, 2, 3, 2))
    parser.add_argument("--network", action="append", help="network of the lab; repeatable [host]")
    parser.add_argument("--payload", action="append", type=int, help="bytes; repeatable [64 to 16384]")
    parser.add_argument("--receive", choices=("listener", "waitset"), default="listener", help="[listener]")
    parser.add_argument("--batched", action="store_true", help="compare also with batching in both")
    parser.add_argument("--test", choices=("throughput", "latency"), help="only this one")
    parser.add_argument("--no-limit", action="store_true", help="leave out raw and iperf3")
    options = common.parse(parser)
    report = common.Report("perftest", options)
    programs = ["ours"]
    lacks = common.lacking({"ddsperf": "cyclonedds-tools", "cc": "gcc"})
    for lack in lacks:
        report.lack(f"ddsperf: {lack}")
    if not lacks:
        programs.append("ddsperf")
    if not options.no_limit:
        if "raw" in command.backends():
            programs.append("raw")
        else:
            report.lack("raw: its backend is not built here: make setup")
        lacks = common.lacking({"iperf3": "iperf3"})
        for lack in lacks:
            report.lack(f"iperf3: {lack}")
        if not lacks:
            programs.append("iperf3")
    tests = {options.test} if options.test else {"throughput", "latency"}
    payloads = options.payload or list(PAYLOADS)
    runs = groups(payloads, programs, tests, options.batched)
    report.data |= {"margin": MARGIN, "receive": options.receive, "warmup_s": WARMUP_S, "networks": {}}
    for network in options.network or ["host"]:
        common.say(f"network {network}")
        with (
            tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as folder,
            shim() if "ddsperf" in programs else nothing() as library,
            Lab(f"benchmark-perftest-{network}") as lab,
        ):
            pods = Pods(lab, network, options.receive, options.seconds, Path(folder))
            if library:
                pods.use_shim(library)
            values, wires = measure(pods, runs, options, report)
        tell(report, network, values, wires)
    report.show()
    return 0


@contextmanager
def nothing() -> Iterator[None]:
    """In place of the library where there is no ddsperf."""
    yield None


QUANTITIES = {
    "rate": ("samples/s, one sample per message", 0),
    "publisher cpu": ("publisher's CPU µs/sample", 3),
    "subscriber cpu": ("subscriber's CPU µs/sample", 3),
    "batched rate": ("samples/s, batched", 0),
    "p50": ("p50 latency, µs", 2),
    "p90": ("p90 latency, µs", 2),
}


def tell(
    report: common.Report,
    network: str,
    values: dict[tuple[str, int], common.Values],
    wires: dict[tuple[str, int], dict[str, list[float]]],
) -> None:
    """Tables and data of one network."""
    data: dict[str, Any] = {"against_ddsperf": [], "against_limit": [], "wire": []}
    for quantity, (title, digits) in QUANTITIES.items():
        rows = []
        for payload in sorted(size for kind, size in values if kind == quantity):
            found = values[quantity, payload]
            ratio = found.ratio("ours", "ddsperf")
            judged = common.verdict(ratio, quantity.endswith("rate"), MARGIN)
            ours, other = found.median("ours"), found.median("ddsperf")
            rows.append(
                [
                    f"{payload} B",
                    common.number(ours, digits),
                    common.number(other, digits),
                    ratio.words() if ratio else "–",
                    judged,
                ]
            )
            data["against_ddsperf"].append(
                {
                    "quantity": quantity, "payload_bytes": payload, "ours": ours, "ddsperf": other,
                    "ratio": ratio.json() if ratio else None, "verdict": judged, "values": found.of,
                }
            )  # fmt: skip
        if rows:
            head = [f"{network}: {title}", "ours", "ddsperf", "ours/ddsperf (95 %)", "margin 3 %"]
            report.text(common.table(head, rows))
    _tell_limit(report, network, values, data)
    _tell_wire(report, network, wires, data)
    report.data["networks"][network] = data


def _tell_limit(
    report: common.Report, network: str, values: dict[tuple[str, int], common.Values], data: dict[str, Any]
) -> None:
    rows = []
    for payload in sorted(size for kind, size in values if kind == "rate"):
        found = values["rate", payload]
        ratios = {name: found.ratio("ours", name) for name in ("raw", "iperf3")}
        if not any(ratios.values()):
            continue
        rows.append(
            [
                f"{payload} B",
                *(common.number(found.median(name)) for name in ("ours", "raw", "iperf3")),
                *(ratio.words() if ratio else "–" for ratio in ratios.values()),
            ]
        )
        data["against_limit"].append(
            {
                "payload_bytes": payload,
                **{name: found.median(name) for name in ("ours", "raw", "iperf3")},
                **{f"ours/{name}": ratio.json() if ratio else None for name, ratio in ratios.items()},
            }
        )
    if rows:
        head = [f"{network}: received samples/s", "ours", "raw", "iperf3", "ours/raw", "ours/iperf3"]
        report.text(common.table(head, rows))


def _tell_wire(
    report: common.Report,
    network: str,
    wires: dict[tuple[str, int], dict[str, list[float]]],
    data: dict[str, Any],
) -> None:
    rows = []
    for (name, payload), kinds in sorted(wires.items(), key=lambda item: (item[0][1], item[0][0])):
        mean = {kind: sum(all_) / len(all_) for kind, all_ in kinds.items()}
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
