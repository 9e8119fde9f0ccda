"""Compare the time of an import with a plain pass of regular expressions and pandas over the same files.

The plain pass reads every log, extracts its summary with two regular expressions and builds a table. It does
not read configurations, check validity or find copies. `reading` is the comparable part of the import: it
reads, hashes, parses and validates every file. `import` also writes the run folder with a copy of every file.
The output is the median and the range of the rounds, and the number of rows or trials.

Usage: python benchmarks/importing.py FOLDER [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import pandas as pd

from k8sdds.importing import duplicates, files, import_folder, layouts, records

_CSV = re.compile(rb"^Length \(Bytes\), (?P<head>.*)\n(?P<row> +\d+,.*)$", re.MULTILINE)
_TEXT = re.compile(rb"^Length: +(\d+) .*?(?:90% +(\d+) us|Mbps\(ave\): +([\d.]+))", re.MULTILINE)


def plain(folder: Path, _: Path) -> int:
    """Run the plain pass and return the number of rows."""
    rows = []
    for path in folder.rglob("*.log"):
        data = path.read_bytes()
        if match := _CSV.search(data):
            fields = [float(field) for field in match["row"].split(b",")]
            latency = b"90%" in match["head"]
            rows.append(
                (str(path), fields[0], fields[6] if latency else None, None if latency else fields[3])
            )
        elif match := _TEXT.search(data):
            length, p90, mbps = match.groups()
            rows.append(
                (str(path), float(length), float(p90) if p90 else None, float(mbps) if mbps else None)
            )
    table = pd.DataFrame(rows, columns=["path", "payload_bytes", "latency_p90_us", "throughput_mbps"])
    tops = [pd.read_csv(path) for path in folder.rglob("metrics.csv")]
    return len(table) + sum(map(len, tops))


def reading(folder: Path, _: Path) -> int:
    """Import without writing a run folder and return the number of trials."""
    sources = files.sources(folder)
    layout = layouts.detect([source.path for source in sources if source.kind == files.LOG])
    trials = [
        trial
        for bundle in files.bundles(sources, layout)
        for trial in records.records(bundle, layouts.hints(bundle.folder, bundle.stem, layout), layout)
    ]
    duplicates.mark(trials)
    return len(trials)


def whole(folder: Path, target: Path) -> int:
    """Import, write the run folder and return the number of trials."""
    return len(import_folder(folder, target / "run").trials)


def main() -> None:
    """Time all alternately and print the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.folder.is_dir() or options.rounds < 1:
        parser.error("FOLDER must be a folder, and --rounds at least 1")
    functions = {"plain pass": plain, "reading": reading, "import": whole}
    times: dict[str, list[float]] = {name: [] for name in functions}
    counts = {}
    for _ in range(options.rounds):
        for name, function in functions.items():
            with tempfile.TemporaryDirectory(prefix="k8sdds-import-") as target:
                start = time.perf_counter()
                counts[name] = function(options.folder, Path(target))
                # The clock stops before the folder is removed.
                times[name].append(time.perf_counter() - start)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if options.json:
        print(json.dumps({"seconds": times, "found": counts, "peak_mib": peak_mib}))
        return
    for name, seconds in times.items():
        print(
            f"{name:>10}: {median(seconds):6.3f} s ({min(seconds):.3f} to {max(seconds):.3f}),"
            f" {counts[name]} {'rows' if name == 'plain pass' else 'trials'}"
        )
    base = median(times["plain pass"])
    ratios = ", ".join(f"{name} {median(times[name]) / base:.2f}" for name in ("reading", "import"))
    print(f"ratio to the plain pass: {ratios}; peak memory {peak_mib:.0f} MiB")


if __name__ == "__main__":
    main()
