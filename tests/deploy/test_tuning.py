"""Tuning on a local node: settings are applied, kept across a reboot, and restored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from k8sdds import nodes
from k8sdds.deploy import tuning
from k8sdds.system.errors import PrerequisiteError
from tests.deploy.conftest import local_nodes

ALL = ("connext", "nic-optimizations")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with local_nodes(tmp_path_factory.mktemp("tuned")) as up:
        up("tuned", nodes.NodeSpec("one"))
        yield "tuned"


def facts_of(cluster: str, names: tuple[str, ...] = ALL) -> list[str]:
    output = nodes.run(cluster, "one", ["sh"], stdin=tuning.facts_script(names))
    return [line.removeprefix("tuning\t") for line in output.splitlines()]


def test_settings_are_applied_kept_and_restored(cluster: str) -> None:
    before = facts_of(cluster)
    tuned = tuning.plan(ALL, before)
    # A veth device supports GRO but has no rings; a node can change the sysctls of its network namespace.
    assert "eth0 offload gro: off → on" in tuned.changes
    assert any(change.startswith("net.ipv4.ipfrag_high_thresh: ") for change in tuned.changes)
    assert "eth0 has no rx ring whose size can be set" in tuned.notes
    assert any(note.startswith("net.core.rmem_max ") for note in tuned.notes)

    nodes.run(cluster, "one", ["sh"], stdin=tuned.script)
    after = facts_of(cluster)
    assert "sysctl net.ipv4.ipfrag_high_thresh free 8388608" in after
    assert "offload eth0 gro on" in [line.strip() for line in after]
    again = tuning.plan(ALL, after)
    assert again.script == "" and again.changes == () and again.notes == tuned.notes

    nodes.stop(cluster, "one")
    nodes.up(cluster, [nodes.NodeSpec("one")])
    nodes.run(cluster, "one", ["systemctl", "start", tuning.UNIT])
    assert facts_of(cluster) == after

    # With fewer sets, settings of the dropped set are restored and the others are not changed.
    fewer = tuning.plan(("nic-optimizations",), facts_of(cluster, ("nic-optimizations",)))
    assert fewer.changes and all(change.startswith("net.ipv4.") for change in fewer.changes)
    nodes.run(cluster, "one", ["sh"], stdin=fewer.script)
    assert tuning.plan(("nic-optimizations",), facts_of(cluster, ("nic-optimizations",))).script == ""

    none = tuning.plan((), facts_of(cluster, ()))
    assert none.changes == ("eth0 offload gro: restore off", "eth0 offload tso: restore on")
    output = nodes.run(cluster, "one", ["sh"], stdin=none.script)
    assert "eth0 offload gro off" in output
    assert facts_of(cluster) == before
    assert "k8sdds" not in nodes.run(cluster, "one", ["ls", "-R", "/etc/systemd/system"])
    assert nodes.run(cluster, "one", ["sh"], stdin=tuning.undo_script()) == ""


def test_settings_that_cannot_be_restored_are_reported_and_kept(cluster: str) -> None:
    nodes.run(cluster, "one", ["sh"], stdin=tuning.plan(("connext",), facts_of(cluster)).script)
    lines = (
        "sysctl net.ipv4.no_such_key - 1\nsysctl net.ipv4.ipfrag_high_thresh - 4194304\nring eth9 rx 256\n"
    )
    nodes.run(cluster, "one", ["tee", f"{tuning.FOLDER}/former"], stdin=lines)
    with pytest.raises(PrerequisiteError, match="no_such_key"):
        nodes.run(cluster, "one", ["sh"], stdin=tuning.undo_script())
    assert nodes.run(cluster, "one", ["sysctl", "-n", "net.ipv4.ipfrag_high_thresh"]) == "4194304\n"
    assert nodes.run(cluster, "one", ["cat", f"{tuning.FOLDER}/former"]) == lines
