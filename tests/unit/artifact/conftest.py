"""Provide a small generated run folder with raw files, and its archive."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from k8sdds import artifact
from k8sdds.results.run_folder import QOS, RunFolder
from tests import run_folders


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """50 trials of five networks, one payload; tests only read it."""
    plan = run_folders.Plan(payloads=(64,), repetitions=5, details=True)
    run = run_folders.make(tmp_path_factory.mktemp("artifact") / "measured", plan)
    first = run.attempts()[0]
    run.append_attempt(
        first | {"attempt": 2, "valid": False, "reason": "lost-samples: 3 samples did not arrive"}
    )
    (run.path / QOS).mkdir()
    (run.path / QOS / "strict-reliable.xml").write_text("<dds/>")
    return run


@pytest.fixture
def run_folder(measured: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of the run folder for one test."""
    return RunFolder.open(shutil.copytree(measured.path, tmp_path / "measured"))


@pytest.fixture(scope="session")
def archive(measured: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder as an artifact; tests only read it."""
    description = artifact.Description("Results", "CC-BY-4.0", ("Ada",))
    return artifact.pack([measured.path], tmp_path_factory.mktemp("archive") / "a.zip", description).path
