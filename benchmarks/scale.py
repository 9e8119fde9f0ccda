"""How report, compare and artifacts grow with the number of trials: seconds and peak memory.

Makes run folders of 100, 1,000 and 10,000 trials (scale_folders.py; five networks, two tests, up to ten
payloads and twenty settings, five repetitions, raw files of both participants) in a temporary folder, and
runs the commands on them as a user would, each in a process of its own:

  report   tables, figures and HTML
  json     `report --json`: reading and statistics alone
  compare  two such folders of different seeds, cell by cell
  pack     all of it into one archive, with the tables to expect
  verify   the archive

Memory is the largest resident set of the process. "per trial" against the size before says how it grows: 1
is linear, 10 would be quadratic.
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
import scale_folders

SIZES = (100, 1000, 10_000)
QUICK = (100, 1000)
PROGRAM = Path(sys.executable).with_name("k8sdds")


def timed(*words: str | Path) -> tuple[float, float, str]:
    """Run k8sdds: wall seconds, peak MiB, and what it said if it failed."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([PROGRAM, *words], stdout=said, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace").strip()
    return seconds, usage.ru_maxrss / 1024, text[-300:] if process.returncode else ""


def measure(size: int, place: Path, seed: int, report: common.Report) -> list[dict[str, Any]]:
    """All commands on folders of this size."""
    begun = time.monotonic()
    first = scale_folders.make(place / f"first-{size}", size, seed).path
    second = scale_folders.make(place / f"second-{size}", size, seed + 1, raw=False).path
    common.say(f"{size} trials: made in {time.monotonic() - begun:.0f} s")
    archive = place / f"{size}.zip"
    commands: dict[str, tuple[str | Path, ...]] = {
        "json": ("report", first, "--json"),
        "report": ("report", first),
        "compare": ("compare", first, second),
        "pack": ("artifact", "pack", first, "--output", archive),
        "verify": ("artifact", "verify", archive),
    }
    found = []
    for name, words in commands.items():
        seconds, mib, failed = timed(*words)
        if failed:
            report.lack(f"{name} of {size} trials: {failed}")
            continue
        common.say(f"  {name}: {seconds:.1f} s, {mib:.0f} MiB")
        found.append({"command": name, "trials": size, "seconds": seconds, "peak_mib": mib})
    return found


def main() -> int:
    """Measure every size."""
    parser = common.parser(__doc__ or "", common.Defaults(1, 1, what="rounds"))
    parser.add_argument("--trials", action="append", type=int, help="size; repeatable [100, 1000, 10000]")
    options = common.parse(parser)
    report = common.Report("scale", options)
    sizes = options.trials or (QUICK if options.quick else SIZES)
    found: list[dict[str, Any]] = []
    for number in range(options.pairs):
        for size in sorted(sizes):
            # Folder by folder, so that the disk holds one size at a time.
            with tempfile.TemporaryDirectory(prefix="k8sdds-benchmark-", dir="/var/tmp") as place:
                found += measure(size, Path(place), options.seed + number, report)
    report.data["measured"] = found
    rows = []
    before: dict[str, float] = {}
    for one in sorted(found, key=lambda one: (one["command"], one["trials"])):
        per_trial = one["seconds"] / one["trials"]
        growth = per_trial / before[one["command"]] if one["command"] in before else None
        before[one["command"]] = per_trial
        rows.append(
            [
                f"{one['command']} {one['trials']:,}",
                f"{one['seconds']:.1f}",
                f"{one['peak_mib']:,.0f}",
                f"{1000 * per_trial:.1f}",
                common.number(growth, 2),
            ]
        )
    report.text(common.table(["trials", "seconds", "peak MiB", "ms per trial", "of that before"], rows))
    report.show()
    return 0


if __name__ == "__main__":
    common.main(main)
