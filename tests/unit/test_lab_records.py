"""Records of labs, which other programs can damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.nodes import records as node_records
from k8sdds.system import cgroups
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
    path = records.folder() / "damaged.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert k8sdds("testbed", "lab").returncode == 0
    assert k8sdds("lab", "ls").returncode == 0
    done = k8sdds("clean")
    assert (done.returncode, done.stdout) == (0, "removed old\n")
    assert f"{path} is damaged" in done.stderr and len(done.stderr.splitlines()) == 1, (
        "not the selected testbed"
    )
    assert folder.is_dir(), "it is not a cgroup"


@pytest.mark.parametrize(
    ("name", "is_own"), [("k8sdds-old", True), ("k8sdds-old/pod", True), ("user.slice", False)]
)
def test_only_cgroups_of_k8sdds_are_removed(tmp_path: Path, name: str, is_own: bool) -> None:
    folder = tmp_path / name
    (folder / "child").mkdir(parents=True)
    # A regular file, so that the folder itself remains.
    (folder / "cgroup.procs").touch()
    assert cgroups.remove(folder, timeout_s=0) is not is_own
    assert (folder / "child").exists() is not is_own


def test_damaged_records_of_local_nodes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", environment(tmp_path)["K8SDDS_STATE_DIR"])
    for name in ("damaged", "good", "new"):
        (node_records.folder() / name).mkdir()
    node_records.ClusterRecord("good", "/data").write()
    path = node_records.folder() / "damaged" / "record.json"
    path.write_bytes(b"\xff")
    assert node_records.damaged() == [path]
