"""The fuzz targets of the native programs and their corpora."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCES = REPOSITORY / "perftest-images"
PERFTEST = ("options", "qos", "config", "schedule", "graph", "control", "datagram", "json")
TARGETS = {name: SOURCES / "perftest/fuzz/corpus" / name for name in PERFTEST} | {
    name: SOURCES / name / "fuzz/corpus" for name in ("supervisor", "link")
}
"""The corpus of each target."""


def fuzz(build: Path, target: str, runs: int, seed: int, within: tuple[str, ...] = ()) -> str:
    """Run a target with its corpus and so many variations of it; return its output."""
    [program] = build.glob(f"**/k8sdds-fuzz-{target}")
    done = subprocess.run(
        [*within, program, "-runs", str(runs), "-seed", str(seed), TARGETS[target]],
        capture_output=True,
        text=True,
        errors="replace",
        env={"PATH": os.defpath, "ASAN_OPTIONS": "detect_leaks=1"},
    )
    assert done.returncode == 0, f"{target}: {done.stderr[-3000:]}"
    return done.stdout
