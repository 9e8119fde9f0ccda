"""Names of local nodes: NODE alone, or CLUSTER/NODE."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from k8sdds import nodes
from k8sdds.cli.nodes import _located as located
from k8sdds.system.errors import InputError
from k8sdds.testbeds import selection

NODES = [("mine", "node1"), ("one-machine", "control"), ("one-machine", "worker1"), ("other", "worker1")]


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = [SimpleNamespace(cluster=cluster, name=name) for cluster, name in NODES]
    monkeypatch.setattr(nodes, "ls", lambda: listed)
    monkeypatch.setattr(selection, "read", lambda: selection.SelectedTestbed())


def test_a_node_is_found_by_its_name_or_with_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert located("node1", None) == ("mine", "node1")
    assert located("other/worker1", None) == ("other", "worker1")
    assert located("worker1", "other") == ("other", "worker1")
    assert located("mine/switch", None, switch=True) == ("mine", "switch")
    with pytest.raises(InputError, match="one-machine, other have a node worker1") as refused:
        located("worker1", None)
    assert refused.value.remedy == "name it CLUSTER/worker1"
    monkeypatch.setattr(selection, "read", lambda: selection.SelectedTestbed("cluster", "one-machine"))
    assert located("worker1", None) == ("one-machine", "worker1")
    assert located("node1", None) == ("mine", "node1")


@pytest.mark.parametrize("name", ["worker2", "mine/worker1", "mine/switch", "mine/"])
def test_a_node_that_does_not_exist(name: str) -> None:
    with pytest.raises(InputError, match=f"no local node '{name}' \\(known: mine/node1, one-machine/control"):
        located(name, None)
