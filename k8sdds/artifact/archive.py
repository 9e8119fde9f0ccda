"""Run folders into one archive: the same bytes for the same content, and never a secret.

The archive is written file by file beside its name and renamed when it is whole.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from k8sdds import __version__
from k8sdds import claims as claims_
from k8sdds.artifact import checksums, environment, files, readme, ro_crate
from k8sdds.claims.judge import judge
from k8sdds.claims.model import Claims
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError
from k8sdds.system.files import replacing

NAME = "artifact.json"
SCHEMA = 1
MADE_AT = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: the earliest that a ZIP file can hold."""
MODE = 0o100644 << 16
FOLDER_MODE = 0o40755 << 16 | 0x10
LEVEL = 6


@dataclass(frozen=True)
class Description:
    """What the packer says of the artifact."""

    title: str = "Results of k8sdds"
    licence: str | None = None
    """An identifier of the SPDX list, such as CC-BY-4.0."""
    authors: tuple[str, ...] = ()
    claims: str = claims_.PAPER
    """The claims that the runs are judged by: installed ones by name, or a YAML file."""


@dataclass
class Run:
    """One run folder, as the artifact's documents tell it."""

    folder: RunFolder
    name: str
    campaign: str
    experiment: str
    command: str
    version: str
    perftest: str
    testbed: str
    started_at: str | None
    ended_at: str | None
    complete: bool
    trials: int
    valid: int
    minutes: float
    sums: dict[str, str] = field(default_factory=dict)
    """Path within the run folder to checksum, of what was packed."""
    size_bytes: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Paths that were not packed, and why."""
    tables: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Packed:
    """A written archive. `content_id` is the SHA-256 of its SHA256SUMS: what `verify --expect` takes."""

    path: Path
    content_id: str
    files: int
    size_bytes: int
    left_out: list[tuple[str, str]]


def pack(folders: Sequence[Path], output: Path, description: Description | None = None) -> Packed:
    """Pack run folders into `output`, a ZIP file that must not exist.

    Raises InputError where a folder is no run folder, is written to now, holds a secret in its records, or
    where two have the same name; nothing is left behind then.
    """
    description = description or Description()
    if output.suffix != ".zip":
        raise InputError(f"{output}: an artifact is a ZIP file", "give --output a name that ends in .zip")
    if output.exists():
        raise InputError(f"{output} exists already", "remove it, or give another --output")
    runs = [_described(RunFolder.open(folder)) for folder in folders]
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two run folders are called {name}", "give one of them another name")
    try:
        with contextlib.ExitStack() as stack:
            for run in runs:
                stack.enter_context(run.folder.lock())
            unfinished = stack.enter_context(replacing(output))
            with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
                content_id, count = _write(archive, runs, description)
    except OSError as error:
        place = str(error.filename or output)
        ours = place.startswith(str(output))
        raise InputError(
            f"cannot pack: {place}: {error.strerror or error}",
            "give another --output" if ours else "make the run folders readable",
        ) from error
    left_out = [(f"{run.name}/{path}", why) for run in runs for path, why in run.left_out]
    return Packed(output, content_id, count, output.stat().st_size, left_out)


def _described(folder: RunFolder) -> Run:
    campaign = folder.campaign
    attempts = folder.attempts()
    events = folder.events()
    testbed = campaign.get("testbed")
    testbed = testbed if isinstance(testbed, dict) else {"name": testbed}
    facts = testbed.get("facts") if isinstance(testbed.get("facts"), dict) else {}
    planned = campaign.get("trials")
    valid = {attempt.get("trial_id") for attempt in attempts if attempt.get("valid") is True}
    trials = len(planned) if isinstance(planned, dict) else len({a.get("trial_id") for a in attempts})
    command = campaign.get("command")
    at = sorted(str(event["at"]) for event in events if event.get("at"))
    at += sorted(str(attempt["started_at"]) for attempt in attempts[-1:] if attempt.get("started_at"))
    wall_s = sum(a["wall_s"] for a in attempts if isinstance(a.get("wall_s"), int | float))
    return Run(
        folder=folder,
        name=folder.path.resolve().name,
        campaign=str(campaign.get("campaign") or folder.path.resolve().name),
        experiment=str(campaign.get("experiment") or "not recorded"),
        command=shlex.join(map(str, command)) if isinstance(command, list) else str(command or ""),
        version=str(campaign.get("k8sdds_version") or "not recorded"),
        perftest=" ".join(str(facts.get("perftest") or "").split()),
        testbed=str(testbed.get("name") or "not recorded"),
        started_at=campaign.get("started_at"),
        ended_at=max(at, default=campaign.get("started_at")),
        complete=bool(trials) and len(valid) >= trials,
        trials=trials,
        valid=len(valid),
        minutes=wall_s / 60,
    )


def _write(archive: zipfile.ZipFile, runs: list[Run], description: Description) -> tuple[str, int]:
    """Everything but SHA256SUMS, then SHA256SUMS; gives its checksum and the number of files."""
    packed: dict[str, str] = {}

    def add(path: str, content: bytes) -> str:
        info = zipfile.ZipInfo(path, MADE_AT)
        info.create_system = 3
        info.external_attr = MODE
        archive.writestr(info, content, zipfile.ZIP_DEFLATED, LEVEL)
        packed[path] = checksums.digest(content)
        return packed[path]

    claims = claims_.load(description.claims)
    judged = verdicts(runs, claims)
    for run in runs:
        # The metadata describes this folder as a whole, so readers of RO-Crates look for its entry.
        raw = zipfile.ZipInfo(f"runs/{run.name}/raw/", MADE_AT)
        raw.create_system = 3
        raw.external_attr = FOLDER_MODE
        archive.writestr(raw, b"")
        for path, content in _contents(run):
            run.sums[path] = add(f"runs/{run.name}/{path}", content)
            run.size_bytes += len(content)
        for path, content in _tables(run.folder):
            add(f"expected/{run.name}/{path}", content)
            run.tables.append(path)
        add(f"locks/{run.name}.json", environment.of_run(run.folder).encode())
    add("locks/python.txt", environment.of_python().encode())
    add("claims/claims.yaml", claims_.read(description.claims).encode())
    add("expected/claims.json", _json(judged).encode())
    add(NAME, _json({**summary(runs, description), "claims": judged}).encode())
    add("README.md", readme.text(runs, description, claims, judged).encode())
    own = {
        "README.md": "what this artifact is, and how to check it, badge by badge",
        NAME: "the same for programs: campaigns, commands, minutes, disk",
        "claims/claims.yaml": "the claims that the runs are judged by, as data",
        "expected/claims.json": "what `k8sdds claims` must find in the runs",
        "locks/python.txt": "the Python packages that packed it, with their versions",
        **{f"locks/{run.name}.json": f"machine and versions of {run.campaign}" for run in runs},
        **{
            f"expected/{run.name}/{path}": f"what `k8sdds report` must find in runs/{run.name}"
            for run in runs
            for path in run.tables
        },
    }
    newest = max((run.ended_at or run.started_at or "" for run in runs), default="")
    published = _day(newest)
    add(ro_crate.NAME, ro_crate.metadata(description, runs, own, published).encode())
    content_id = add(checksums.NAME, checksums.write(packed).encode())
    return content_id, len(packed)


def _contents(run: Run) -> Iterator[tuple[str, bytes]]:
    """(path, content) of every file that is packed; what is left out is noted in the run."""
    for path, file, why in files.listed(run.folder.path):
        content = b"" if why else file.read_bytes()
        secret = None if why else files.secret_in(content)
        if secret and path in files.RECORDS:
            raise InputError(
                f"{file} holds {secret}", "take it out of a copy of the folder, and pack the copy"
            )
        if why or secret:
            run.left_out.append((path, why or f"it holds {secret}"))
        else:
            yield path, content


def _tables(folder: RunFolder) -> list[tuple[str, bytes]]:
    """The CSV tables of the report, made now from the raw data."""
    from k8sdds.report import content, csv_tables

    with tempfile.TemporaryDirectory(prefix="k8sdds-artifact-") as place:
        written = csv_tables.write(content.read(folder), Path(place))
        return sorted((path.name, path.read_bytes()) for path in written)


def verdicts(runs: list[Run], claims: Claims) -> list[dict[str, Any]]:
    """Every claim with what the runs together say of it, and what it takes to measure it."""
    # Bytes that a minute of such a campaign leaves, for an estimate of what a claim's own will.
    spent = [(run.minutes, sum(f.stat().st_size for _, f, why in files.listed(run.folder.path) if not why))
             for run in runs if run.minutes]  # fmt: skip
    # Claims that k8sdds does not ship are taken from the artifact's own copy.
    option = "" if claims.name == claims_.PAPER else " --claims claims/claims.yaml"
    per_minute = sum(size for _, size in spent) / sum(minutes for minutes, _ in spent) if spent else None
    return [
        {
            "id": one.claim.id, "claim": one.claim.claim, "paper": one.claim.paper, "verdict": one.verdict,
            "reason": one.reason,
            "command": f"k8sdds reproduce {one.claim.id}{option}"
            if one.claim.lab != "no" and one.claim.experiment else None,
            "minutes": one.claim.minutes,
            "disk_bytes": round(one.claim.minutes * per_minute) if per_minute else None,
        }
        for one in judge(claims, [run.folder for run in runs])
    ]  # fmt: skip


def summary(runs: list[Run], description: Description) -> dict[str, Any]:
    """artifact.json as data, described in docs/reproduce.md."""
    return {
        "schema": SCHEMA,
        "title": description.title,
        "licence": description.licence,
        "authors": list(description.authors),
        "k8sdds_version": __version__,
        "runs": [
            {
                "folder": f"runs/{run.name}", "campaign": run.campaign, "experiment": run.experiment,
                "testbed": run.testbed, "command": run.command, "k8sdds_version": run.version,
                "started_at": run.started_at, "trials": run.trials, "valid_trials": run.valid,
                "minutes": round(run.minutes, 1), "disk_bytes": run.size_bytes, "files": len(run.sums),
                "expected_tables": run.tables,
                "left_out": [{"path": path, "reason": why} for path, why in run.left_out],
            }
            for run in runs
        ],
    }  # fmt: skip


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _day(at: str) -> str:
    try:
        return datetime.fromisoformat(at).date().isoformat()
    except ValueError:
        return "1980-01-01"
