"""Import published logs of RTI PerfTest, and tables, into a run folder, which analysis and reports read like any other.

Recordings of ROS 2 become application files instead, which k8sdds measures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from k8sdds.importing import duplicates, files, layouts, path_hints, records, run_folder
from k8sdds.importing.files import Source
from k8sdds.importing.records import Imported
from k8sdds.importing.run_folder import Import as Import
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError
from k8sdds.system.files import require_new


def import_folder(
    source: Path,
    output: Path,
    layout: str = layouts.AUTO,
    maps: Sequence[str] = (),
    skip: Sequence[str] = (),
    baseline: str = "host",
    command: Sequence[str] = (),
) -> Import:
    """Read the logs below a folder, or a single one, into a new run folder.

    A file that cannot be read does not stop the import. The run folder is created atomically. `maps` are settings that
    the logs do not contain, as `GLOB:KEY=VALUE,…`, and `skip` patterns of files and folders to ignore.
    """
    rules = path_hints.rules(maps)
    if layout not in layouts.LAYOUTS:
        raise InputError(f"unknown layout {layout!r}", f"layouts: {', '.join(layouts.LAYOUTS)}")
    if not source.exists():
        raise InputError(f"{source} does not exist", "name a folder with published logs, or a table")
    require_new(output)
    sources = files.sources(source, skip, leave_out=output)
    if layout == layouts.AUTO:
        layout = layouts.detect([file.path for file in sources if file.kind == files.LOG])
    trials = [
        trial
        for bundle in files.bundles(sources, layout)
        for trial in records.records(bundle, _hints(bundle, sources, layout, rules), layout)
    ]
    tables = [file for file in sources if file.kind == files.TABLE]
    trials += [records.of_row(table, line, row) for table in tables for line, row in table.rows.items()]
    if not trials:
        raise _nothing_read(source, sources)
    _number_repetitions(trials, layout)
    copies = duplicates.mark(trials)
    _make_ids_unique(trials)
    done = Import(RunFolder(output.absolute()), source, layout, sources, trials, copies)
    run_folder.write(done, baseline, command)
    return done


def _nothing_read(source: Path, sources: list[Source]) -> InputError:
    remedy = "name the folder that contains the logs, or the table"
    if len(sources) == 1:
        return InputError(f"cannot import {source}: {sources[0].why}", remedy)
    return InputError(
        f"{source} contains no log of RTI PerfTest and no known table ({len(sources)} files read)", remedy
    )


def _hints(
    bundle: files.Bundle, sources: list[Source], layout: str, rules: list[path_hints.Rule]
) -> layouts.Hints:
    hints = layouts.hints(bundle.folder, bundle.stem, layout)
    mtu = files.mtu_of(sources, bundle.folder)
    if mtu is not None:
        # If a note states an MTU, the folder is a variant of the network rather than a backup.
        hints = replace(hints, values={**hints.values, "mtu_bytes": mtu}, set_aside=None)
    given: dict[str, Any] = {}
    for source in bundle.logs.values():
        given |= path_hints.values(rules, PurePosixPath(source.path))
    return hints.with_user_settings(given)


def _number_repetitions(trials: list[Imported], layout: str) -> None:
    """Number the trials of each cell as repetitions if no folder name specifies the repetition."""
    if layout == layouts.K8SDDS or any(trial.record.repetition for trial in trials):
        return
    count: Counter[str | None] = Counter()
    for trial in trials:
        cell = trial.record.cell_id
        trial.record.repetition = count[cell]
        trial.record.trial_id = f"{cell}-{records.TESTBED}-r{count[cell]}"
        count[cell] += 1


def _make_ids_unique(trials: list[Imported]) -> None:
    """Append numbers to the ids of a cell that was measured several times in one run."""
    count: Counter[str | None] = Counter()
    for trial in trials:
        name = trial.record.trial_id
        count[name] += 1
        if count[name] > 1:
            trial.record.trial_id = f"{name}-{count[name]}"
