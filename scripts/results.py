#!/usr/bin/env python3
"""Measure the results that the documents show, and write them: tables, figures, conditions and sentences.

`.venv/bin/python scripts/results.py` measures the experiments below in the lab, on a machine with nothing else to do,
and rewrites the results in README.md and docs/. A result on a page is between two comment lines;
everything else is written by hand. To write them from run folders that exist, name the folders.

    .venv/bin/python scripts/results.py [FOLDER ...]
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from k8sdds.analysis.conditions import UNIT
from k8sdds.model.axis import payload
from k8sdds.report import formats, summarize, write_report
from k8sdds.results.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PART = re.compile(
    r"(?P<begin><!-- result: (?P<name>[a-z -]+) -->\n)(?P<text>.*?)(?P<end><!-- end of result -->)",
    re.DOTALL,
)
EXPERIMENTS: dict[str, Sequence[str]] = {
    "cni-overhead": (),
    "message-size": ("--set", "networks=[host, flannel-hostgw, flannel-vxlan, weavenet]"),
}
"""The experiments to the options with which they are run."""

Row = dict[str, Any]


class Measured:
    """A run folder of one of the experiments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run = RunFolder.open(path)
        self.report = summarize(self.run)

    @property
    def experiment(self) -> str:
        """The name of its experiment."""
        return str(self.report["experiment"])

    @cached_property
    def conditions(self) -> str:
        """Where and when it was measured, as sentences."""
        trials, facts = self.report["trials"], self.run.campaign["testbed"]["facts"]
        command = shlex.join(["k8sdds", "run", self.experiment, *EXPERIMENTS[self.experiment]])
        first, last = (
            datetime.fromisoformat(row["started_at"]) for row in (self._attempts[0], self._attempts[-1])
        )
        length = formats.count(round((last - first).total_seconds() / 60), "minute")
        repetitions = max(row["n"] for row in self.report["levels"])
        return (
            f"`{command}`: {trials['valid']} valid of {trials['planned']} trials in {length} on"
            f" {first:%Y-%m-%d}, {facts['cpu_count']} cores of {facts['cpu_model']}, Linux"
            f" {facts['kernel'].partition('-')[0]}."
            f" {formats.capital(self.report['testbed_words'])}; {repetitions} repetitions; 95 % confidence intervals in"
            " brackets, not corrected for the number of comparisons."
        )

    @cached_property
    def _attempts(self) -> list[Row]:
        return sorted(self.run.attempts(), key=lambda row: str(row["started_at"]))

    def rows(self, kind: str, quantity: str, **settings: Any) -> list[Row]:
        """Return the overheads or levels of a quantity, of cells with these settings."""
        return [
            row
            for row in self.report[kind]
            if row["quantity"] == quantity and all(row[key] == value for key, value in settings.items())
        ]

    @property
    def networks(self) -> list[str]:
        """The labels of its networks, the baseline first."""
        return list(self.report["networks"])


def overheads(measured: Measured, quantity: str, test: str) -> str:
    """Return a table of a quantity's overheads: networks × payloads."""
    rows = measured.rows("overheads", quantity, test=test)
    sizes = sorted({row["payload_bytes"] for row in rows})
    cells = {(row[UNIT], row["payload_bytes"]): _overhead(row) for row in rows}
    return _table(
        ["network", *map(payload, sizes)],
        ([f"`{label}`", *(cells[label, size] for size in sizes)] for label in measured.networks[1:]),
    )


def by_message(measured: Measured, quantity: str, test: str, text: Callable[[Row], str]) -> str:
    """Return a table of a quantity's levels: networks × payloads and sizes of messages."""
    rows = measured.rows("levels", quantity, test=test)
    columns = [(size, message) for size in (16384, 65536) for message in ("mtu", "default", "max")]
    cells = {(row[UNIT], row["payload_bytes"], row["message_bytes"]): text(row) for row in rows}
    return _table(
        ["network", *(f"{payload(size)}: `{message}`" for size, message in columns)],
        ([f"`{label}`", *(cells[label, *column] for column in columns)] for label in measured.networks),
    )


def lead(measured: Measured) -> str:
    """Return what each network costs at 1 KiB, in one sentence."""
    rows = measured.rows("overheads", "throughput_mbps", test="throughput", payload_bytes=1024)
    costs = formats.join(
        [f"`{row[UNIT]}` {_overhead(row)} %" for row in sorted(rows, key=lambda row: row["ratio"])[::-1]]
    )
    return f"At 1 KiB, the networks cost these shares of the throughput of `host`: {costs}."


def _overhead(row: Row) -> str:
    return formats.percent(row["overhead_percent"], row["ci_low_percent"], row["ci_high_percent"])


def _level(row: Row) -> str:
    same = row["ci_low"] == row["ci_high"]
    return formats.level(row["mean"], *(None if same else row[bound] for bound in ("ci_low", "ci_high")))


def _count(row: Row) -> str:
    return f"{row['mean']:.0f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


PARTS: dict[str, tuple[str, Callable[[Measured], str]]] = {
    "overhead conditions": ("cni-overhead", lambda run: f"{run.conditions}\n"),
    "overhead in one sentence": ("cni-overhead", lambda run: f"{run.conditions} {lead(run)}\n"),
    "throughput overhead": ("cni-overhead", lambda run: overheads(run, "throughput_mbps", "throughput")),
    "latency overhead": ("cni-overhead", lambda run: overheads(run, "latency_p90_us", "latency")),
    "message conditions": ("message-size", lambda run: f"{run.conditions}\n"),
    "fragments by message": (
        "message-size", lambda run: by_message(run, "ip_fragments_per_sent_sample", "latency", _count),
    ),
    "throughput by message": (
        "message-size", lambda run: by_message(run, "throughput_mbps", "throughput", _level),
    ),
    "latency by message": ("message-size", lambda run: by_message(run, "latency_p50_us", "latency", _level)),
}  # fmt: skip
"""What writes each result: the experiment, and the function of its run folder."""


def measure(experiment: str, folder: Path) -> Path:
    """Measure an experiment in the lab and return its run folder."""
    path = folder / experiment
    argv = [str(Path(sys.prefix) / "bin" / "k8sdds"), "run", experiment, "--output", str(path)]
    subprocess.run([*argv, *EXPERIMENTS[experiment]], check=True)
    return path


def write(runs: dict[str, Measured]) -> None:
    """Rewrite the results on all pages whose experiment was measured, and the figure."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = PART.sub(lambda part: _part(part, runs), text)
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"written: {page.relative_to(ROOT)}")
    if overhead := runs.get("cni-overhead"):
        write_report(overhead.run, None)
        (figure,) = overhead.run.report.glob("figures/overhead*.png")
        shutil.copy(figure, ROOT / "docs" / "images" / "cni-overhead.png")


def _part(part: re.Match[str], runs: dict[str, Measured]) -> str:
    experiment, text = PARTS[part["name"]]
    return f"{part['begin']}\n{text(runs[experiment])}\n{part['end']}" if experiment in runs else part[0]


def main() -> int:
    """Measure, or read the folders that are named, and write."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(path) for path in sys.argv[1:]] or [measure(name, Path(folder)) for name in EXPERIMENTS]
        found = [Measured(path) for path in paths]
        if unknown := [str(one.path) for one in found if one.experiment not in EXPERIMENTS]:
            print(f"not one of {', '.join(EXPERIMENTS)}: {', '.join(unknown)}", file=sys.stderr)
            return 2
        write({one.experiment: one for one in found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
