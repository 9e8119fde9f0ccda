"""Read and write run folders, which hold the raw results of a campaign.

A campaign only appends to a run folder. docs/reference/run-folder.md documents its layout and every key.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import shlex
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.system import reading
from k8sdds.system.errors import InputError
from k8sdds.system.faults import explained
from k8sdds.system.files import append, require_new, require_room, write_atomically
from k8sdds.system.strict import MAX_TITLE
from k8sdds.system.yaml_text import nearest

SCHEMA = versions.RUN_FOLDER
"""Version of the records. `Metric.since` states which definitions of metrics changed with it."""
RUNS = Path("runs")
"""The folder in which campaigns create their run folders."""
LAST = "@last"
"""Name of the newest run folder in RUNS, wherever a run folder is named."""
CAMPAIGN = "campaign.json"
EXPERIMENT = "experiment.yaml"
QOS = "qos"
MIDDLEWARE_CONFIG = "middleware-config"
LINK_FILES = "link-files"
SCHEDULES = "schedules"
TRIALS = "trials.jsonl"
EVENTS = "events.jsonl"
READINGS = "readings.jsonl"
PLAN = "plan.jsonl"
CHECKSUM = "checksum"
"""Key of the last part of each line of TRIALS, which `checksum` computes from the others."""
_COPY = "restore it from a copy of the folder"
_CAMPAIGN_KEYS = {
    "campaign": str, "experiment": str, "started_at": str, "k8sdds_version": str, "baseline": str, "networks": dict,
    "trials": dict, "blocks": list, "testbed": dict | str, "command": list | str, "import": dict,
    "precision_percent": int | float,
}  # fmt: skip
"""Types of the keys of campaign.json that commands read. A key with a value of another type counts as missing."""

ROOM_BYTES = 1024 * 1024
"""Free space that an attempt requires. Its files usually have 10 to 300 KiB."""


def utc_now() -> str:
    """Return the current UTC time in ISO 8601 format with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def copy_of(folder: str, file: str, sha256: str) -> str:
    """Return the path of the copy of a user's file in a run folder, which depends on its content."""
    return f"{folder}/{sha256[:8]}/{Path(file).name}"


class RunFolder:
    """A run folder. Properties and methods read the files on each access; nothing is cached."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def create(
        cls, path: Path, campaign: dict[str, Any], experiment_yaml: str, files: dict[str, bytes] | None = None
    ) -> RunFolder:
        """Create a run folder, which must be empty or not exist, with the user's files by their path in it."""
        require_new(path)
        # campaign.json is written last, because a folder with campaign.json can be resumed.
        contents: dict[str, str | bytes] = {
            EXPERIMENT: experiment_yaml,
            **(files or {}),
            CAMPAIGN: json.dumps(campaign, indent=1, ensure_ascii=False) + "\n",
        }
        with explained(f"cannot write {path}", "use another --output"), _removing_on_failure(path):
            path.mkdir(parents=True, exist_ok=True)
            for name, content in contents.items():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path / name, content, durable=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Return an existing run folder; LAST is the newest one in RUNS. Raises InputError if there is none."""
        if str(path) == LAST:
            if newest := newest_first(RUNS):
                return newest[0]
            raise InputError(
                f"{LAST}: {RUNS}/ contains no run folder",
                "measure one: k8sdds run quickstart; or name a folder",
            )
        run = cls(path)
        if not run.path.is_dir():
            inside = RUNS / path
            known = [LAST] if str(path).startswith("@") else []
            meant = f" (did you mean {inside}?)" if inside.is_dir() else nearest(str(path), known)
            raise InputError(
                f"{run.path} is not a folder{meant}", "name a run folder, such as runs/TIME-EXPERIMENT"
            )
        if not (run.path / CAMPAIGN).is_file():
            raise InputError(f"{run.path} is not a run folder: it has no {CAMPAIGN}", "see: k8sdds runs")
        return run

    @property
    def campaign(self) -> dict[str, Any]:
        """The content of campaign.json, without values of the wrong type. Raises InputError for a newer schema."""
        path = self.path / CAMPAIGN
        data = reading.json_file(path, _COPY)
        schema = data.get("schema")
        if not isinstance(schema, int) or schema > SCHEMA:
            raise InputError(
                f"{path} has schema {schema!r}; this k8sdds reads up to {SCHEMA}", "update k8sdds"
            )
        wrong = {
            key for key, kind in _CAMPAIGN_KEYS.items() if key in data and not isinstance(data[key], kind)
        }
        campaign = {key: value for key, value in data.items() if key not in wrong}
        if "baseline" in campaign:
            # As the labels of the records, see `results.record.checked`.
            campaign["baseline"] = reading.one_line(campaign["baseline"], MAX_TITLE)
        return campaign

    def baseline(self, labels: Collection[str]) -> str | None:
        """Return the label of the baseline network: the recorded one, or `host` if it is one of the labels."""
        return self.campaign.get("baseline") or ("host" if "host" in labels else None)

    @property
    def started_at(self) -> str:
        """When the campaign started, in ISO 8601 format; when the folder was written if this was not recorded."""
        with suppress(InputError):
            if started := self.campaign.get("started_at"):
                return str(started)
        return datetime.fromtimestamp((self.path / CAMPAIGN).stat().st_mtime, UTC).isoformat()

    @property
    def reached(self) -> dict[str, Any] | None:
        """How the campaign accessed its testbed (`testbeds.selection`), or None if this was not recorded."""
        testbed = self.campaign.get("testbed")
        if not isinstance(testbed, dict):
            return None
        return self.facts.get("reached") or ({"testbed": "lab"} if testbed.get("name") == "lab" else None)

    def repeat_command(self, experiment: object, *options: str) -> str:
        """Return the command that measures the same trials in the same order, from the path of EXPERIMENT."""
        seed = self.campaign.get("seed")
        seeded = ["--seed", str(seed)] if isinstance(seed, int) else []
        return shlex.join(["k8sdds", "run", str(experiment), *options, *seeded])

    @property
    def facts(self) -> dict[str, Any]:
        """The facts about the testbed, as recorded at the start of the campaign."""
        testbed = self.campaign.get("testbed")
        facts = testbed.get("facts") if isinstance(testbed, dict) else None
        return facts if isinstance(facts, dict) else {}

    def attempts(self) -> list[dict[str, Any]]:
        """Return every attempt, in the order in which they ended.

        An attempt whose content was altered, or has a value that cannot be true, is invalid, and its reason names the
        line. Lines that are not complete JSON objects are ignored: a crash can leave an incomplete last line.
        """
        # Imported here, because many commands open a run folder, and the model of a record takes time to build.
        from k8sdds.results.record import checked

        attempts = []
        for number, attempt in _json_lines(self.path / TRIALS):
            # Earlier versions wrote no checksum.
            recorded = attempt.pop(CHECKSUM, None)
            altered = recorded is not None and recorded != checksum(attempt)
            why = "its content does not match its checksum" if altered else None
            attempts.append(checked(attempt, f"{TRIALS}:{number}", why))
        return attempts

    def unreadable_lines(self) -> list[int]:
        """Read trials.jsonl, and return the numbers of the lines that are not complete JSON objects."""
        return [number for number, line in _lines(self.path / TRIALS) if line is None]

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the campaign, each with `at` and `event`."""
        from k8sdds.results.readings import Event
        from k8sdds.system.shapes import fits

        return [event for _, event in _json_lines(self.path / EVENTS) if fits(Event, event)]

    def plan(self) -> Iterator[dict[str, Any]]:
        """Yield the plans of the campaign, first that of its start: `trials` by id, and `blocks` of ids."""
        yield self.campaign
        yield from (line for _, line in _json_lines(self.path / PLAN))

    @property
    def planned(self) -> dict[str, Any]:
        """All planned trials, by id."""
        found: dict[str, Any] = {}
        for plan in self.plan():
            value = plan.get("trials")
            for name, each in value.items() if isinstance(value, dict) else ():
                found.setdefault(name, each)
        return found

    @property
    def networks(self) -> dict[str, dict[str, Any]]:
        """Facts of the networks of all planned trials, by label. Of each fact, the first value counts."""
        found: dict[str, dict[str, Any]] = {}
        for plan in self.plan():
            networks = plan.get("networks")
            for label, facts in networks.items() if isinstance(networks, dict) else ():
                if isinstance(facts, dict):
                    found[label] = facts | found.get(label, {})
        return found

    def append_plan(
        self, trials: dict[str, Any], blocks: list[list[str]], networks: dict[str, dict[str, Any]]
    ) -> None:
        """Append trials that were planned while the campaign ran, and new facts of networks, and sync them to disk."""
        new = {"networks": networks} if networks else {}
        _append_line(self.path / PLAN, {"at": utc_now(), "trials": trials, "blocks": blocks} | new)

    def append_attempt(self, attempt: dict[str, Any]) -> None:
        """Append an attempt and sync it to disk."""
        self.append_attempts([attempt])

    def append_attempts(self, attempts: list[dict[str, Any]]) -> None:
        """Append several attempts at once, for example imported ones, and sync them to disk."""
        _append(self.path / TRIALS, b"".join(map(_attempt_line, attempts)))

    def append_event(self, event: str, **details: Any) -> None:
        """Append an event with the current time."""
        _append_line(self.path / EVENTS, {"at": utc_now(), "event": event, **details})

    def append_reading(self, reading: dict[str, Any]) -> None:
        """Append a reading of a node or of pods (docs/reference/run-folder.md)."""
        _append_line(self.path / READINGS, reading)

    def readings(self) -> list[dict[str, Any]]:
        """Return every reading, in chronological order."""
        from k8sdds.results.readings import Reading
        from k8sdds.system.shapes import fits

        return [line for _, line in _json_lines(self.path / READINGS) if fits(Reading, line)]

    def require_room(self) -> None:
        """Check that the files of an attempt can be written. Raises OSError."""
        require_room(self.path, ROOM_BYTES)

    def require_own_files(self) -> None:
        """Check that a campaign would write into this folder. Raises InputError for symbolic links."""
        raw = self.path / "raw"
        written = (*(self.path / name for name in (TRIALS, EVENTS, READINGS, PLAN)), raw)
        _refuse_links(itertools.chain(written, raw.iterdir() if raw.is_dir() else ()))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for one campaign. Raises InputError if another campaign holds the lock."""
        with open(self.path / CAMPAIGN, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"another campaign is writing to {self.path}", "wait until it ends"
                ) from None
            yield

    def raw(self, trial_id: str, attempt: int) -> Path:
        """Return the folder of an attempt's raw files, which may not exist."""
        return self.path / "raw" / trial_id / str(attempt)

    @property
    def derived(self) -> Path:
        """The folder of data derived from the raw data; created if missing."""
        return _created(self.path / "derived")

    @property
    def report(self) -> Path:
        """The folder of the report; created if missing."""
        return _created(self.path / "report")


def newest_first(folder: Path) -> list[RunFolder]:
    """Return the run folders in a folder, the newest first."""
    runs = (RunFolder(path.parent) for path in folder.glob(f"*/{CAMPAIGN}"))
    return sorted(runs, key=lambda run: run.started_at, reverse=True)


def without_copies(runs: Iterable[RunFolder]) -> list[RunFolder]:
    """Return one folder of each run: a copy, or a folder that is named twice, would count as another run.

    A campaign writes campaign.json once, so copies have the same. The folder with the largest trials.jsonl is kept,
    because a copy of an unfinished run does not have the attempts that followed. Of equal ones, the first is kept.
    """
    found: dict[bytes, RunFolder] = {}
    for run in runs:
        content = reading.data(run.path / CAMPAIGN, remedy=_COPY)
        found[content] = max(found.get(content, run), run, key=_trials_bytes)
    return list(found.values())


def _trials_bytes(run: RunFolder) -> int:
    path = run.path / TRIALS
    return path.stat().st_size if path.exists() else 0


def _created(path: Path) -> Path:
    """Create a folder if it is missing. Raises InputError for links, as in an archive that somebody else packed."""
    inside = (Path(parent, name) for parent, folders, files in os.walk(path) for name in (*folders, *files))
    _refuse_links(itertools.chain([path], inside))
    path.mkdir(parents=True, exist_ok=True)
    return path


def _refuse_links(paths: Iterable[Path]) -> None:
    link = next((path for path in paths if path.is_symlink()), None)
    if link is not None:
        raise InputError(
            f"{link} is a symbolic link, so that data would be written elsewhere", "remove the link"
        )


def _append_line(path: Path, data: dict[str, Any]) -> None:
    _append(path, _line(data))


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def checksum(attempt: dict[str, Any]) -> str:
    """Return a checksum of a record as it is read. The layout and the order of its keys do not matter."""
    text = json.dumps(attempt, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def _attempt_line(attempt: dict[str, Any]) -> bytes:
    content = reading.json_object(json.dumps(attempt, allow_nan=False), "attempt")
    return _line(content | {CHECKSUM: checksum(content)})


def _append(path: Path, lines: bytes) -> None:
    # After a crash the last line may be incomplete; the next line must not continue it.
    append(path, lines if _ends_with_line(path) else b"\n" + lines)


def _ends_with_line(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except FileNotFoundError:
        return True


@contextmanager
def _removing_on_failure(path: Path) -> Iterator[None]:
    """Remove a folder that did not exist before the `with` block, or what it contains, if the block fails."""
    existed = path.exists()
    try:
        yield
    except BaseException:
        for entry in path.iterdir() if path.is_dir() else ():
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
        if not existed:
            with suppress(OSError):
                path.rmdir()
        raise


def _json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    return ((number, line) for number, line in _lines(path) if line is not None)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    try:
        yield from reading.json_lines(path)
    except FileNotFoundError:
        return
