"""Measure how time and peak memory of report, compare and artifacts grow with the number of trials.

Creates run folders of 100, 1,000 and 10,000 trials (five networks, two tests, up to ten payloads and twenty settings,
five repetitions, with histograms and timelines) in a temporary folder and runs the commands on them, each in a separate
process:

  report   tables, figures and HTML
  json     `report --json`: reading and statistics only
  compare  two such folders with different seeds, cell by cell
  pack     all files and the expected tables into one archive
  verify   the archive

Memory is the peak resident set of the process. The last column is the time per trial relative to the previous
size: 1 means linear growth, 10 quadratic growth.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

SIZES = (100, 1000, 10_000)
PAYLOADS = (64, 256, 512, 1024, 1400, 2048, 4096, 8192, 16384, 63000)
SETTINGS = [
    {"receive_mode": mode, "reliability": reliability, "batch_bytes": batch_bytes}
    for batch_bytes in (0, 1024, 2048, 4096, 8192)
    for mode in ("listener", "waitset")
    for reliability in ("reliable", "best-effort")
]
QUICK = (100, 1000)


def timed(*args: str | Path) -> tuple[float, float, str]:
    """Run k8sdds; return wall seconds, peak MiB, and the end of its output if it failed."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([common.K8SDDS, *args], stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
    return seconds, usage.ru_maxrss / 1024, text[-300:] if process.returncode else ""


def made(path: Path, trials: int, seed: int, histograms: bool) -> Path:
    """Create a run folder: first with more payloads, then with more settings."""
    # The tests are not installed.
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from tests import run_folders

    payloads = trials // 50
    plan = run_folders.Plan(
        payloads=PAYLOADS[: min(payloads, len(PAYLOADS))], conditions=SETTINGS[: max(1, payloads // len(PAYLOADS))],
        repetitions=5, seed=seed, histograms=histograms, details=histograms,
    )  # fmt: skip
    run = run_folders.make(path, plan)
    if len(run.attempts()) != trials:
        raise ValueError(f"{trials} trials: must be 50 × 1 to 10, or 500 × 1 to 20")
    return path


def measure(size: int, place: Path, seed: int, report: common.Report) -> list[dict[str, Any]]:
    """Run all commands on folders of one size."""
    begun = time.monotonic()
    first = made(place / f"first-{size}", size, seed, histograms=True)
    second = made(place / f"second-{size}", size, seed + 1, histograms=False)
    common.progress(f"{size} trials: created in {time.monotonic() - begun:.0f} s")
    archive = place / f"{size}.zip"
    commands: dict[str, tuple[str | Path, ...]] = {
        "json": ("report", first, "--json"),
        "report": ("report", first),
        "compare": ("compare", first, second),
        "pack": ("artifact", "pack", first, "--output", archive),
        "verify": ("artifact", "verify", archive),
    }
    results = []
    for name, arguments in commands.items():
        seconds, mib, failed = timed(*arguments)
        if failed:
            report.skip(f"{name} of {size} trials: {failed}")
            continue
        common.progress(f"  {name}: {seconds:.1f} s, {mib:.0f} MiB")
        results.append({"command": name, "trials": size, "seconds": seconds, "peak_mib": mib})
    return results


def main() -> int:
    """Measure all sizes."""
    parser = common.parser(__doc__ or "", common.Defaults(1, 1, what="rounds"))
    parser.add_argument("--trials", action="append", type=int, help="size; repeatable [100, 1000, 10000]")
    options = common.parse(parser)
    report = common.Report("scale", options)
    sizes = options.trials or (QUICK if options.quick else SIZES)
    results: list[dict[str, Any]] = []
    for number in range(options.pairs):
        for size in sorted(sizes):
            # A separate folder per size, so that the disk contains only one size at a time.
            with tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-", dir="/var/tmp") as place:
                results += measure(size, Path(place), options.seed + number, report)
    report.data["measured"] = results
    rows = []
    before: dict[str, float] = {}
    for result in sorted(results, key=lambda result: (result["command"], result["trials"])):
        per_trial = result["seconds"] / result["trials"]
        growth = per_trial / before[result["command"]] if result["command"] in before else None
        before[result["command"]] = per_trial
        rows.append(
            [
                f"{result['command']} {result['trials']:,}",
                f"{result['seconds']:.1f}",
                f"{result['peak_mib']:,.0f}",
                f"{1000 * per_trial:.1f}",
                common.number(growth, 2),
            ]
        )
    report.text(common.table(["trials", "seconds", "peak MiB", "ms per trial", "relative to previous"], rows))
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
