"""Measure how evenly k8sdds-perftest sends samples at an offered rate.

A publisher and a subscriber run on two cores of this machine and exchange samples over the loopback interface. The
subscriber reads the clock for each sample (`-interArrivalFile`). The result is the histogram of the times between
samples, in periods of the offered rate: samples that are sent in bursts arrive much less than a period apart, and a
pause of more than a period precedes each burst.

By default, the samples are plain UDP datagrams and the subscriber polls, so that the times are those of the publisher
and not of a subscriber that wakes up. The publisher's CPU time shows what it costs to wait: sleeps, wake-ups and spins.

Requires: two cores; taskset (util-linux).
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import common
import numpy as np

from k8sdds.results import histograms
from k8sdds.system.paths import native_program

RATES = (1_000, 5_000, 15_000, 20_000, 50_000, 100_000)
METHODS = ("sleep", "spin")
LIMITS = (0.1, 0.5, 0.9, 1.1, 1.5, 2)
"""Upper limits of the bins of the histogram, in periods; the last bin has none."""
TIMEOUT_S = 30
DOMAIN = 90


def measure(rate: int, method: str, options: Any, folder: Path) -> dict[str, Any]:
    """Run a publisher and a subscriber once. Return the achieved rate, the publisher's CPU and the histogram."""
    shared = [native_program("k8sdds-perftest"), "-middleware", options.middleware]
    shared += ["-nic", "lo", "-peer", "127.0.0.1", "-domain", str(DOMAIN), "-outputFormat", "json"]
    shared += ["-noPrintIntervals", "-verbosity", "0"]
    shared += ["-bestEffort"] if options.middleware == "raw" else []
    log = folder / histograms.LOG
    publisher = [*shared, "-pub", "-dataLen", str(options.payload), "-pubRate", f"{rate}:{method}"]
    publisher += ["-warmUp", "0.5", "-executionTime", f"{options.seconds:g}"]
    subscriber = [*shared, "-sub", "-receive", options.receive, "-interArrivalFile", str(log)]
    commands = (["taskset", "-c", "0", *publisher], ["taskset", "-c", "1", *subscriber])
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        outputs = [process.communicate(timeout=TIMEOUT_S + options.seconds)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    sent, received = (json.loads(output)["k8sdds"] for output in outputs)
    gaps = histograms.read(folder.parent, ["inter_arrival"])
    assert gaps is not None
    p50_ns, p99_ns = gaps.percentiles([50, 99])
    highest = gaps.lows + gaps.widths - 1
    counts, _ = np.histogram(
        highest, [0, *(limit * 1e9 / rate for limit in LIMITS), np.inf], weights=gaps.counts
    )
    return {
        "rate": rate,
        "method": method,
        "achieved_percent": 100 * sent["samples_per_s"] / rate,
        "lost_percent": 100 * received["lost"] / sent["sent"],
        "publisher_cpu_percent": 100 * sent["cpu_s"] / sent["measured_s"],
        "p50_us": p50_ns / 1000,
        "p99_us": p99_ns / 1000,
        "shares_percent": [100 * float(count) / gaps.total for count in counts],
    }


def add_table(report: common.Report, rows: list[dict[str, Any]]) -> None:
    """Add the histograms to the report."""
    bins = [f"< {LIMITS[0]}", *(f"< {limit}" for limit in LIMITS[1:]), f"≥ {LIMITS[-1]}"]
    lines = []
    for row in rows:
        cells = [f"{row['rate']:,}/s {row['method']}", f"{row['achieved_percent']:.1f} %"]
        cells += [f"{row['publisher_cpu_percent']:.0f} %", f"{row['p50_us']:.1f}", f"{row['p99_us']:.1f}"]
        lines.append([*cells, *(f"{share:.2f} %" for share in row["shares_percent"])])
    head = ["rate and wait", "achieved", "publisher CPU", "p50, µs", "p99, µs", *bins]
    report.text(common.table(head, lines))


def main() -> int:
    """Measure every rate with both methods and print the histograms."""
    parser = common.parser(__doc__ or "", common.Defaults(3, 1, 3, 1, what="runs of each rate"))
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES), help="samples per second")
    parser.add_argument("--middleware", default="raw", help="middleware backend [raw]")
    parser.add_argument("--receive", default="spin", help="receive mode of the subscriber [spin]")
    parser.add_argument("--payload", type=int, default=1024, help="bytes of a sample [1024]")
    options = common.parse(parser)
    report = common.Report("pacing", options)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        schedule = common.interleave(
            options.pairs, [[(rate, method) for method in METHODS] for rate in options.rates], options.seed
        )
        for number, (_, (rate, method)) in enumerate(schedule):
            common.progress(f"{number + 1}/{len(schedule)}: {rate}/s by {method}")
            folder = Path(temporary, str(number), "sub")
            folder.mkdir(parents=True)
            rows.append(measure(rate, method, options, folder))
    rows.sort(key=lambda row: (row["rate"], row["method"], row["p99_us"]))
    report.data["rows"] = rows
    add_table(report, rows)
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
