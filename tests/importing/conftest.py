"""The authors' artifact, imported once."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.importing import Import, import_folder


def artifact_folder() -> Path | None:
    """`shared/data/k8sdds-artifact` beside the project or above it: never committed, it has no licence."""
    for above in Path(__file__).resolve().parents:
        found = above / "shared" / "data" / "k8sdds-artifact"
        if found.is_dir():
            return found
    return None


@pytest.fixture(scope="session")
def artifact() -> Path:
    found = artifact_folder()
    if found is None:
        pytest.skip("the authors' artifact is not here: shared/data/k8sdds-artifact beside the project")
    return found


@pytest.fixture(scope="session")
def imported(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Import:
    return import_folder(artifact, tmp_path_factory.mktemp("artifact") / "run")
