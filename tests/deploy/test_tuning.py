"""Tuning on a local node, for real: applied, kept over a power cut, and undone to what was there before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.deploy import tuning
from k8sdds.system.errors import PrerequisiteError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root")
ALL = ("connext", "nic-optimizations")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(state))
    try:
        nodes.up("tuned", [nodes.NodeSpec("one")])
        yield "tuned"
    finally:
        nodes.down("tuned")


def look(cluster: str, names: tuple[str, ...] = ALL) -> list[str]:
    said = nodes.run(cluster, "one", ["sh"], stdin=tuning.facts_script(names))
    return [line.removeprefix("tuning\t") for line in said.splitlines()]


def test_applied_kept_and_undone(cluster: str) -> None:
    before = look(cluster)
    tuned = tuning.plan(ALL, before)
    # A veth can be told to do GRO, and has no rings; a node may set the sysctls of its own network.
    assert "eth0 offload gro: off → on" in tuned.changes
    assert any(change.startswith("net.ipv4.ipfrag_high_thresh: ") for change in tuned.changes)
    assert "eth0 has no rx ring whose size can be set" in tuned.notes
    assert any(note.startswith("net.core.rmem_max ") for note in tuned.notes)

    nodes.run(cluster, "one", ["sh"], stdin=tuned.script)
    after = look(cluster)
    assert "sysctl net.ipv4.ipfrag_high_thresh free 8388608" in after
    assert "offload eth0 gro on" in [line.strip() for line in after]
    again = tuning.plan(ALL, after)
    assert again.script == "" and again.changes == () and again.notes == tuned.notes

    nodes.stop(cluster, "one")
    nodes.up(cluster, [nodes.NodeSpec("one")])
    nodes.run(cluster, "one", ["systemctl", "start", tuning.UNIT])
    assert look(cluster) == after

    # Fewer sets: what only the other one set is put back, and the rest is not touched.
    fewer = tuning.plan(("nic-optimizations",), look(cluster, ("nic-optimizations",)))
    assert fewer.changes and all(change.startswith("net.ipv4.") for change in fewer.changes)
    nodes.run(cluster, "one", ["sh"], stdin=fewer.script)
    assert tuning.plan(("nic-optimizations",), look(cluster, ("nic-optimizations",))).script == ""

    none = tuning.plan((), look(cluster, ()))
    assert none.changes == ("eth0 offload gro: restore off", "eth0 offload tso: restore on")
    said = nodes.run(cluster, "one", ["sh"], stdin=none.script)
    assert "eth0 offload gro off" in said
    assert look(cluster) == before
    assert "k8sdds" not in nodes.run(cluster, "one", ["ls", "-R", "/etc/systemd/system"])
    assert nodes.run(cluster, "one", ["sh"], stdin=tuning.undo_script()) == ""


def test_what_cannot_be_put_back_is_said_and_kept(cluster: str) -> None:
    nodes.run(cluster, "one", ["sh"], stdin=tuning.plan(("connext",), look(cluster)).script)
    lines = "sysctl net.ipv4.no_such_key - 1\nsysctl net.ipv4.ipfrag_high_thresh - 4194304\nring eth9 rx 256\n"
    nodes.run(cluster, "one", ["tee", f"{tuning.FOLDER}/former"], stdin=lines)
    with pytest.raises(PrerequisiteError, match="no_such_key"):
        nodes.run(cluster, "one", ["sh"], stdin=tuning.undo_script())
    assert nodes.run(cluster, "one", ["sysctl", "-n", "net.ipv4.ipfrag_high_thresh"]) == "4194304\n"
    assert nodes.run(cluster, "one", ["cat", f"{tuning.FOLDER}/former"]) == lines
