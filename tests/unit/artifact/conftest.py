"""Provide a small generated run folder with raw files, and its archive."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import scale_folders

from k8sdds import artifact
from k8sdds.results.run_folder import RunFolder


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """50 trials of five networks, one payload; tests only read it."""
    return scale_folders.make(tmp_path_factory.mktemp("artifact") / "measured", 50)


@pytest.fixture
def run_folder(measured: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of the run folder for one test."""
    return RunFolder.open(shutil.copytree(measured.path, tmp_path / "measured"))


@pytest.fixture(scope="session")
def archive(measured: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder as an artifact; tests only read it."""
    description = artifact.Description("Results", "CC-BY-4.0", ("Ada",))
    return artifact.pack([measured.path], tmp_path_factory.mktemp("archive") / "a.zip", description).path
