"""Test the parsers with recorded metrics of a real cluster (kubeadm 1.36.3, Flannel, metrics-server)."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from k8sdds.analysis import background_cost
from k8sdds.kubernetes.metrics import metrics_api, node_meter, pod_startup
from k8sdds.system.errors import PrerequisiteError

RECORDED = Path(__file__).parent / "recorded"


def text(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


BEFORE, AFTER, FILTERS = (text(f"meter-{name}.json") for name in ("before", "after", "rules"))


def changed(document: str, **values: Any) -> node_meter.Reading:
    return node_meter.parse(json.loads(document) | values)


# -- metrics.k8s.io -----------------------------------------------------------------------------------------


def test_metrics_of_kubectl_top() -> None:
    asked = []

    def get(path: str) -> bytes:
        asked.append(path)
        return text("top-nodes.json" if path.endswith("nodes") else "top-pods.json").encode()

    assert metrics_api.nodes(get) == [
        metrics_api.AverageUsage(
            "n1", "", "2026-11-21T16:27:39Z", 20.075, pytest.approx(0.29594214), 887256 * 1024
        )
    ]
    pods = {pod.name: pod for pod in metrics_api.pods(get, "kube-system")}
    server = pods["kube-apiserver-n1"]
    assert (server.namespace, server.window_s, server.memory_bytes) == ("kube-system", 21.23, 279996 * 1024)
    assert server.cpu_cores == pytest.approx(0.034069082)
    assert asked == [
        "/apis/metrics.k8s.io/v1beta1/nodes",
        "/apis/metrics.k8s.io/v1beta1/namespaces/kube-system/pods",
    ]


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b"[]", b'{"items": [{}]}', b'{"items": [{"metadata": null}]}']
)
def test_an_invalid_response_is_rejected(answer: bytes) -> None:
    with pytest.raises(PrerequisiteError, match="something else than metrics"):
        metrics_api.parse(answer)


# -- the meter ----------------------------------------------------------------------------------------------


def test_a_reading() -> None:
    found = node_meter.parse(BEFORE)
    assert (found.node, found.cpus, found.missing) == ("n1", 2, {})
    assert found.boot_id == "e6d88def-0845-4eb9-98c9-d7a26c9bec17"
    assert (found.stat["user_s"], found.stat["softirq_s"], found.stat["steal_s"]) == (9904.07, 4284.26, 49.43)
    assert found.kubelet and (found.kubelet.cpu_s, found.kubelet.memory_bytes) == (6.71, 158855168)
    assert found.resources and found.resources.node.cpu_s == 56.154434348
    flannel = found.resources.pods["kube-flannel", "kube-flannel-ds-5v2n4"]
    assert (flannel.cpu_s, flannel.memory_bytes) == (1.347299541, 21708800)
    # The kubelet read the counter 9 s before the request.
    assert found.at_s - (flannel.cpu_at_s or 0) == pytest.approx(8.937, abs=0.001)
    assert found.rules is None


def test_packet_filters() -> None:
    # kube-proxy in iptables mode on a node with one Flannel, by iptables-nft.
    assert node_meter.parse(FILTERS).rules == node_meter.RuleCounts(nft_chains=61, nft_rules=89)
    legacy = "*filter\n:INPUT ACCEPT [0:0]\n:KUBE-FORWARD - [0:0]\n-A KUBE-FORWARD -j ACCEPT\nCOMMIT\n"
    counted = node_meter.count_rules({"nftables": []}, legacy)
    assert counted == node_meter.RuleCounts(legacy_chains=2, legacy_rules=1)


@pytest.mark.parametrize(
    "document", ["", "[]", "{}", '{"stat": "cpu 1"}', BEFORE[:-200], BEFORE.replace("cpu  9", "cpu  x")]
)
def test_invalid_readings_are_rejected(document: str) -> None:
    with pytest.raises(ValueError):
        node_meter.parse(document)


def test_objects_of_the_meter() -> None:
    made = {one["kind"]: one for one in node_meter.objects("there")}
    assert made["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}
    ]
    assert (
        made["ClusterRole"]["metadata"]["name"]
        == made["ClusterRoleBinding"]["roleRef"]["name"]
        == "k8sdds-meter-there"
    )
    assert (
        made["ClusterRoleBinding"]["subjects"][0]["namespace"]
        == made["DaemonSet"]["metadata"]["namespace"]
        == "there"
    )
    pod = made["DaemonSet"]["spec"]["template"]["spec"]
    assert "hostNetwork" not in pod and pod["securityContext"]["runAsNonRoot"]
    assert "add" not in pod["containers"][0]["securityContext"]["capabilities"]
    allowed = node_meter.objects("there", filters=True)[-1]["spec"]["template"]["spec"]
    assert allowed["hostNetwork"] and allowed["containers"][0]["securityContext"]["capabilities"]["add"] == [
        "NET_ADMIN"
    ]
    assert node_meter.command(filters=True) == ["/usr/local/bin/k8sdds-meter", "--rules"]


# -- between two readings -----------------------------------------------------------------------------------


def test_cost_of_a_network() -> None:
    one, other = node_meter.parse(BEFORE), node_meter.parse(AFTER)
    found = background_cost.usage_between({"n1": one}, {"n1": other}, delivered_gbit=2)
    interval_s = 108.797864
    assert found["interval_s"] == pytest.approx(interval_s)
    # The pod's counter moved by 0.931 s within the 111.4 s between the kubelet's own readings.
    assert found["network_cpu_s"] == pytest.approx(0.931335514 * interval_s / 111.376)
    assert found["network_cpu_s_per_gbit"] == pytest.approx(found["network_cpu_s"] / 2)
    assert (found["nodes"], found["network_pods"], found["network_memory_bytes"]) == (1, 1, 22126592)
    assert found["kubelet_cpu_percent"] == pytest.approx(3.07 / interval_s * 100)
    assert found["softirq_s"] == pytest.approx(1.68)
    assert found["softirq_percent"] == pytest.approx(1.68 / (2 * interval_s) * 100)
    assert found["busy_percent"] == pytest.approx(100, abs=0.1)
    assert found["nft_rules"] is None and set(found) == set(background_cost.USAGE_COLUMNS)


def test_nodes_of_one_kernel_count_it_once_and_pods_each() -> None:
    one, other = node_meter.parse(BEFORE), node_meter.parse(AFTER)
    both = background_cost.usage_between({"n1": one, "n2": one}, {"n1": other, "n2": other}, 2)
    single = background_cost.usage_between({"n1": one}, {"n1": other}, 2)
    assert both["softirq_s"] == single["softirq_s"] and both["softirq_percent"] == single["softirq_percent"]
    assert both["network_cpu_s"] == pytest.approx(2 * single["network_cpu_s"])
    assert both["network_memory_bytes"] == single["network_memory_bytes"]


def test_unknown_values_are_missing() -> None:
    one, other = node_meter.parse(BEFORE), node_meter.parse(AFTER)
    assert background_cost.usage_between({}, {"n1": other}, 2)["softirq_s"] is None
    booted = changed(AFTER, boot_id="another")
    assert background_cost.usage_between({"n1": one}, {"n1": booted}, 2)["nodes"] == 0
    # Within half a minute, the kubelet may not have read its counters.
    soon = changed(AFTER, at="2026-11-21T16:26:20.000000Z")
    short = background_cost.usage_between({"n1": one}, {"n1": soon}, 2)
    assert short["network_cpu_s"] is None and short["softirq_s"] is not None
    # One kubelet did not answer: a sum without its node would be too low.
    silent = changed(AFTER, resource="", kubelet="", lacks={"resource": "403 Forbidden"})
    partly = background_cost.usage_between({"n1": one, "n2": one}, {"n1": other, "n2": silent}, 2)
    assert partly["network_cpu_s"] is None and partly["kubelet_memory_bytes"] == other.kubelet.memory_bytes
    assert background_cost.usage_between({"n1": one}, {"n1": other}, 0)["network_cpu_s_per_gbit"] is None


def test_a_restarted_network_pod_counts_from_its_start() -> None:
    one = changed(BEFORE, resource=json.loads(BEFORE)["resource"].replace("1.347299541", "99.5"))
    found = background_cost.usage_between({"n1": one}, {"n1": node_meter.parse(AFTER)}, 2)
    assert found["network_cpu_s"] == pytest.approx(2.278635055)


@pytest.mark.parametrize(
    ("pod", "is_one"),
    [
        (("k8sdds-network", "flanneld-abcde"), True),
        (("kube-flannel", "kube-flannel-ds-5v2n4"), True),
        (("kube-system", "weave-net-x"), True),
        (("kube-system", "kube-proxy-b64fv"), False),
        (("default", "kube-router-like"), False),
    ],
)
def test_which_pods_are_the_network(pod: tuple[str, str], is_one: bool) -> None:
    assert background_cost.is_network(pod) is is_one


# -- pod starts ---------------------------------------------------------------------------------------------


def events() -> list[dict[str, Any]]:
    return json.loads(text("watch.json"))


def test_pod_starts_are_timed_by_their_events() -> None:
    seen = pod_startup.PodStarts()
    for number, event in enumerate(events()):
        seen.observe(event["object"], 100 + number / 10)
    assert seen.facts() == {
        "k8sdds-discovery-0": pytest.approx(
            {"scheduled_s": 0.1, "network_ready_s": 0.7, "running_s": 1.0, "ready_s": 1.1, "coarse": False}
        ),
        "k8sdds-discovery-1": pytest.approx(
            {"scheduled_s": 0.1, "network_ready_s": 0.4, "running_s": 0.6, "ready_s": 0.7, "coarse": False}
        ),
    }


def test_a_pod_with_a_known_creation_time() -> None:
    seen = pod_startup.PodStarts()
    seen.created("k8sdds-discovery-0", 99.0)
    seen.observe(events()[0]["object"], 100.0)
    seen.observe(events()[1]["object"], 100.5)
    assert seen.facts()["k8sdds-discovery-0"] == {
        "scheduled_s": 1.5, "network_ready_s": None, "running_s": None, "ready_s": None, "coarse": False,
    }  # fmt: skip


def test_a_pod_first_seen_running_has_coarse_times() -> None:
    seen = pod_startup.PodStarts()
    seen.observe(events()[-1]["object"], 100.0)
    assert seen.facts()["k8sdds-discovery-0"] == {
        "scheduled_s": 0, "network_ready_s": 0, "running_s": 0, "ready_s": 1, "coarse": True,
    }  # fmt: skip


def test_old_and_incomplete_pods() -> None:
    pod = copy.deepcopy(events()[-1]["object"])
    for condition in pod["status"]["conditions"]:
        if condition["type"] == "PodReadyToStartContainers":
            condition["type"] = "PodHasNetwork"
    assert "network_ready_s" in pod_startup.completed_steps(pod)
    assert pod_startup.completed_steps({"metadata": {"name": "x"}}) == {}
    assert pod_startup.completed_steps({"status": {"containerStatuses": [{"state": {"waiting": {}}}]}}) == {}
