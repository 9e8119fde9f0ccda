"""Whether a network stands and which pods are not on it, on objects as an API server gives them."""

from __future__ import annotations

import copy
from ipaddress import IPv4Network
from typing import Any

import pytest

from k8sdds.deploy.network_install import cluster_install
from k8sdds.deploy.network_switch import footprint, readiness
from k8sdds.kubernetes.kubectl import ClusterNode
from k8sdds.networks.cluster_install import ReadyCondition

NODES = [
    ClusterNode("node1", "10.88.0.11", IPv4Network("10.244.0.0/24")),
    ClusterNode("node2", "10.88.0.12", IPv4Network("10.244.1.0/24")),
]
PODS = IPv4Network("10.244.0.0/16")


def seen(routes: str = "[]", links: str = "[]", *more: str) -> footprint.NodeState:
    return footprint.parse("\n".join([f"routes\t{routes}", f"links\t{links}", *more]))


def missing(name: str, found: footprint.NodeState) -> list[str]:
    return readiness.lacks(cluster_install(name).ready, NODES[0], found, NODES)


def test_a_node_lacks_links_and_routes_until_the_agent_has_made_them() -> None:
    assert missing("flannel-vxlan", seen()) == [
        "the link flannel.1",
        "a route to the pods of node2 (10.244.1.0/24)",
    ]
    link = '[{"ifname":"flannel.1"}]'
    assert missing("flannel-vxlan", seen('[{"dst":"10.244.1.0/24","dev":"flannel.1"}]', link)) == []


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
def test_a_route_to_elsewhere_is_no_route_to_pods(route: str) -> None:
    assert missing("flannel-hostgw", seen(f"[{route}]")) == ["a route to the pods of node2 (10.244.1.0/24)"]


def test_one_route_may_lead_to_all_pods() -> None:
    assert (
        missing("kube-router", seen('[{"dst":"10.244.0.0/16","dev":"x"}]', '[{"ifname":"kube-bridge"}]'))
        == []
    )


def test_ipsec_stands_when_keys_are_agreed() -> None:
    policy = r"xfrm_policy	src 10.244.0.0/24 dst 10.244.1.0/24 \	dir out priority 0 \	tmpl src 10.88.0.11 dst 10.88.0.12"
    state = r"xfrm_state	src 10.88.0.11 dst 10.88.0.12\	proto esp spi 0xc5a1e8f0 reqid 11 mode tunnel"
    assert len(missing("flannel-ipsec", seen())) == 2
    (lack,) = missing("flannel-ipsec", seen("[]", "[]", policy))
    assert "no keys are agreed" in lack
    assert missing("flannel-ipsec", seen("[]", "[]", policy, state)) == []


def test_a_single_node_lacks_no_peer() -> None:
    present = ReadyCondition(routes_to_peers=True, xfrm_to_peers=True)
    assert readiness.lacks(present, NODES[0], seen(), NODES[:1]) == []


def pod(name: str = "p", **status: Any) -> dict[str, Any]:
    spec = {"nodeName": "node1", "containers": [{"name": "c", "image": "i"}]}
    meta = {"name": name, "namespace": "mine", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", **status}}


def networked(at: str, true: str = "True") -> list[dict[str, str]]:
    return [{"type": "PodReadyToStartContainers", "status": true, "lastTransitionTime": at}]


def test_pods_that_got_their_network_before_this_one_was_installed() -> None:
    since = "2026-11-21T16:00:00Z"
    old = pod("old", conditions=networked("2026-11-21T15:59:59Z"))
    new = pod("new", conditions=networked("2026-11-21T16:00:00Z"))
    waiting = pod("waiting", conditions=networked("2026-11-21T15:00:00Z", "False"))
    ancient = pod("ancient", startTime="2026-11-21T15:00:00Z", podIP="10.244.0.9")
    on_host = pod("host", conditions=networked("2026-11-21T15:00:00Z"))
    on_host["spec"]["hostNetwork"] = True
    done = pod("done", phase="Succeeded", conditions=networked("2026-11-21T15:00:00Z"))
    ending = pod("ending", conditions=networked("2026-11-21T15:00:00Z"))
    ending["metadata"]["deletionTimestamp"] = since
    found = readiness.older([old, new, waiting, ancient, on_host, done, ending], since)
    assert [one["metadata"]["name"] for one in found] == ["old", "ancient"]


def test_pods_without_an_address_of_the_pods_range_are_named() -> None:
    pods = [pod("good", podIP="10.244.0.5"), pod("none"), pod("other", podIP="10.32.0.4")]
    unscheduled = pod("unscheduled")
    del unscheduled["spec"]["nodeName"]
    assert readiness.without_network([*pods, unscheduled], PODS) == [
        "mine/none on node1 has no address",
        "mine/other on node1 has 10.32.0.4",
    ]


def test_a_pod_that_nobody_makes_again_is_made_as_it_was_asked_for() -> None:
    alone = pod("alone", podIP="10.244.0.5")
    alone["spec"]["volumes"] = [
        {"name": "data", "emptyDir": {}},
        {"name": "kube-api-access-x2", "projected": {}},
    ]
    token = {"name": "kube-api-access-x2", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    data = {"name": "data", "mountPath": "/data"}
    alone["spec"]["containers"][0]["volumeMounts"] = [data, token]
    before = copy.deepcopy(alone)
    made = readiness.again(alone)
    assert alone == before
    assert made["metadata"] == {"name": "alone", "namespace": "mine", "labels": {"a": "b"}}
    assert made["spec"]["nodeName"] == "node1" and "status" not in made
    assert made["spec"]["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert made["spec"]["containers"][0]["volumeMounts"] == [data]


def test_owned_pods_are_made_again_by_their_owners() -> None:
    assert readiness.by_itself(pod())
    owned = pod()
    owned["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "r", "controller": True}]
    assert not readiness.by_itself(owned)
