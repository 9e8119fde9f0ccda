"""The published data is cloned at a fixed commit, from a repository on this machine."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests import published_data

USED = ("Data/CNI-Test/run2/latencyTest/host/test-0/rtiperftest-sub0.log", "Data/CNI-Test/x/metrics.csv")
UNUSED = ("README.md", "Data/CNI-Test/plotter.ipynb", "Data/Multicast-Test/a/metrics.csv")


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    folder = tmp_path / "origin"
    for name in (*USED, *UNUSED):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    git(folder, "init", "--quiet")
    git(folder, "config", "uploadpack.allowFilter", "true")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "--quiet", "--message=data")
    return folder


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_a_clone_has_the_files_that_the_tests_use(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(origin, "rev-parse", "HEAD")
    data = replace(published_data.ARTIFACT, repository=origin.as_uri(), commit=commit)
    for _ in range(2):  # a second clone changes nothing
        published_data.clone(data, tmp_path / "clone")
        files = (path.relative_to(tmp_path / "clone") for path in (tmp_path / "clone").rglob("*"))
        assert {str(path) for path in files if path.suffix in (".log", ".csv", ".md")} == set(USED)
    monkeypatch.setenv(published_data.VARIABLE, str(tmp_path / "clone"))
    assert data.folder() == tmp_path / "clone" / "Data"
    with pytest.raises(pytest.skip.Exception, match="TSC-RMW-Reports is missing"):
        published_data.OSRF.folder()


def test_missing_data_is_skipped_and_a_wrong_folder_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(published_data.VARIABLE, raising=False)
    monkeypatch.setattr(published_data, "CLONES", tmp_path)
    with pytest.raises(pytest.skip.Exception, match="make test-data"):
        published_data.ARTIFACT.folder()
    monkeypatch.setenv(published_data.VARIABLE, str(tmp_path))
    with pytest.raises(pytest.fail.Exception, match=published_data.VARIABLE):
        published_data.ARTIFACT.folder()
