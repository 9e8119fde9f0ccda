"""The run folder: written append-only by a campaign, read by everything that comes after.

Its layout and every key are documented in docs/results.md.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from k8sdds.system.errors import InputError
from k8sdds.system.files import write_atomically

SCHEMA = 1
CAMPAIGN = "campaign.json"
EXPERIMENT = "experiment.yaml"
QOS = "qos"
TRIALS = "trials.jsonl"
EVENTS = "events.jsonl"
READINGS = "readings.jsonl"


def utc_now() -> str:
    """Now as a UTC ISO 8601 time with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunFolder:
    """One run folder. Opening reads nothing; each property reads what it names."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def create(
        cls, path: Path, campaign: dict[str, Any], experiment_yaml: str, qos: dict[str, str] | None = None
    ) -> RunFolder:
        """Make a new run folder; an existing one with a campaign in it is an error.

        `qos`: the QoS profiles that its trials use, file name to text.
        """
        qos = qos or {}
        if (path / CAMPAIGN).exists():
            raise InputError(
                f"{path} holds a campaign already",
                f"continue it with: k8sdds run --resume {path}, or give another --output",
            )
        if path.exists() and any(path.iterdir()):
            raise InputError(f"{path} is not empty", "give an --output folder that does not exist")
        try:
            path.mkdir(parents=True, exist_ok=True)
            write_atomically(path / EXPERIMENT, experiment_yaml, durable=True)
            for name, text in qos.items():
                (path / QOS).mkdir(exist_ok=True)
                write_atomically(path / QOS / name, text, durable=True)
            # Last, because a folder with campaign.json is one that can be resumed.
            text = json.dumps(campaign, indent=1, ensure_ascii=False) + "\n"
            write_atomically(path / CAMPAIGN, text, durable=True)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}", "give another --output") from error
        return cls(path)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """An existing run folder; anything else is an InputError that says what is missing."""
        run = cls(path)
        if not run.path.is_dir():
            raise InputError(f"{run.path} is not a folder", "name a run folder, such as runs/TIME-EXPERIMENT")
        if not (run.path / CAMPAIGN).is_file():
            raise InputError(f"{run.path} is not a run folder: it has no {CAMPAIGN}", "see: ls runs/")
        return run

    @property
    def campaign(self) -> dict[str, Any]:
        """campaign.json, as docs/results.md describes it."""
        path = self.path / CAMPAIGN
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise InputError(
                f"{path} cannot be read: {error}", "restore it from a copy of the folder"
            ) from error
        schema = data.get("schema") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(schema, int) or schema > SCHEMA:
            raise InputError(
                f"{path} has schema {schema!r}; this k8sdds reads up to {SCHEMA}", "update k8sdds"
            )
        return data

    @property
    def reached(self) -> dict[str, Any] | None:
        """How its testbed was reached, as testbeds.current writes it; None where that is not recorded."""
        testbed = self.campaign.get("testbed")
        if not isinstance(testbed, dict):
            return None
        facts = testbed.get("facts")
        known = facts.get("reached") if isinstance(facts, dict) else None
        return known or ({"testbed": "lab"} if testbed.get("name") == "lab" else None)

    def attempts(self) -> list[dict[str, Any]]:
        """Every attempt in the order of its end. Lines that are not whole JSON objects are ignored:
        only a torn last line can occur, after a crash."""
        return list(_json_lines(self.path / TRIALS))

    def events(self) -> list[dict[str, Any]]:
        """What happened around the trials, each with `at` and `event`."""
        return list(_json_lines(self.path / EVENTS))

    def append_attempt(self, attempt: dict[str, Any]) -> None:
        """Add one attempt; on return it is on the disk."""
        _append_line(self.path / TRIALS, attempt)

    def append_attempts(self, attempts: list[dict[str, Any]]) -> None:
        """Add many attempts that are known already, such as imported ones; then they are on the disk."""
        _append(self.path / TRIALS, b"".join(_line(attempt) for attempt in attempts))

    def append_event(self, event: str, **details: Any) -> None:
        """Add one event, stamped with the time."""
        _append_line(self.path / EVENTS, {"at": utc_now(), "event": event, **details})

    def append_reading(self, reading: dict[str, Any]) -> None:
        """Add what a node's meters said at one moment (docs/results.md)."""
        _append_line(self.path / READINGS, reading)

    def readings(self) -> list[dict[str, Any]]:
        """Every reading of the nodes' meters, in the order of time."""
        return list(_json_lines(self.path / READINGS))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other campaigns out of this folder meanwhile; a second one is an InputError."""
        with open(self.path / CAMPAIGN, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(f"a campaign is writing to {self.path} now", "wait for its end") from None
            yield

    def raw(self, trial_id: str, attempt: int) -> Path:
        """The folder of one attempt's raw files; it may not exist yet."""
        return self.path / "raw" / trial_id / str(attempt)

    @property
    def derived(self) -> Path:
        """Folder of what can be made again from the raw data; made when missing."""
        return _made(self.path / "derived")

    @property
    def report(self) -> Path:
        """Folder of the report; made when missing."""
        return _made(self.path / "report")


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _append_line(path: Path, data: dict[str, Any]) -> None:
    _append(path, _line(data))


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _append(path: Path, lines: bytes) -> None:
    with open(path, "a+b") as file:
        # After a crash the last line may lack its end; a fresh line must not be glued to it.
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                lines = b"\n" + lines
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", "make it readable") from error
    for line in text.split(b"\n"):
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict):
            yield data
