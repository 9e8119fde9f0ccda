"""Pack run folders into a reproducible archive without secrets.

The same content always gives the same bytes. The archive is written to a temporary file, which is renamed when it
is complete. Files are read, searched for secrets and compressed in parts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from k8sdds import __version__
from k8sdds import claims as claims_
from k8sdds.artifact import checksums, files, readme, ro_crate, zip_format
from k8sdds.artifact.contents import Description, PackedRun, environment_of, python_packages
from k8sdds.artifact.secrets import PART_BYTES, Search
from k8sdds.claims.judge import judge
from k8sdds.claims.model import Claims
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError
from k8sdds.system.faults import explained
from k8sdds.system.files import replacing
from k8sdds.system.reading import escaped

NAME = "artifact.json"
APPLICATION = "application.yaml"
SCHEMA = 1


@dataclass(frozen=True)
class PackedArtifact:
    """A written archive. `content_id`, for `verify --expect`, is the SHA-256 of its SHA256SUMS."""

    path: Path
    content_id: str
    files: int
    size_bytes: int
    left_out: list[tuple[str, str]]


def pack(folders: Sequence[Path], output: Path, description: Description | None = None) -> PackedArtifact:
    """Pack run folders into `output`, a ZIP file that must not exist."""
    description = description or Description()
    check_output(output)
    runs = [_packed_run(_opened(folder)) for folder in folders]
    names = [run.name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"several run folders have the name {name}", "rename one of them")
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            explained("cannot pack", "use another --output, and make the run folders readable")
        )
        for run in runs:
            stack.enter_context(run.folder.lock())
        unfinished = stack.enter_context(replacing(output))
        with unfinished.open("w+b") as file, contextlib.closing(zip_format.Writer(file)) as archive:
            content_id, count = _write(archive, runs, description)
            archive.finish()
    left_out = [(f"{run.name}/{path}", reason) for run in runs for path, reason in run.left_out]
    return PackedArtifact(output, content_id, count, output.stat().st_size, left_out)


def check_output(output: Path) -> None:
    """Check the name of an archive to write."""
    if output.suffix != ".zip":
        raise InputError(
            f"{output}: an artifact must be a ZIP file", "use an --output name that ends in .zip"
        )
    if output.exists():
        raise InputError(f"{output} already exists", "remove it, or use another --output")


def _opened(path: Path) -> RunFolder:
    folder = RunFolder.open(path)
    problem = zip_format.name_problem(folder.path.resolve().name)
    if problem:
        raise InputError(f"cannot pack {escaped(path)}: {problem}", "rename it")
    # Before the records are read, which a link or a file of any size could prevent.
    for name in files.RECORDS:
        file = folder.path / name
        reason = files.exclusion(name, file) if os.path.lexists(file) else None
        if reason:
            raise InputError(f"cannot pack {file}: {reason}", "pack a copy of the run folder without it")
    return folder


def _packed_run(folder: RunFolder) -> PackedRun:
    campaign = folder.campaign
    attempts = folder.attempts()
    events = folder.events()
    testbed = campaign.get("testbed")
    testbed = testbed.get("name") if isinstance(testbed, dict) else testbed
    valid = {str(attempt.get("trial_id")) for attempt in attempts if attempt.get("valid") is True}
    # Also those that a search planned while it ran.
    trials = len(folder.planned) or len({str(attempt.get("trial_id")) for attempt in attempts})
    command = campaign.get("command")
    times = sorted(str(event["at"]) for event in events if event.get("at"))
    times += sorted(str(attempt["started_at"]) for attempt in attempts[-1:] if attempt.get("started_at"))
    wall_s = sum(a["wall_s"] for a in attempts if isinstance(a.get("wall_s"), int | float))
    return PackedRun(
        folder=folder,
        name=folder.path.resolve().name,
        campaign=str(campaign.get("campaign") or folder.path.resolve().name),
        experiment=str(campaign.get("experiment") or "not recorded"),
        command=shlex.join(map(str, command)) if isinstance(command, list) else str(command or ""),
        version=str(campaign.get("k8sdds_version") or "not recorded"),
        perftest=" ".join(str(folder.facts.get("perftest") or "").split()),
        testbed=str(testbed or "not recorded"),
        started_at=campaign.get("started_at"),
        ended_at=max(times, default=campaign.get("started_at")),
        complete=bool(trials) and len(valid) >= trials,
        trials=trials,
        valid=len(valid),
        minutes=wall_s / 60,
    )


def _write(archive: zip_format.Writer, runs: list[PackedRun], description: Description) -> tuple[str, int]:
    """Write all files, SHA256SUMS last; return the checksum of SHA256SUMS and the number of other files."""
    packed: dict[str, str] = {}
    own: dict[str, str] = {}
    """What the files are that describe the runs, by path."""

    def add(path: str, content: bytes, purpose: str) -> str:
        packed[path], _ = archive.add(path, [content])
        own[path] = purpose
        return packed[path]

    claims = claims_.load(description.claims)
    for run in runs:
        # The RO-Crate metadata describes this folder as a whole, so validators look for its entry.
        archive.folder(f"runs/{run.name}/raw/")
        _add_run(archive, run)
        packed.update({f"runs/{run.name}/{path}": digest for path, digest in run.sums.items()})
        for path, content in _tables(run.folder):
            purpose = f"expected output of `k8sdds report` for runs/{run.name}"
            add(f"expected/{run.name}/{path}", content, purpose)
            run.tables.append(path)
        for path, content in _recommendation(run):
            purpose = f"recommendation of `k8sdds recommend` from runs/{run.name}"
            add(f"recommendations/{run.name}/{path}", content, purpose)
            run.recommendation.append(path)
        machine = environment_of(run.folder).encode()
        add(f"locks/{run.name}.json", machine, f"machine and versions of {run.campaign}")
    judged = verdicts(runs, claims)
    packages = "versions of the Python packages that packed the artifact"
    add("locks/python.txt", python_packages().encode(), packages)
    claimed = claims_.CLAIMS.read(description.claims)[1].encode()
    add("claims/claims.yaml", claimed, "the claims that are judged by the runs")
    add("expected/claims.json", _json(judged), "expected output of `k8sdds claims` for the runs")
    summarized = _json({**summary(runs, description), "claims": judged})
    add(NAME, summarized, "the same in machine-readable form: campaigns, commands, minutes, disk space")
    guide = readme.text(runs, description, claims, judged).encode()
    add("README.md", guide, "what this artifact contains, and how to evaluate it for each badge")
    newest = max((run.ended_at or run.started_at or "" for run in runs), default="")
    crate = ro_crate.metadata(description, runs, own, _day(newest)).encode()
    add(ro_crate.NAME, crate, "this description")
    content_id = add(checksums.NAME, checksums.write(packed).encode(), "checksums of all other files")
    return content_id, len(packed)


def _add_run(archive: zip_format.Writer, run: PackedRun) -> None:
    """Add every file of a run folder that may be published; record the others in the run."""
    for path in files.walk(run.folder.path, files.DERIVED):
        file = run.folder.path / path
        reason = files.exclusion(path, file) or _add_file(archive, run, path, file)
        if reason and path in files.RECORDS:
            raise InputError(
                f"{file} {reason.removeprefix('it ')}",
                "copy the run folder, remove the secret from the copy, and pack the copy",
            )
        if reason:
            run.left_out.append((escaped(path), reason))


class _LeftOut(Exception):
    """The file that is being added must not be published. The message contains the reason."""


def _add_file(archive: zip_format.Writer, run: PackedRun, path: str, file: Path) -> str | None:
    """Add a file of a run folder; return why it was not added, or None."""

    def searched() -> Iterator[bytes]:
        search = Search()
        with file.open("rb") as source:
            while part := source.read(PART_BYTES):
                if reason := search.reason(part):
                    raise _LeftOut(reason)
                yield part

    try:
        run.sums[path], size_bytes = archive.add(f"runs/{run.name}/{path}", searched())
    except _LeftOut as left_out:
        return str(left_out)
    run.size_bytes += size_bytes
    return None


def _tables(folder: RunFolder) -> list[tuple[str, bytes]]:
    """Return the CSV tables of the report, derived from the raw data."""
    from k8sdds.report import content, csv_tables

    return sorted((name, text.encode()) for name, text in csv_tables.texts(content.read(folder)).items())


def _recommendation(run: PackedRun) -> list[tuple[str, bytes]]:
    """Return the application, and the page, tables and files of its recommendation; empty if it measured none.

    The files are those of `k8sdds recommend application.yaml --from runs/NAME --output FOLDER`.
    """
    from k8sdds.recommend import evidence, files, results
    from k8sdds.recommend.answer import answer
    from k8sdds.system import yaml_text

    experiment = evidence.own_application(run.folder)
    if experiment is None:
        return []
    found = replace(evidence.of_own_run(run.folder, experiment), folders=(f"runs/{run.name}",))
    result = answer(found)
    with tempfile.TemporaryDirectory(prefix="k8sdds-artifact-") as temporary:
        folder = Path(temporary)
        results.write(result, folder)
        files.write(result, folder / files.FOLDER)
        application = experiment.application.model_dump(mode="json", exclude_none=True)
        (folder / APPLICATION).write_text(yaml_text.dump(application), encoding="utf-8")
        written = sorted(path for path in folder.rglob("*") if path.is_file())
        return [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in written]


def verdicts(runs: list[PackedRun], claims: Claims) -> list[dict[str, Any]]:
    """Return every claim with its verdict, and the command, time and disk space that measure it."""
    # The disk space of a claim's experiment is estimated from these campaigns' bytes per minute.
    minutes = sum(run.minutes for run in runs)
    per_minute = sum(run.size_bytes for run in runs if run.minutes) / minutes if minutes else None
    # A claims file that is not installed with k8sdds is read from the artifact's copy.
    option = "" if claims.name == claims_.PAPER else " --claims claims/claims.yaml"
    return [
        {
            "id": result.claim.id, "claim": result.claim.claim, "paper": result.claim.paper,
            "verdict": result.verdict, "reason": result.reason,
            "command": f"k8sdds reproduce {result.claim.id}{option}"
            if result.claim.lab != "no" and result.claim.experiment else None,
            "minutes": result.claim.minutes,
            "disk_bytes": round(result.claim.minutes * per_minute) if per_minute else None,
        }
        for result in judge(claims, [run.folder for run in runs])
    ]  # fmt: skip


def summary(runs: list[PackedRun], description: Description) -> dict[str, Any]:
    """Return the content of artifact.json, which docs/how-to/publish.md describes."""
    return {
        "schema": SCHEMA,
        "title": description.title,
        "license": description.license,
        "authors": list(description.authors),
        "k8sdds_version": __version__,
        "runs": [
            {
                "folder": f"runs/{run.name}", "campaign": run.campaign, "experiment": run.experiment,
                "testbed": run.testbed, "command": run.command, "k8sdds_version": run.version,
                "started_at": run.started_at, "trials": run.trials, "valid_trials": run.valid,
                "minutes": round(run.minutes, 1), "disk_bytes": run.size_bytes, "files": len(run.sums),
                "expected_tables": run.tables, "recommendation": run.recommendation,
                "left_out": [{"path": path, "reason": reason} for path, reason in run.left_out],
            }
            for run in runs
        ],
    }  # fmt: skip


def _json(data: Any) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()


def _day(at: str) -> str:
    try:
        return datetime.fromisoformat(at).date().isoformat()
    except ValueError:
        return "1980-01-01"
