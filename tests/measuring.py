"""Run experiments with the command, and read what was measured."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from k8sdds.results.run_folder import RunFolder

Command = Callable[..., subprocess.CompletedProcess[str]]


def last_attempts(folder: Path) -> list[dict[str, Any]]:
    """Return the last attempt of each trial of a run. On a busy machine, disturbed attempts are repeated."""
    return list({record["trial_id"]: record for record in RunFolder.open(folder).attempts()}.values())


def valid_attempts(folder: Path) -> list[dict[str, Any]]:
    """Return the valid attempts of a run."""
    return [record for record in RunFolder.open(folder).attempts() if record["valid"]]


LATE = "were late by"
"""On a busy machine, links forward packets too late, and attempts are invalid with this reason."""


def attempts_over_links(folder: Path) -> list[dict[str, Any]]:
    """Return the last attempts of a run, which are valid or late: what links did is as asked all the same."""
    last = last_attempts(folder)
    assert [record["reason"] for record in last if not record["valid"] and LATE not in record["reason"]] == []
    return last


def measured(
    k8sdds: Command, folder: Path, experiment: str, *args: str, timeout_s: float = 400
) -> list[dict[str, Any]]:
    """Run an experiment, given as text, into `out` of the folder; return the last attempts, which must all be valid."""
    path = folder / "experiment.yaml"
    path.write_text(experiment)
    done = k8sdds("run", str(path), *args, "-o", str(folder / "out"), timeout_s=timeout_s)
    assert (folder / "out").exists(), done.stderr
    last = last_attempts(folder / "out")
    assert [record["reason"] for record in last if not record["valid"]] == [], done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    return last
