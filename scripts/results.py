#!/usr/bin/env python3
"""Measure the results that the documents show, and write them: tables, figures, conditions and sentences.

`.venv/bin/python scripts/results.py` measures the experiments below in the lab, on a machine with nothing else to do,
keeps their run folders in build/results, and rewrites the results in README.md and docs/. A result on a page is between
two comment lines; everything else is written by hand. To write them from run folders that exist, name the folders. The
recording of a run in a terminal is next to its folder, as FOLDER.svg.

    .venv/bin/python scripts/results.py [FOLDER ...]

Requires the extra `docs` of this project and Chromium.
"""

from __future__ import annotations

import os
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

from PIL import Image

from k8sdds.analysis.conditions import UNIT
from k8sdds.model.axis import payload
from k8sdds.report import formats, summarize, write_report
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.grouping import Row

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
PART = re.compile(
    r"(?P<begin><!-- result: (?P<name>[a-z -]+) -->\n)(?P<text>.*?)(?P<end><!-- end of result -->)",
    re.DOTALL,
)
IMAGES = ROOT / "docs" / "images"
RUNS = ROOT / "build" / "results"
K8SDDS = str(Path(sys.prefix) / "bin" / "k8sdds")
COMMANDS: dict[str, Sequence[str]] = {
    "teleoperation": ("recommend", "teleoperation", "--yes"),
    "quickstart": ("run", "quickstart"),
    "cni-overhead": ("run", "cni-overhead"),
    "message-size": (
        "run",
        "message-size",
        "--set",
        "networks=[host, flannel-hostgw, flannel-vxlan, weavenet]",
    ),
}
"""The experiments and applications to the commands that measure them."""
RECORDED = "quickstart"
"""The experiment of which the documents show a recording and, of the same run, a figure."""
ANSWER_LINES = 40
"""Most lines of an answer on a page."""


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
    def place(self) -> str:
        """Where and when it was measured, as sentences."""
        trials, facts = self.report["trials"], self.run.campaign["testbed"]["facts"]
        first, last = (
            datetime.fromisoformat(row["started_at"]) for row in (self._attempts[0], self._attempts[-1])
        )
        length = formats.count(round((last - first).total_seconds() / 60), "minute")
        return (
            f"`{shlex.join(['k8sdds', *COMMANDS[self.experiment]])}`: {trials['valid']} valid of"
            f" {trials['planned']} trials in {length} on {first:%Y-%m-%d}, {facts['cpu_count']} cores of"
            f" {facts['cpu_model']}, Linux {facts['kernel'].partition('-')[0]}."
            f" {formats.capital(self.report['testbed_words'])}"
        )

    @cached_property
    def conditions(self) -> str:
        """The place, and what the intervals mean."""
        repetitions = max(row["n"] for row in self.report["levels"])
        return (
            f"{self.place}; {repetitions} repetitions; 95 % confidence intervals in brackets, not corrected for the"
            " number of comparisons."
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
    """Return the cost of each network at 1 KiB, in one sentence."""
    rows = measured.rows("overheads", "throughput_mbps", test="throughput", payload_bytes=1024)
    costs = formats.join(
        [f"`{row[UNIT]}` {_overhead(row)} %" for row in sorted(rows, key=lambda row: row["ratio"])[::-1]]
    )
    return f"At 1 KiB, the networks cost these shares of the throughput of `host`: {costs}."


def recommendation(measured: Measured) -> str:
    """Return the beginning of what `k8sdds recommend` prints about the run."""
    lines = [line.rstrip() for line in answer(measured).splitlines()]
    if len(lines) > ANSWER_LINES:
        end = max(number for number, line in enumerate(lines[:ANSWER_LINES]) if not line)
        while not lines[end - 2]:  # the title of a table that does not fit
            end -= 2
        lines[end:] = ["…"]
    text = "\n".join(lines)
    return f"```\n{text}\n```\n\n{measured.place}.\n"


def answer(measured: Measured, *options: str) -> str:
    """Return the output of `k8sdds recommend` about the run."""
    argv = [K8SDDS, "recommend", measured.experiment, "--from", str(measured.path), *options]
    # As on a terminal of this size, but without colors.
    screen = {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "LINES": "40"}
    return run(argv, env={**os.environ, **screen}, stdout=subprocess.PIPE).stdout.partition(
        "\nRecommendation: "
    )[0]


def run(argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run k8sdds. Raises SystemExit if it fails; that no configuration is recommended is an answer, too."""
    done = subprocess.run(argv, text=True, **options)
    if done.returncode not in (0, 7, 8):
        sys.exit(f"{shlex.join(argv)} exited with code {done.returncode}")
    return done


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
    "recommend": ("teleoperation", recommendation),
    "overhead in one sentence": (RECORDED, lambda run: f"{run.conditions} {lead(run)}\n"),
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


def measure(experiment: str) -> Path:
    """Measure an experiment in the lab and return its run folder, which replaces an earlier one."""
    path = RUNS / experiment
    shutil.rmtree(path, ignore_errors=True)
    command = [K8SDDS, *COMMANDS[experiment]]
    with tempfile.TemporaryDirectory() as folder:
        if experiment == RECORDED:
            recorder = [sys.executable, str(ROOT / "scripts" / "record_terminal.py"), "--folder", folder]
            command = [*recorder, str(path.with_suffix(".svg")), *command]
        run(command, cwd=folder)
        (measured,) = Path(folder).glob("runs/*")
        return Path(shutil.move(measured, path))


def write(runs: dict[str, Measured]) -> None:
    """Rewrite the results on all pages whose experiment was measured, and the figure."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = PART.sub(lambda part: _part(part, runs), text)
        if new != text:
            page.write_text(new, encoding="utf-8")
            print(f"written: {page.relative_to(ROOT)}")
    for experiment in runs.keys() & {RECORDED, "cni-overhead"}:
        measured = runs[experiment].run
        write_report(measured, None)
        (figure,) = measured.report.glob("figures/overhead*.png")
        shutil.copy(figure, IMAGES / f"{experiment}.png")
    if recorded := runs.get(RECORDED):
        shutil.copy(recorded.path.with_suffix(".svg"), IMAGES)
    if answered := runs.get("teleoperation"):
        with tempfile.TemporaryDirectory() as folder:
            answer(answered, "--output", folder)
            screenshot(Path(folder) / "recommendation.html", IMAGES / "recommendation.png")


def screenshot(page: Path, image: Path) -> None:
    """Write the first screen of a page as a PNG of few colors."""
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1130"]
    subprocess.run(
        ["chromium", *options, f"--screenshot={image}", page.as_uri()], check=True, capture_output=True
    )
    # This method also keeps the colors of small marks.
    Image.open(image).convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE).save(image, optimize=True)


def _part(part: re.Match[str], runs: dict[str, Measured]) -> str:
    experiment, text = PARTS[part["name"]]
    return f"{part['begin']}\n{text(runs[experiment])}\n{part['end']}" if experiment in runs else part[0]


def main() -> int:
    """Measure, or read the folders that are named, and write."""
    RUNS.mkdir(parents=True, exist_ok=True)
    paths = [Path(path).absolute() for path in sys.argv[1:]] or [measure(name) for name in COMMANDS]
    found = [Measured(path) for path in paths]
    if unknown := [str(one.path) for one in found if one.experiment not in COMMANDS]:
        print(f"not one of {', '.join(COMMANDS)}: {', '.join(unknown)}", file=sys.stderr)
        return 2
    write({one.experiment: one for one in found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
