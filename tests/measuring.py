"""Run experiments with the command, and read what was measured."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from k8sdds.results.run_folder import RunFolder
from tests.commands import K8SDDS, environment
from tests.conftest import Command

STARTS_S, ENDS_S = 300, 300
"""How long a campaign may take until something happens in it, and until it has ended after Ctrl-C."""


@contextmanager
def running(
    folder: Path, *args: str, command: str = "run", **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a campaign in a folder while the context lasts, and interrupt it at the end if it still runs."""
    with subprocess.Popen(
        [str(K8SDDS), command, *args], cwd=folder, env=environment(folder) | variables, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=ENDS_S)


def wait(condition: Callable[[], object], process: subprocess.Popen[str], what: str) -> None:
    """Wait until something has happened in a running campaign."""
    end = time.monotonic() + STARTS_S
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < end, what
        time.sleep(0.05)


def wait_for_trial(process: subprocess.Popen[str], number: int) -> None:
    """Read the progress of a campaign until the trial of this number has started."""
    assert process.stdout is not None
    assert any(line.startswith(f"[{number}/") for line in process.stdout), "it ended before"


def attempts(folder: Path) -> list[dict[str, Any]]:
    """Return all attempts of a run."""
    return RunFolder.open(folder).attempts()


def last_attempts(folder: Path) -> list[dict[str, Any]]:
    """Return the last attempt of each trial of a run. On a busy machine, disturbed attempts are repeated."""
    return list({record["trial_id"]: record for record in attempts(folder)}.values())


def valid_attempts(folder: Path) -> list[dict[str, Any]]:
    """Return the valid attempts of a run."""
    return [record for record in attempts(folder) if record["valid"]]


SLOW = ("were late by", "the machine was too slow")
"""On a busy machine, links forward packets too late or miss some, and attempts are invalid with these reasons."""


def is_valid_or_slow(record: dict[str, Any]) -> bool:
    """Return whether an attempt is valid, or was only over links that a busy machine slowed down."""
    return record["valid"] or any(why in record["reason"] for why in SLOW)


def attempts_over_links(folder: Path) -> list[dict[str, Any]]:
    """Return the last attempts of a run, which are valid or slow: links did to all other packets what was asked."""
    last = last_attempts(folder)
    assert [record["reason"] for record in last if not is_valid_or_slow(record)] == []
    return last


def experiment(sweeps: str, **keys: object) -> str:
    """Return an experiment with one short repetition of these sweeps, and with other keys in place of those."""
    head = {"name": "test", "repetitions": 1, "duration_s": 1, "warmup_s": 0.2} | keys
    return "".join(f"{key}: {value}\n" for key, value in head.items()) + f"sweeps:\n{sweeps}"


def measured(
    k8sdds: Command, folder: Path, text: str, *args: str, timeout_s: float = 600
) -> list[dict[str, Any]]:
    """Run an experiment, given as text, into `out` of the folder; return the last attempts, which must all be valid."""
    done = _run(k8sdds, folder, text, *args, timeout_s=timeout_s)
    last = last_attempts(folder / "out")
    assert [record["reason"] for record in last if not record["valid"]] == [], done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    return last


def measured_over_links(k8sdds: Command, folder: Path, text: str, *args: str) -> list[dict[str, Any]]:
    """Run an experiment, given as text, into `out` of the folder; return its `attempts_over_links`."""
    _run(k8sdds, folder, text, *args)
    return attempts_over_links(folder / "out")


def _run(
    k8sdds: Command, folder: Path, text: str, *args: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    path = folder / "experiment.yaml"
    path.write_text(text)
    done = k8sdds("run", str(path), *args, "-o", str(folder / "out"), **options)
    assert (folder / "out").exists(), done.stderr
    return done
