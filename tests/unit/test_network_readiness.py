"""Readiness of a network, and the pods that must join it, on objects as an API server returns them."""

from __future__ import annotations

import copy
import re
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.deploy.network_install import cluster_install
from k8sdds.deploy.network_switch import node_state, readiness
from k8sdds.deploy.network_switch.cluster_objects import ClusterNode, agent_to_restore, controller
from k8sdds.networks.cluster_install import ReadyCondition

NODES = [
    ClusterNode("node1", ("10.88.0.11",), (IPv4Network("10.244.0.0/24"),)),
    ClusterNode("node2", ("10.88.0.12",), (IPv4Network("10.244.1.0/24"),)),
]
PODS = IPv4Network("10.244.0.0/16")


def state(routes: str = "[]", links: str = "[]", *more: str) -> node_state.NodeState:
    return node_state.parse("\n".join([f"routes\t{routes}", f"links\t{links}", *more]))


def missing(name: str, node: node_state.NodeState) -> list[str]:
    return readiness.missing(cluster_install(name).ready, NODES[0], node, NODES)


def test_links_and_routes_are_missing_until_the_agent_creates_them() -> None:
    assert missing("flannel-vxlan", state()) == [
        "link flannel*.1",
        "route to the pods of node2 (10.244.1.0/24)",
    ]
    link = '[{"ifname":"flannel.1"}]'
    assert missing("flannel-vxlan", state('[{"dst":"10.244.1.0/24","dev":"flannel.1"}]', link)) == []


@pytest.mark.parametrize(
    "route",
    [
        '{"dst":"default","gateway":"10.88.0.1"}',
        '{"dst":"10.244.0.0/24","dev":"cni0"}',
        '{"type":"local","dst":"10.244.1.0/24","dev":"lo"}',
        '{"dst":"fe80::/64","dev":"eth0"}',
        '{"type":"blackhole","dst":"10.244.1.0/24"}',
    ],
)
def test_other_routes_do_not_count_as_routes_to_pods(route: str) -> None:
    assert missing("flannel-hostgw", state(f"[{route}]")) == ["route to the pods of node2 (10.244.1.0/24)"]


def test_one_route_to_all_pods_is_sufficient() -> None:
    link = '[{"ifname":"k8sdds0"}]'
    assert missing("host", state('[{"dst":"10.244.0.0/16","dev":"x"}]', link)) == []


@pytest.mark.parametrize(
    ("session", "established"),
    [
        ("10.88.0.11:60851 10.88.0.12:179", True),
        ("10.88.0.11:179 10.88.0.12:34971", True),
        ("[::ffff:10.88.0.11]:179 [::ffff:10.88.0.12]:34971", True),
        ("10.88.0.11:60851 10.88.0.13:179", False),
        ("10.88.0.11:60851 10.88.0.12:6443", False),
    ],
)
def test_kube_router_needs_bgp_sessions_in_addition_to_routes(session: str, established: bool) -> None:
    """A graceful restart keeps routes without a session."""
    routes, link = '[{"dst":"10.244.1.0/24","dev":"eth0"}]', '[{"ifname":"kube-bridge"}]'
    lines = missing("kube-router", state(routes, link, f"session\t{session}"))
    assert lines == ([] if established else ["session with node2 (10.88.0.12, TCP port 179)"])


def test_kube_router_is_ready_on_a_node_of_a_real_cluster() -> None:
    recorded = Path(__file__).parent / "recorded" / "traces-kube-router.txt"
    nodes = [
        ClusterNode("control", ("10.88.0.11",), (IPv4Network("10.244.0.0/24"),)),
        ClusterNode("worker1", ("10.88.0.12",), (IPv4Network("10.244.2.0/24"),)),
        ClusterNode("worker2", ("10.88.0.13",), (IPv4Network("10.244.1.0/24"),)),
    ]
    ready, found = cluster_install("kube-router").ready, node_state.parse(recorded.read_text())
    assert readiness.missing(ready, nodes[1], found, nodes) == []


def test_ipsec_is_ready_after_the_key_exchange() -> None:
    policy = r"xfrm_policy	src 10.244.0.0/24 dst 10.244.1.0/24 \	dir out priority 0 \	tmpl src 10.88.0.11 dst 10.88.0.12"
    sa = r"xfrm_state	src 10.88.0.11 dst 10.88.0.12\	proto esp spi 0xc5a1e8f0 reqid 11 mode tunnel"
    assert len(missing("flannel-ipsec", state())) == 2
    (message,) = missing("flannel-ipsec", state("[]", "[]", policy))
    assert "the key exchange is not complete" in message
    assert missing("flannel-ipsec", state("[]", "[]", policy, sa)) == []


FASTDP = "<- 10.88.0.12:41234       established fastdp 6a:5b:4c:3d:2e:1f(worker1) mtu=1438"
SLEEVE = "-> 10.88.0.13:6783        established sleeve 0a:1b:2c:3d:4e:5f(worker2) mtu=1438"
SELF = "-> 10.88.0.11:6783        failed      cannot connect to ourself, retry: never"
PENDING = "-> 10.88.0.13:6783        pending     encrypted   fastdp 0a:1b:2c:3d:4e:5f(worker2)"


@pytest.mark.parametrize(
    ("engine", "lines", "message"),
    [
        (None, [FASTDP, FASTDP, SELF], ""),
        ("sleeve", [SLEEVE, SELF, SLEEVE], ""),
        (None, [FASTDP, SLEEVE], r"1 of 2 connections match 'established\.\*fastdp': .*established sleeve"),
        ("sleeve", [FASTDP, SLEEVE], "established fastdp"),
        (None, [FASTDP, FASTDP, PENDING], "2 of 2 .*pending"),
        (None, [FASTDP, SELF], "1 of 2 .*no other connections"),
        (None, [], "0 of 2"),
    ],
)
def test_weave_must_be_connected_to_all_peers_by_the_requested_engine(
    engine: str | None, lines: list[str], message: str
) -> None:
    expected = cluster_install("weavenet", engine).ready.connections
    assert expected is not None
    found = readiness.missing_connections(expected, "\n".join(lines), 2)
    if message:
        (line,) = found
        assert re.search(message, line), line
    else:
        assert found == []


def test_a_single_node_needs_no_peer() -> None:
    condition = ReadyCondition(routes_to_peers=True, xfrm_to_peers=True)
    assert readiness.missing(condition, NODES[0], state(), NODES[:1]) == []


def pod(name: str = "p", **status: Any) -> dict[str, Any]:
    spec = {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]}
    meta = {"name": name, "namespace": "mine", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", **status}}


def joined(at: str, true: str = "True") -> list[dict[str, str]]:
    return [{"type": "PodReadyToStartContainers", "status": true, "lastTransitionTime": at}]


def test_pods_that_joined_a_network_before_the_installation_are_old() -> None:
    since = "2026-11-21T16:00:00Z"
    old = pod("old", conditions=joined("2026-11-21T15:59:59Z"))
    new = pod("new", conditions=joined("2026-11-21T16:00:00Z"))
    waiting = pod("waiting", conditions=joined("2026-11-21T15:00:00Z", "False"))
    ancient = pod("ancient", startTime="2026-11-21T15:00:00Z", podIP="10.244.0.9")
    on_host = pod("host", conditions=joined("2026-11-21T15:00:00Z"))
    on_host["spec"]["hostNetwork"] = True
    done = pod("done", phase="Succeeded", conditions=joined("2026-11-21T15:00:00Z"))
    ending = pod("ending", conditions=joined("2026-11-21T15:00:00Z"))
    ending["metadata"]["deletionTimestamp"] = since
    result = readiness.pods_of_old_network([old, new, waiting, ancient, on_host, done, ending], since)
    assert [pod["metadata"]["name"] for pod in result] == ["old", "ancient"]


def test_pods_without_an_address_in_the_pod_range_are_reported() -> None:
    pods = [pod("good", podIP="10.244.0.5"), pod("none"), pod("other", podIP="10.32.0.4")]
    unscheduled = pod("unscheduled")
    del unscheduled["spec"]["nodeName"]
    assert readiness.pods_without_address([*pods, unscheduled], [PODS]) == [
        "mine/none on node1 has no address",
        "mine/other on node1 has 10.32.0.4",
    ]


def test_a_pod_without_controller_is_recreated_from_its_manifest() -> None:
    alone = pod("alone", podIP="10.244.0.5")
    alone["spec"]["volumes"] = [
        {"name": "data", "emptyDir": {}},
        {"name": "kube-api-access-x2", "projected": {}},
    ]
    token = {"name": "kube-api-access-x2", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    data = {"name": "data", "mountPath": "/data"}
    alone["spec"]["containers"][0]["volumeMounts"] = [data, token]
    before = copy.deepcopy(alone)
    created = readiness.recreation_manifest(alone)
    assert alone == before
    assert created["metadata"] == {"name": "alone", "namespace": "mine", "labels": {"a": "b"}}
    assert created["spec"]["nodeName"] == "node1" and "status" not in created
    assert created["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert created["spec"]["containers"][0]["volumeMounts"] == [data]


def replica(uid: str, ready: bool = True, owner: str = "rs1", **metadata: object) -> dict[str, Any]:
    reference = {"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
    return {
        "metadata": {"uid": uid, "namespace": "kube-system", "ownerReferences": [reference], **metadata},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def test_deleted_system_pods_are_replaced_when_as_many_exist_and_one_is_ready() -> None:
    deleted = [replica("a"), replica("b")]
    assert readiness.missing_replacements([], deleted) == []
    terminating = replica("a", deletionTimestamp="2026-01-01T00:00:00Z")
    for pods, waiting in (
        ([terminating, replica("c")], "1 of 2 pods recreated, some ready"),
        ([replica("c"), replica("d", owner="rs2")], "1 of 2 pods recreated, some ready"),
        ([replica("c", ready=False), replica("d", ready=False)], "2 of 2 pods recreated, none ready"),
    ):
        assert readiness.missing_replacements(deleted, pods) == [f"kube-system/rs1: {waiting}"]
    for pods in ([terminating, replica("c"), replica("d")], [replica("c"), replica("d", ready=False)]):
        assert readiness.missing_replacements(deleted, pods) == []


def test_only_replaceable_pods_of_the_system_count_as_system_pods() -> None:
    pod = replica("a")
    assert readiness.is_system_pod(pod)
    pod["metadata"]["namespace"] = "default"
    assert not readiness.is_system_pod(pod)
    daemon = replica("a")
    daemon["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    assert not readiness.is_system_pod(daemon)
    assert not readiness.is_system_pod({"metadata": {"namespace": "kube-system"}})
    assert controller(daemon)["name"] == "rs1" and controller({"metadata": {}}) == {}


def test_a_network_is_restored_only_if_it_was_whole_and_another_one_failed() -> None:
    def installed(kind: str, network: str, sha256: str = "a") -> dict[str, Any]:
        annotations = {versions.SHA256_ANNOTATION: sha256}
        labels = {versions.NETWORK_LABEL: network}
        return {"kind": kind, "metadata": {"name": "agent", "labels": labels, "annotations": annotations}}

    agent, role = installed("DaemonSet", "flannel-vxlan"), installed("ClusterRole", "flannel-vxlan")
    namespace, other = {"kind": "Namespace", "metadata": {"name": "n"}}, installed("DaemonSet", "kube-router")
    assert agent_to_restore([role, agent], [namespace, other]) is agent
    assert agent_to_restore([role], [other]) is None
    assert agent_to_restore([role, agent, installed("Secret", "host")], [other]) is None
    assert agent_to_restore([], [other]) is None
    # The same network, with other options, with the same, and after an interrupted switch.
    changed = [namespace, role, installed("DaemonSet", "flannel-vxlan", "b")]
    assert agent_to_restore([role, agent], changed) is agent
    assert agent_to_restore([role, agent], [namespace, role, agent]) is None
    assert agent_to_restore([agent], changed) is None
