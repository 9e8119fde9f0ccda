"""`k8sdds runs`, and @last for the newest run folder."""

import json
import shutil
from pathlib import Path

import pytest

from tests import run_folders as folders
from tests.conftest import Command

RECORDED = Path(__file__).parent / "recorded" / "version-0.1.0" / "run-folder"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder with a recorded campaign, and a newer one that was interrupted."""
    shutil.copytree(RECORDED, tmp_path / "runs" / "b-recorded")
    plan = folders.Plan(networks=("host", "weavenet"), payloads=(1024,), histograms=False)
    newest = folders.make(tmp_path / "runs" / "a-newest", plan)
    newest.append_event("stopped", reason="interrupted")
    folders.with_campaign(newest, started_at="2099-01-01T00:00:00Z")
    (tmp_path / "runs" / "other").mkdir()
    return tmp_path / "runs"


def test_run_folders_are_listed_newest_first(runs: Path, k8sdds: Command) -> None:
    listed = json.loads(k8sdds("runs", "--json").stdout)
    assert [(row["run"], row["experiment"]) for row in listed] == [
        ("runs/a-newest", "made"), ("runs/b-recorded", "recorded"),
    ]  # fmt: skip
    assert listed[0]["verdict"] == "interrupted, 12 of 12 trials valid"
    assert listed[1]["verdict"] == "48 of 52 trials valid" and listed[1]["age"]
    (runs / "b-recorded" / "campaign.json").write_text("{")
    listed = json.loads(k8sdds("runs", str(runs), "--json").stdout)
    assert {Path(row["run"]).name: row["verdict"][:10] for row in listed}["b-recorded"] == "unreadable"


def test_no_run_folder_is_no_error_but_a_wrong_folder_is(k8sdds: Command) -> None:
    assert "No run folder in runs/" in k8sdds("runs").stdout
    assert "nowhere is not a folder" in k8sdds("runs", "nowhere").stderr


def test_last_is_the_newest_run_folder(runs: Path, k8sdds: Command) -> None:
    assert k8sdds("report", "@last").stdout.startswith("made · ")
    compared = k8sdds("compare", "@last@host", "@last@weavenet").stdout
    assert "@host · B: " in compared and "@weavenet\n" in compared
    assert "several run folders" not in k8sdds("artifact", "pack", "@last", "-o", "a.zip").stderr
    assert (runs.parent / "a.zip").exists()
    assert "is named more than once" in k8sdds("history", "@last", "runs/a-newest").stderr
    assert "flannel-vxlan-slower" in k8sdds("claims", "@last").stdout
    resumed = k8sdds("run", "--resume", "@last")
    assert "runs/a-newest" in resumed.stdout + resumed.stderr and "@last" not in resumed.stderr


def test_last_without_run_folders_is_explained(k8sdds: Command) -> None:
    failed = k8sdds("report", "@last")
    assert failed.returncode == 2 and "@last: runs/ contains no run folder" in failed.stderr
