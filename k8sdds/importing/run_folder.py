"""Write the imported run folder: an unchanged copy of every file, every trial, and an account of both."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from k8sdds import __version__
from k8sdds.importing import files
from k8sdds.importing.files import Source
from k8sdds.importing.records import TESTBED, Imported
from k8sdds.model.reason import Reason
from k8sdds.results.run_folder import SCHEMA, RunFolder, utc_now
from k8sdds.system.faults import explained
from k8sdds.system.files import creating_folder
from k8sdds.system.reading import escaped

ACCOUNT = "import.json"


def account(sources: list[Source], trials: list[Imported]) -> dict[str, Any]:
    """Return the numbers of files by kind, trials, invalid trials by reason code, and files not understood."""
    invalid = [trial for trial in trials if not trial.record.valid]
    return {
        "files": len(sources),
        "bytes": sum(source.size for source in sources),
        "by_kind": dict(Counter(source.kind for source in sources)),
        "trials": len(trials),
        "valid": len(trials) - len(invalid),
        "invalid": dict(Counter(Reason.read(trial.record.reason).code for trial in invalid)),
        "not_understood": sum(source.kind in (files.OTHER, files.UNREADABLE) for source in sources),
        "skipped": sum(source.kind == files.SKIPPED for source in sources),
    }


def write(
    output: Path, source: Path, sources: list[Source], trials: list[Imported], layout: str, baseline: str,
    copies: list[str], command: list[str],
) -> RunFolder:  # fmt: skip
    """Write the run folder atomically and return it."""
    output = output.absolute()
    with explained(f"cannot write {output}", "use another --output folder"):
        output.parent.mkdir(parents=True, exist_ok=True)
        with creating_folder(output) as unfinished:
            campaign = _campaign(output, source, sources, trials, layout, baseline, command)
            run = RunFolder.create(unfinished, campaign, _experiment(source, trials))
            run.append_event("import-start", source=escaped(source))
            _raw(run, sources, trials)
            run.append_attempts([trial.record.as_json() for trial in trials])
            account_of_files = _account_of_files(source, sources, trials, copies)
            (unfinished / ACCOUNT).write_text(
                json.dumps(account_of_files, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
            run.append_event("import-end", trials=len(trials))
    return RunFolder(output)


def _campaign(
    output: Path, source: Path, sources: list[Source], trials: list[Imported], layout: str, baseline: str,
    command: list[str],
) -> dict[str, Any]:  # fmt: skip
    labels = list(dict.fromkeys(trial.record.network_label for trial in trials))
    return {
        "schema": SCHEMA,
        "campaign": escaped(output.name),
        "k8sdds_version": __version__,
        "started_at": utc_now(),
        "experiment": escaped(source.resolve().name),
        "command": [escaped(word) for word in command],
        "seed": None,
        "testbed": {"name": TESTBED, "facts": {}},
        "baseline": baseline if baseline in labels else None,
        "repetitions": max(trial.record.repetition or 0 for trial in trials) + 1,
        "blocks": [],
        "trials": {},
        "networks": {label: {} for label in labels},
        "import": {"source": escaped(source), "layout": layout, **account(sources, trials)},
    }


def _experiment(source: Path, trials: list[Imported]) -> str:
    """Return the text of experiment.yaml, which for imported trials contains only their source."""
    return (
        f"# Imported by k8sdds {__version__}: {len(trials)} trials.\n"
        f"# trials.jsonl describes each trial, {ACCOUNT} accounts for each file.\n"
        f"imported: {json.dumps(escaped(source.resolve().name))}\n"
    )


def _raw(run: RunFolder, sources: list[Source], trials: list[Imported]) -> None:
    for trial in trials:
        trial_id = str(trial.record.trial_id)
        folder = run.raw(trial_id, trial.record.attempt or 1)
        for participant, log in trial.bundle.logs.items():
            _copy(log, folder / participant / log.path.name, f"{trial_id} {participant}")
        if trial.bundle.table:
            trial.bundle.table.used.append(trial_id)
        for metrics in trial.bundle.metrics:
            _copy(metrics, folder / metrics.path.name, f"{trial_id} metrics")
    for other in sources:
        # Tables, and files that no trial uses, are kept, unless they were not read.
        if other.data is not None and (other.kind == files.TABLE or not other.used):
            _copy(other, run.path / "raw" / "other" / other.path, "other")


def _copy(source: Source, target: Path, use: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.data or b"")
    source.used.append(use)


def _account_of_files(
    source: Path, sources: list[Source], trials: list[Imported], copies: list[str]
) -> dict[str, Any]:
    return {
        "schema": 1,
        "source": escaped(source),
        "summary": account(sources, trials),
        "copies": copies,
        "files": [
            {
                "path": str(file.path), "bytes": file.size, "sha256": file.sha256, "kind": file.kind,
                "used": file.used, "why": file.why or None,
            }
            for file in sources
        ],
    }  # fmt: skip
