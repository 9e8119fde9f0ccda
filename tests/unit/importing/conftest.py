"""The published data of studies, and the artifact of the paper imported once."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.importing import Import, import_folder
from tests.published_data import ARTIFACT, OSRF


@pytest.fixture(scope="session")
def artifact() -> Path:
    return ARTIFACT.folder()


@pytest.fixture(scope="session")
def mininet_results() -> Path:
    return OSRF.folder() / "MininetResults.csv"


@pytest.fixture(scope="session")
def imported(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Import:
    return import_folder(artifact, tmp_path_factory.mktemp("artifact") / "run")
