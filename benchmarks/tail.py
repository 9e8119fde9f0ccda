"""Show how many of the slowest samples were on their way while a thread of k8sdds itself ran.

The tail of a latency must come from the network, the middleware and the machine. Every thread that k8sdds starts next
to the measured ones can wake up on a measured core: the main, housekeeping and watchdog threads of k8sdds-perftest, the
supervisors, and this Python process. This benchmark traces all context switches (sched_switch) and every recorded
sample (a uprobe on the histogram) with the kernel's tracer, on one clock. No program reads the trace while a trial
runs. The uprobe adds about 1 µs after each sample was timed.

  slow       samples above p99.9 of their run
  ours       share of them during which a thread of k8sdds that handles no samples was scheduled, on any core
  by chance  the same share for windows of the same lengths at random times of the same run
  touched    the same share of all samples, and the median time on the way of these and of the other samples
  wake-ups   how often such threads were scheduled, per second

A share above the one by chance shows that wake-ups of k8sdds make samples slow. On a machine with other load, that
load makes most of the slow samples; the touched samples still show what k8sdds adds. Compare two builds, which
alternate in random order:

  tail.py --program before=OLD/build/libexec/k8sdds --program after=build/libexec/k8sdds

Requires root, tracefs and binutils (readelf).
"""

from __future__ import annotations

import bisect
import json
import os
import platform
import random
import re
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common

from k8sdds.model.trial import Cell, Trial
from k8sdds.perftest import command
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program
from k8sdds.testbeds.lab.session import LabSession
from k8sdds.testbeds.lab.testbed import Lab

TRACING = Path("/sys/kernel/tracing")
INSTANCE = TRACING / "instances" / "k8sdds-tail"
PROBE = "k8sdds_tail"
BUFFER_KB = 96 * 1024
"""Per core; holds the events of a run."""
SECOND_ARGUMENT = {"x86_64": "%si", "aarch64": "%x1"}
RECORD = "_ZN6k8sdds9Histogram6recordEl"
"""Symbol of `k8sdds::Histogram::record(int64_t)`."""
PERFTEST, SUPERVISOR = "k8sdds-perftest", "k8sdds-supervis"  # the kernel keeps 15 characters
QUANTILE = 0.999
SHIFTS = 20
"""Random windows per slow sample."""

LINE = re.compile(
    r"^\s*(?P<comm>.+?)-(?P<tid>\d+)\s+\[(?P<cpu>\d+)\]\s+\S+\s+(?P<at>\d+\.\d+): (?P<event>\w+): (?P<text>.*)$"
)
NEXT = re.compile(r"next_comm=(?P<comm>.+) next_pid=(?P<tid>\d+) next_prio=")
VALUE = re.compile(r"value=(?P<value>-?\d+)")


@dataclass(frozen=True)
class Sample:
    """A recorded sample: when it was complete, and for how long it was on its way, in µs."""

    end_us: float
    length_us: float


@dataclass
class Trace:
    """The samples of one run, and the times at which threads of k8sdds were scheduled, by group."""

    samples: list[Sample]
    switches: dict[str, list[float]]


@contextmanager
def tracer() -> Iterator[None]:
    """Create an instance of the kernel's tracer, and remove it."""
    if os.geteuid() != 0 or not (TRACING / "uprobe_events").exists():
        raise PrerequisiteError(
            f"{TRACING} with uprobe_events is not available", "run as root; mount tracefs"
        )
    if platform.machine() not in SECOND_ARGUMENT:
        raise PrerequisiteError(
            f"no uprobe arguments are known for {platform.machine()}", "use x86_64 or aarch64"
        )
    _remove()
    INSTANCE.mkdir()
    try:
        (INSTANCE / "trace_clock").write_text("mono")
        (INSTANCE / "buffer_size_kb").write_text(str(BUFFER_KB))
        (INSTANCE / "events/sched/sched_switch/enable").write_text("1")
        yield
    finally:
        _remove()


def _remove() -> None:
    if INSTANCE.exists():
        (INSTANCE / "events/enable").write_text("0")
    for line in (TRACING / "uprobe_events").read_text().splitlines():
        if line.startswith(f"p:{PROBE}/"):
            _define(f"-:{line.split()[0][2:]}")
    if INSTANCE.exists():
        INSTANCE.rmdir()


def _define(definition: str) -> None:
    # Without O_APPEND, the kernel removes all other probes.
    file = os.open(TRACING / "uprobe_events", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{definition}\n".encode())
    finally:
        os.close(file)


def _file_offset(program: str) -> int:
    """Return where the machine code of the probed function is in a program."""
    symbols = subprocess.run(["readelf", "-sW", program], capture_output=True, text=True, check=True).stdout
    found = [line.split() for line in symbols.splitlines() if line.endswith(f" {RECORD}")]
    if not found:
        raise PrerequisiteError(
            f"{program} has no symbol {RECORD}", "build it without stripping: k8sdds setup"
        )
    address = int(found[0][1], 16)
    segments = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout
    for line in segments.splitlines():
        fields = line.split()
        if fields[:1] == ["LOAD"]:
            offset, start, size = (int(fields[i], 16) for i in (1, 2, 4))
            if start <= address < start + size:
                return address - start + offset
    raise PrerequisiteError(f"{program}: {RECORD} is in no segment", "build it again: k8sdds setup")


def probe(label: str, folder: str) -> None:
    """Trace the samples that the k8sdds-perftest of a folder records."""
    program = str(Path(folder, PERFTEST).resolve())
    argument = SECOND_ARGUMENT[platform.machine()]
    _define(f"p:{PROBE}/{label} {program}:{_file_offset(program):#x} value={argument}:s64")
    (INSTANCE / f"events/{PROBE}/{label}/enable").write_text("1")


@contextmanager
def recording() -> Iterator[None]:
    """Record events while the `with` block runs."""
    (INSTANCE / "trace").write_text("")
    (INSTANCE / "tracing_on").write_text("1")
    try:
        yield
    finally:
        (INSTANCE / "tracing_on").write_text("0")


def read_trace(label: str, test: str) -> Trace:
    """Return the recorded switches. Call it after the run."""
    for stats in INSTANCE.glob("per_cpu/cpu*/stats"):
        lost = re.search(r"^overrun: (\d+)", stats.read_text(), re.MULTILINE)
        if lost and int(lost[1]):
            raise PrerequisiteError(f"the kernel's trace buffer lost {lost[1]} events", "use fewer --seconds")
    samples: list[Sample] = []
    scheduled: list[tuple[float, str, int]] = []
    recorders: set[int] = set()
    with (INSTANCE / "trace").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            match = LINE.match(line)
            if not match:
                continue
            at_us = float(match["at"]) * 1e6
            if match["event"] == label:
                value_us = int(VALUE.search(match["text"])["value"]) / 1000  # type: ignore[index]
                # The latency test records half of each round trip.
                samples.append(Sample(at_us, value_us * (2 if test == "latency" else 1)))
                recorders.add(int(match["tid"]))
            elif match["event"] == "sched_switch":
                into = NEXT.search(match["text"])
                if into and (into["comm"] in (PERFTEST, SUPERVISOR) or int(into["tid"]) == os.getpid()):
                    scheduled.append((at_us, into["comm"], int(into["tid"])))
    return Trace(samples, _group(scheduled, samples, recorders, test))


def _group(
    scheduled: list[tuple[float, str, int]], samples: list[Sample], recorders: set[int], test: str
) -> dict[str, list[float]]:
    """Group switches within the measured interval by kind of thread; leave out threads that handle samples."""
    groups: dict[str, list[float]] = {}
    if not samples:
        return groups
    first, last = samples[0].end_us, samples[-1].end_us
    # Threads of the middleware have names of their own. Among the others of k8sdds-perftest, the publisher's main
    # thread sends the samples of a paced test: it is the one that is scheduled most often.
    counts = Counter(tid for at, comm, tid in scheduled if comm == PERFTEST and first <= at <= last)
    senders = {tid for tid, _ in counts.most_common(1)} if test == "paced" else set()
    names = {PERFTEST: "k8sdds-perftest", SUPERVISOR: "supervisors"}
    for at, comm, tid in scheduled:
        if first <= at <= last and tid not in recorders | senders:
            groups.setdefault(names.get(comm, "k8sdds (Python)"), []).append(at)
    return groups


def coincidences(trace: Trace, order: random.Random) -> dict[str, Any]:
    """Return how many slow samples coincide with threads of k8sdds, and how many would by chance."""
    lengths = sorted(sample.length_us for sample in trace.samples)
    limit = lengths[int(QUANTILE * len(lengths))]
    slow = [sample for sample in trace.samples if sample.length_us > limit]
    first, last = trace.samples[0].end_us, trace.samples[-1].end_us
    ours = sorted(at for switches in trace.switches.values() for at in switches)

    def hit(times: list[float], end_us: float, length_us: float) -> bool:
        return bisect.bisect_right(times, end_us) > bisect.bisect_left(times, end_us - length_us)

    touched = [sample.length_us for sample in trace.samples if hit(ours, sample.end_us, sample.length_us)]
    others = [sample.length_us for sample in trace.samples if not hit(ours, sample.end_us, sample.length_us)]
    shifted = [(order.uniform(first, last), sample.length_us) for sample in slow for _ in range(SHIFTS)]
    return {
        "samples": len(lengths),
        "p999_us": limit,
        "slow": len(slow),
        "ours": sum(hit(ours, sample.end_us, sample.length_us) for sample in slow),
        "by_chance": sum(hit(ours, end, length) for end, length in shifted) / SHIFTS,
        "touched": len(touched),
        "touched_median_us": statistics.median(touched) if touched else None,
        "others_median_us": statistics.median(others),
        "by_group": {
            group: sum(hit(sorted(times), sample.end_us, sample.length_us) for sample in slow)
            for group, times in trace.switches.items()
        },
        "per_s": {group: len(times) / (last - first) * 1e6 for group, times in trace.switches.items()},
    }


class Pair:
    """A publisher and a subscriber in two pods of a lab network."""

    def __init__(self, lab: Lab, options: Any, folder: Path) -> None:
        self._session = LabSession(lab)
        self._folder = folder
        self._count = 0
        self._trial = Trial(
            cell=Cell(
                network="host",
                test=options.test,
                payload_bytes=options.payload,
                rate=options.rate if options.test == "paced" else 0,
                layout="split" if options.test == "paced" else "same",
            ),
            testbed="lab",
            repetition=0,
            duration_s=options.seconds,
            warmup_s=1.0,
        )  # fmt: skip
        lab.up([self._trial.cell])

    def run(self) -> None:
        """Run both to their end."""
        self._count += 1
        domain = command.DOMAINS[self._count % len(command.DOMAINS)]
        launches = common.launches(self._session, self._trial, self._folder / str(self._count), domain)
        measurement = self._session.run(self._trial, launches, command.deadline_s(self._trial))
        for launch in launches:
            outcome = measurement.outcomes[launch.participant.name]
            if outcome.exit_code:
                text = (launch.directory / "stderr").read_text(errors="replace")
                raise PrerequisiteError(
                    f"{launch.participant.name} failed: {outcome.message} {text}"[:300], "retry"
                )


def main() -> int:
    """Run all programs in random order."""
    parser = common.parser(__doc__ or "", common.Defaults(10, 2, 5, 2, "rounds"))
    parser.add_argument(
        "--program", action="append", metavar="LABEL=FOLDER", help="programs to compare [this build]"
    )
    parser.add_argument("--test", choices=("latency", "paced"), default="latency", help="[latency]")
    parser.add_argument(
        "--rate", type=float, default=1000, help="samples per second of the paced test [1000]"
    )
    parser.add_argument("--payload", type=int, default=64, help="bytes [64]")
    options = common.parse(parser)
    report = common.Report("tail", options)
    programs = dict(item.split("=", 1) for item in options.program or [])
    programs = programs or {"this": str(Path(native_program(PERFTEST)).parent)}
    order = random.Random(options.seed)
    rows: dict[str, list[dict[str, Any]]] = {label: [] for label in programs}
    with (
        tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-") as folder,
        Lab("benchmark-tail") as lab,
        tracer(),
    ):
        pair = Pair(lab, options, Path(folder))
        for label, path in programs.items():
            probe(label, path)
        for number, label in common.interleave(options.pairs, [list(programs)], options.seed):
            os.environ["K8SDDS_LIBEXEC"] = programs[label]
            with recording():
                pair.run()
            trace = read_trace(label, options.test)
            if len(trace.samples) < 1 / (1 - QUANTILE):
                report.skip(f"{label}, round {number + 1}: only {len(trace.samples)} samples")
                continue
            rows[label].append(coincidences(trace, order))
            common.progress(f"[{number + 1}] {label}: {json.dumps(rows[label][-1])}")
    report.data |= {"test": options.test, "payload_bytes": options.payload, "rounds": rows}
    add_tables(report, rows)
    report.show()
    return 0


def add_tables(report: common.Report, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Add the shares, pooled over all rounds, and the wake-ups by kind of thread."""
    table, effects, groups = [], [], []
    for label, results in rows.items():
        slow = sum(result["slow"] for result in results)
        if not slow:
            continue
        percents = [100 * sum(result[key] for result in results) / slow for key in ("ours", "by_chance")]
        p999 = sorted(result["p999_us"] for result in results)[len(results) // 2]
        samples = sum(result["samples"] for result in results)
        touched = 100 * sum(result["touched"] for result in results) / samples
        medians = [
            [result[key] for result in results if result[key] is not None]
            for key in ("touched_median_us", "others_median_us")
        ]
        effects.append(
            [label, f"{touched:.3f} %", *(f"{statistics.median(v):.1f}" if v else "–" for v in medians)]
        )
        table.append(
            [
                label,
                common.number(samples),
                f"{p999:.1f}",
                str(slow),
                *(f"{percent:.2f} %" for percent in percents),
            ]
        )
        for group in sorted({name for result in results for name in result["per_s"]}):
            hits = sum(result["by_group"].get(group, 0) for result in results)
            per_s = sum(result["per_s"].get(group, 0) for result in results) / len(results)
            groups.append([f"{label}: {group}", f"{per_s:.1f}", f"{100 * hits / slow:.2f} %"])
    head = ["program", "samples", "median p99.9, µs", "slow", "ours", "by chance"]
    report.text(common.table(head, table))
    report.text(common.table(["program", "touched", "their median, µs", "others', µs"], effects))
    report.text(common.table(["threads that handle no samples", "wake-ups/s", "slow samples"], groups))


if __name__ == "__main__":
    common.main(main)
