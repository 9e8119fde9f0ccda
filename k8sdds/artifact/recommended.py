"""Derive the recommendation of a packed run again, for runs that measured an application."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from k8sdds.artifact.contents import PackedRun

APPLICATION = "application.yaml"


def recommendation(run: PackedRun) -> list[tuple[str, bytes]]:
    """Return the application, and the page, tables and files of its recommendation; empty: it measured none.

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
