"""The published artifact of the paper, imported once."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.importing import Import, import_folder


def artifact_folder() -> Path | None:
    """Return the folder of the published artifact, which has no license and is therefore not committed."""
    for above in Path(__file__).resolve().parents:
        result = above / "shared" / "data" / "k8sdds-artifact"
        if result.is_dir():
            return result
    return None


@pytest.fixture(scope="session")
def artifact() -> Path:
    result = artifact_folder()
    if result is None:
        pytest.skip(
            "the published artifact is missing: put it into shared/data/k8sdds-artifact next to the project"
        )
    return result


@pytest.fixture(scope="session")
def imported(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Import:
    return import_folder(artifact, tmp_path_factory.mktemp("artifact") / "run")
