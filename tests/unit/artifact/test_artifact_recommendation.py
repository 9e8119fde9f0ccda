"""Test that an artifact has the recommendation of an application, which follows from the packed run again."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from k8sdds import artifact
from k8sdds.artifact import verification
from k8sdds.campaign import applications
from k8sdds.cli.app import app
from k8sdds.results.run_folder import RunFolder
from tests.applications import application, folder

CHOICES = {
    "networks": ["flannel-hostgw", "kube-router"],
    "middleware": "cyclonedds",
    "receive_mode": "listener",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run folder with a trial that a search added and did not measure."""
    experiment = applications.experiment(application(choices=CHOICES))
    made = folder(tmp_path_factory.mktemp("run") / "robot", experiment)
    made.append_plan({"of-a-later-round": next(iter(made.planned.values()))}, [["of-a-later-round"]], {})
    return made


@pytest.fixture(scope="module")
def packed(run: RunFolder) -> Path:
    return artifact.pack([run.path], run.path.parent / "a.zip").path


def test_the_recommendation_is_packed_and_can_be_derived_again(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not verification.verify(packed).findings
    with zipfile.ZipFile(packed) as archive:
        archive.extractall(tmp_path)
    own = tmp_path / "recommendations" / "robot"
    for name in ("application.yaml", "recommendation.html", "recommendation.json", "configuration/README.md"):
        assert (own / name).is_file(), name
    (summary,) = json.loads((tmp_path / "artifact.json").read_text())["runs"]
    files = {path.relative_to(own).as_posix() for path in own.rglob("*") if path.is_file()}
    assert set(summary["recommendation"]) == files
    assert summary["trials"] == summary["valid_trials"] + 1
    # The commands of the README, in the unpacked folder.
    monkeypatch.chdir(tmp_path)
    commands = re.findall(
        r"^(?:k8sdds recommend|diff .*recommendation).*$", Path("README.md").read_text(), re.M
    )
    recommend, diff = map(shlex.split, commands)
    done = CliRunner().invoke(app, recommend[1:])
    assert done.exit_code == 0, done.output
    compared = subprocess.run(diff, capture_output=True, text=True, check=False)
    assert compared.returncode == 0, compared.stdout
    # A changed recommendation is found.
    name = "recommendations/robot/configuration/qos-camera.xml"
    Path(name).write_bytes(Path(name).read_bytes().replace(b"RELIABLE", b"BEST_EF_"))
    assert ("changed", name) in {(each.kind, each.path) for each in verification.verify(tmp_path).findings}


def test_other_runs_have_no_recommendation(archive: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        assert not [name for name in packed.namelist() if name.startswith("recommendations/")]
        assert b"k8sdds recommend" not in packed.read("README.md")
