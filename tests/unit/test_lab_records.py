"""Records of labs, which other programs can damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.system import paths
from k8sdds.testbeds.lab import records
from tests.conftest import Command, environment


@pytest.mark.parametrize(
    "change",
    [{"holders": {"host": "x"}}, {"owner": None}, {"name": "../other"}, {"cgroup_folders": [1]}],
)
def test_a_damaged_record_does_not_prevent_the_removal_of_others(
    k8sdds: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", environment(tmp_path)["K8SDDS_STATE_DIR"])
    folder = tmp_path / "empty"
    folder.mkdir()
    ended = (2**22 + 1, 1)
    records.create(records.LabRecord("damaged", "campaign", owner=ended))
    records.create(records.LabRecord("old", "campaign", owner=ended, cgroup_folders=[str(folder)]))
    path = paths.state_folder() / "damaged.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert k8sdds("lab", "ls").returncode == 0
    done = k8sdds("clean")
    assert (done.returncode, done.stdout) == (0, "removed old\n")
    assert f"{path} is damaged" in done.stderr
    assert folder.is_dir(), "it is not a cgroup"
