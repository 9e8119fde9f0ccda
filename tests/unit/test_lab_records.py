"""Records of labs, which other programs can damage."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.nodes import machine
from k8sdds.nodes import records as node_records
from k8sdds.system import cgroups
from k8sdds.testbeds.lab import records
from tests.commands import environment
from tests.conftest import Command


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


@pytest.mark.parametrize(("group", "is_own"), [("k8sdds-old", True), ("user.slice", False)])
def test_only_processes_in_cgroups_of_k8sdds_are_killed(tmp_path: Path, group: str, is_own: bool) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            (tmp_path / group / "one").mkdir(parents=True)
            (tmp_path / group / "one" / "cgroup.procs").write_text(str(process.pid))
            record = node_records.ClusterRecord("old", "/data", cgroup_folders=[str(tmp_path / group)])
            machine.kill_unrecorded(record, "one")
            if is_own:
                assert process.wait(60) == -9
            else:
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.2)
        finally:
            process.kill()


@pytest.mark.parametrize("owner", [b"/nowhere", b"", b"\xff", b"a\0b"])
def test_nodes_without_a_record_are_removed_whatever_names_their_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: bytes
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    data = tmp_path / "cache" / "nodes" / "lost-1234"
    data.mkdir(parents=True)
    (data / "owner").write_bytes(owner)
    assert nodes.clean(everything=False) == (["lost-1234"], [])
    assert not data.exists()
