"""Provide a small generated run folder with raw files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    """50 trials of five networks, one payload."""
    import scale_folders

    return scale_folders.make(tmp_path / "measured", 50)
