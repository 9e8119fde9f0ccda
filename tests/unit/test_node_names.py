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
    monkeypatch.setattr(nodes, "ls", lambda cluster=None: [n for n in listed if cluster in (None, n.cluster)])
    monkeypatch.setattr(selection, "read", lambda: selection.SelectedTestbed())


def test_a_node_is_found_by_its_name_or_with_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert located("node1", None) == ("mine", "node1")
    assert located("other/worker1", None) == located("worker1", "other") == ("other", "worker1")
    assert located("mine/switch", None) == ("mine", "switch")
    with pytest.raises(InputError, match="one-machine and other have a node worker1") as refused:
        located("worker1", None)
    assert refused.value.remedy == "name it: one-machine/worker1"
    monkeypatch.setattr(selection, "read", lambda: selection.SelectedTestbed("cluster", "one-machine"))
    assert located("worker1", None) == ("one-machine", "worker1")
    assert located("node1", None) == ("mine", "node1")


@pytest.mark.parametrize(
    ("name", "cluster", "message"),
    [
        ("worker2", None, "known: mine/node1, one-machine/control"),
        ("mine/worker1", None, "there is no local node 'mine/worker1'"),
        ("node1", "other", "there is no local node 'node1'"),
        ("mine/node1", "other", "not a node of --cluster other"),
    ],
)
def test_a_node_that_does_not_exist(name: str, cluster: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        located(name, cluster)
