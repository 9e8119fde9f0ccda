"""Published data of others become a run folder: read, judged, accounted for, and analysed like our own.

gather    files, told apart by what is in them, and gathered into trials
layouts   what names of folders and files suggest
mapping   what the user adds (`--map`)
records   the logs of a trial -> its record, and whether it is valid
copies    repetitions that are copies of other runs
top       `metrics.csv` of kubectl top
writing   the run folder, and the account of every file
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from k8sdds.importing import duplicates, files, layouts, path_hints, records, run_folder
from k8sdds.importing.files import Source
from k8sdds.importing.records import Imported
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError


@dataclass(frozen=True)
class Import:
    """What came of an import."""

    run: RunFolder
    layout: str
    sources: list[Source]
    trials: list[Imported]
    copies: list[str]
    """A sentence for each repetition that is a copy."""

    @property
    def account(self) -> dict[str, Any]:
        """The counts of the summary: nothing is dropped in silence."""
        return run_folder.account(self.sources, self.trials)


def import_folder(
    source: Path,
    output: Path,
    layout: str = layouts.AUTO,
    maps: Sequence[str] = (),
    skip: Sequence[str] = (),
    baseline: str = "host",
    command: Sequence[str] = (),
) -> Import:
    """Read the logs below `source` into a new run folder `output`.

    Raises InputError for arguments that cannot be meant, and where not one log is found; a bad file never
    stops an import. `output` exists whole or not at all.
    """
    rules = path_hints.rules(maps)
    if layout not in layouts.LAYOUTS:
        raise InputError(f"there is no layout {layout!r}", f"layouts: {', '.join(layouts.LAYOUTS)}")
    if not source.exists():
        raise InputError(f"{source} does not exist", "name a folder with logs of RTI PerfTest")
    run_folder.refuse(output)
    found = files.sources(source, skip, leave_out=output)
    if layout == layouts.AUTO:
        layout = layouts.detect([one.path for one in found if one.kind == files.LOG])
    trials = [
        trial
        for bundle in files.bundles(found, layout)
        for trial in records.records(bundle, _hints(bundle, found, layout, rules), layout)
    ]
    if not trials:
        kinds = Counter(one.kind for one in found)
        raise InputError(
            f"{source} holds no log of RTI PerfTest (files looked at: {sum(kinds.values())})",
            "name the folder that the logs lie below",
        )
    _number_repetitions(trials, layout)
    said = duplicates.mark(trials)
    _unique(trials)
    run = run_folder.write(output, source, found, trials, layout, baseline, said, [*command])
    return Import(run, layout, found, trials, said)


def _hints(
    bundle: files.Bundle, found: list[Source], layout: str, rules: list[path_hints.Rule]
) -> layouts.Hints:
    hints = layouts.hints(bundle.folder, bundle.stem, layout)
    mtu = files.mtu_of(found, bundle.folder)
    if mtu is not None:
        # A note says what is different here: another variant of the network, and no mere backup.
        hints = layouts.Hints({**hints.values, "mtu_bytes": mtu}, None, hints.variant, hints.experiment)
    given: dict[str, Any] = {}
    for source in bundle.logs.values():
        given |= path_hints.values(rules, PurePosixPath(source.path))
    return hints.given(given)


def _number_repetitions(trials: list[Imported], layout: str) -> None:
    """Where no folder is called run2 or the like, the same cell once more is its next repetition."""
    if layout == layouts.K8SDDS or any(trial.record["repetition"] for trial in trials):
        return
    seen: Counter[str] = Counter()
    for trial in trials:
        cell = trial.record["cell_id"]
        trial.record["repetition"] = seen[cell]
        trial.record["trial_id"] = f"{cell}-{records.TESTBED}-r{seen[cell]}"
        seen[cell] += 1


def _unique(trials: list[Imported]) -> None:
    """A cell may have been measured twice in one run; each is a trial with an id of its own."""
    seen: Counter[str] = Counter()
    for trial in trials:
        name = trial.record["trial_id"]
        seen[name] += 1
        if seen[name] > 1:
            trial.record["trial_id"] = f"{name}-{seen[name]}"
