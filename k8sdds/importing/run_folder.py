"""Write the imported run folder: an unchanged copy of every file, every trial, and an account of both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Import:
    """The result of an import."""

    run: RunFolder
    source: Path
    """The folder or file that was read."""
    layout: str
    sources: list[Source]
    trials: list[Imported]
    copies: list[str]
    """A message for each trial that is a copy of another trial."""

    @property
    def account(self) -> dict[str, Any]:
        """The numbers of files by kind, trials, invalid trials by reason code, and files not understood."""
        sources, invalid = self.sources, [trial for trial in self.trials if not trial.record.valid]
        return {
            "files": len(sources),
            "bytes": sum(source.size for source in sources),
            "by_kind": dict(Counter(source.kind for source in sources)),
            "trials": len(self.trials),
            "valid": len(self.trials) - len(invalid),
            "invalid": dict(Counter(Reason.read(trial.record.reason).code for trial in invalid)),
            "not_understood": sum(source.kind in (files.OTHER, files.UNREADABLE) for source in sources),
            "skipped": sum(source.kind == files.SKIPPED for source in sources),
        }


def write(done: Import, baseline: str, command: Sequence[str]) -> None:
    """Write the run folder atomically."""
    output = done.run.path
    with explained(f"cannot write {output}", "use another --output folder"):
        output.parent.mkdir(parents=True, exist_ok=True)
        with creating_folder(output) as unfinished:
            run = RunFolder.create(unfinished, _campaign(done, baseline, command), _experiment(done))
            run.append_event("import-start", source=escaped(done.source))
            _raw(run, done)
            run.append_attempts([trial.record.as_json() for trial in done.trials])
            account_of_files = json.dumps(_account_of_files(done), indent=1, ensure_ascii=False)
            (unfinished / ACCOUNT).write_text(account_of_files + "\n", encoding="utf-8")
            run.append_event("import-end", trials=len(done.trials))


def _campaign(done: Import, baseline: str, command: Sequence[str]) -> dict[str, Any]:
    labels = list(dict.fromkeys(trial.record.network_label for trial in done.trials))
    return {
        "schema": SCHEMA,
        "campaign": escaped(done.run.path.name),
        "k8sdds_version": __version__,
        "started_at": utc_now(),
        "experiment": escaped(done.source.resolve().name),
        "command": [escaped(word) for word in command],
        "seed": None,
        "testbed": {"name": TESTBED, "facts": {}},
        "baseline": baseline if baseline in labels else None,
        "repetitions": max(trial.record.repetition or 0 for trial in done.trials) + 1,
        "blocks": [],
        "trials": {},
        "networks": {label: {} for label in labels},
        "import": {"source": escaped(done.source), "layout": done.layout, **done.account},
    }


def _experiment(done: Import) -> str:
    """Return the text of experiment.yaml, which for imported trials contains only their source."""
    return (
        f"# Imported by k8sdds {__version__}: {len(done.trials)} trials.\n"
        f"# trials.jsonl describes each trial, {ACCOUNT} accounts for each file.\n"
        f"imported: {json.dumps(escaped(done.source.resolve().name))}\n"
    )


def _raw(run: RunFolder, done: Import) -> None:
    for trial in done.trials:
        trial_id = str(trial.record.trial_id)
        folder = run.raw(trial_id, trial.record.attempt or 1)
        for participant, log in trial.bundle.logs.items():
            _copy(log, folder / participant / log.path.name, f"{trial_id} {participant}")
        if trial.bundle.table:
            trial.bundle.table.used.append(trial_id)
        for metrics in trial.bundle.metrics:
            _copy(metrics, folder / metrics.path.name, f"{trial_id} metrics")
    for other in done.sources:
        # Tables, and files that no trial uses, are kept, unless they were not read.
        if other.data is not None and (other.kind == files.TABLE or not other.used):
            _copy(other, run.path / "raw" / "other" / other.path, "other")


def _copy(source: Source, target: Path, use: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.data or b"")
    source.used.append(use)


def _account_of_files(done: Import) -> dict[str, Any]:
    return {
        "schema": 1,
        "source": escaped(done.source),
        "summary": done.account,
        "copies": done.copies,
        "files": [
            {
                "path": str(file.path), "bytes": file.size, "sha256": file.sha256, "kind": file.kind,
                "used": file.used, "why": file.why or None,
            }
            for file in done.sources
        ],
    }  # fmt: skip
