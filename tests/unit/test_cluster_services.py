"""Services of a cluster's trials: what is created, what a node shows of them, and which rights they need."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.model.trial import Cell, Participant
from k8sdds.perftest.output import Summary
from k8sdds.testbeds.cluster import created_services, preflight, translations
from k8sdds.testbeds.cluster.blocks import make_blocks
from k8sdds.testbeds.cluster.translations import Connection, Counters
from k8sdds.testbeds.evidence import Compared
from k8sdds.workloads import TrialOutputs, find
from tests.unit.test_cluster import trials

POD = {"metadata": {"name": "sub0-pod-2-abc", "uid": "0a1b2c3d-1"}}


def cell(services: int = 1, via: str = "cluster-ip", network: str = "flannel-vxlan", **values: Any) -> Cell:
    options = {"services": services, "via": via}
    return Cell(
        **({"network": network, "test": "service", "payload_bytes": 1, "test_options": options} | values)
    )


def test_each_set_of_services_has_blocks_of_its_own() -> None:
    cells = [cell(test="tcp-crr", test_options={}), cell(test="tcp-rr", test_options={})]
    cells += [cell(), cell(5), cell(5, "headless"), cell(5, payload_bytes=64)]
    blocks = make_blocks(trials(*cells, repetitions=2), seed=1, one_network=False)
    shown = sorted(tuple(sorted(str(t.cell.test_options) for t in block.trials)) for block in blocks)
    assert len(blocks) == 8 and [block.index for block in blocks] == list(range(8))
    assert {len(options) for options in shown} == {1, 2}
    assert all(len(set(options)) == 1 for options in shown)


def test_services_do_not_add_switches_of_the_network() -> None:
    cells = [
        cell(count, network=network) for network in ("flannel-vxlan", "kube-router") for count in (1, 2, 3)
    ]
    for seed in range(20):
        blocks = make_blocks(trials(*cells), seed=seed, one_network=False)
        order = [block.trials[0].cell.network for block in blocks]
        assert sum(first != second for first, second in pairwise(order)) == 1


@pytest.mark.parametrize(
    ("via", "kind", "address"),
    [("cluster-ip", "ClusterIP", None), ("node-port", "NodePort", None), ("headless", "ClusterIP", "None")],
)
def test_a_service_belongs_to_the_pod_of_the_server(via: Any, kind: str, address: str | None) -> None:
    body = created_services.service("service-1", "ns", via, POD, "10.244.1.2", {"a": "b"})
    assert (body["spec"]["type"], body["spec"].get("clusterIP")) == (kind, address)
    assert body["spec"]["ipFamilies"] == ["IPv4"] and "selector" not in body["spec"]
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Pod", "0a1b2c3d-1")
    body["metadata"]["uid"] = "77"
    endpoints = created_services.endpoint_slice(body, "worker1", "fd00::2")
    assert (endpoints["addressType"], endpoints["ports"][0]["port"]) == ("IPv6", 5202)
    assert endpoints["metadata"]["labels"]["kubernetes.io/service-name"] == "service-1"
    assert endpoints["metadata"]["ownerReferences"][0]["uid"] == "77"
    (endpoint,) = endpoints["endpoints"]
    assert (endpoint["addresses"], endpoint["nodeName"]) == (["fd00::2"], "worker1")


IPTABLES = """\
-N KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m comment --comment "kube-system/kube-dns:metrics cluster IP" -m tcp \\
--dport 9153 -j KUBE-SVC-JD5MR3NA4I4DYORP
-A KUBE-SERVICES -d 10.101.2.3/32 -p tcp -m comment --comment "ns/service-1-aa cluster IP" -m tcp --dport 5202 -j KUBE-SVC-A
-A KUBE-SERVICES -d 10.100.2.3/32 -p tcp -m comment --comment "ns/service-2-aa cluster IP" -m tcp --dport 5202 -j KUBE-SVC-B
"""
NFTABLES = """\
table ip kube-proxy {
    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.100.2.3 . tcp . 5202 : goto service-AAAAAAAA-ns/service-2-aa/tcp/,
                     10.96.0.1 . tcp . 443 : goto service-2QRHZV4L-default/kubernetes/tcp/https }
    }
}
"""


IPVS = """\
-N KUBE-SERVICES
-A KUBE-SERVICES -m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set \
KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ
"""


CONNTRACK = """\
tcp      6 117 TIME_WAIT src=10.244.1.3 dst=10.100.2.3 sport=40000 dport=5202 src=10.244.2.4 dst=10.244.1.3 sport=5202 \
dport=40000 [ASSURED] mark=0 use=1
tcp      6 118 TIME_WAIT src=10.244.1.3 dst=10.100.2.3 sport=40002 dport=5202 src=10.244.2.40 dst=10.244.1.3 sport=5202 \
dport=40002 [ASSURED] mark=0 use=1
"""


def test_one_listing_shows_tracked_and_translated_connections(tmp_path: Path) -> None:
    """Of these two, the second one is answered by another pod, whose address begins like that of the server."""
    tool = tmp_path / "conntrack"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{CONNTRACK}END\n")
    tool.chmod(0o755)
    connection = Connection("ns/service-1", "10.244.1.3", "10.100.2.3", 5202, "10.244.2.4", 5202)
    printed = subprocess.run(
        translations.counters_command(connection), capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    ).stdout  # fmt: skip
    assert translations.counters(printed) == Counters(None, 2, 1)
    assert translations.counters(LISTED) == Counters(732, 700, 699)
    assert translations.counters("") == Counters(None, None, None)


def test_programmed_services() -> None:
    own = ["10.100.2.3", "10.101.2.3", "10.96.9.9"]
    for rules, programmed in (
        (IPTABLES, ["10.101.2.3", "10.100.2.3"]), (NFTABLES, ["10.100.2.3"]), ("\n", None), (IPVS, None),
    ):  # fmt: skip
        assert translations.programmed(rules, own) == programmed


LISTED = """\
Chain KUBE-SEP-JAGJKHEM3U5KSXIC (1 references)
    pkts      bytes target     prot opt in     out     source               destination
       0        0 KUBE-MARK-MASQ  0    --  *      *       10.244.1.2           0.0.0.0/0
     732    43920 DNAT       6    --  *      *       0.0.0.0/0            0.0.0.0/0            tcp to:10.244.1.2:5202
tracked 700
translated 699
"""


SERVICE = Connection("ns/service", "10.244.0.2", "10.101.2.3", 5202, "10.244.1.2", 5202)
HEADLESS = Connection("ns/service", "10.244.0.2", "10.244.1.2", 5202, "10.244.1.2", 5202)


@pytest.mark.parametrize(
    ("connection", "before", "after", "expected"),
    [
        (SERVICE, Counters(10, 0, 0), Counters(120, 90, 90), {"service_connections": 110, "service_tracked": 90}),
        (SERVICE, Counters(None, 0, 0), Counters(None, 90, 90), {"service_connections": None, "service_tracked": 90}),
        (SERVICE, Counters(10, None, None), Counters(120, None, None), {"service_connections": 110, "service_tracked": None}),
        (HEADLESS, Counters(None, 0, 0), Counters(None, 90, 90), {"service_connections": 0}),
        (HEADLESS, Counters(None, 0, 0), Counters(None, 90, 80), {"service_connections": 10}),
        (SERVICE, Counters(None, None, None), Counters(None, None, None), {"service_unobserved": "connection tracking: not readable"}),
        (
            HEADLESS, Counters(None, 0, 0), Counters(None, 0, 0),
            {"service_unobserved": "connection tracking: the node tracks no connection to the Service"},
        ),
    ],
)  # fmt: skip
def test_evidence(
    connection: Connection, before: Counters, after: Counters, expected: dict[str, Any]
) -> None:
    assert translations.evidence(connection, before, after) == expected


@pytest.mark.parametrize(
    ("counted", "tracked", "observed"),
    [
        (0, 0, False),
        (0, None, False),
        (0, 90, True),
        (110, 90, True),
        # kube-proxy in nftables or IPVS mode has no such rule.
        (None, 0, False),
        (None, 90, True),
    ],
)
def test_a_network_that_replaces_kube_proxy_leaves_no_evidence(
    counted: int | None, tracked: int | None, observed: bool
) -> None:
    before = Counters(None if counted is None else 0, 0, 0)
    found = translations.evidence(SERVICE, before, Counters(counted, tracked, tracked), replaced=True)
    seen = {"service_connections": counted, "service_tracked": tracked}
    reason = {"service_unobserved": "the network handles the Services, not kube-proxy"}
    assert found == (seen if observed else reason)


@pytest.mark.parametrize(
    ("via", "seen", "reason", "warned"),
    [
        ("cluster-ip", {}, "not-translated", False),
        ("node-port", {"service_connections": 0}, "not-translated", False),
        ("cluster-ip", {"service_connections": 110}, "", False),
        ("cluster-ip", {"service_connections": 109, "service_tracked": 109}, "not-translated", False),
        ("cluster-ip", {"service_tracked": 90}, "", False),
        ("cluster-ip", {"service_tracked": 0}, "not-translated", False),
        ("node-port", {"service_unobserved": "not allowed"}, "", True),
        ("headless", {"service_connections": 0}, "", False),
        ("headless", {"service_connections": 1}, "translated", False),
        ("headless", {"service_unobserved": "not allowed"}, "", True),
    ],
)
def test_rules_translate_every_connection_or_none(
    via: str, seen: dict[str, Any], reason: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8sdds.workloads.transactions.missing_round_trips", lambda *_: None)
    (trial,) = trials(cell(via=via))
    counts = {"delivered_bytes": 100, "warmup_delivered_bytes": 10, "measured_s": 1.0, "sent": 100}
    nothing = {"service_connections": None, "service_tracked": None, "service_unobserved": "", "outcomes": {}}
    measurement = SimpleNamespace(**(nothing | seen))
    outputs = TrialOutputs(
        trial, cast(Any, measurement), Path(), {Participant.named("pub0"): Summary(counts)}
    )
    found = find("service").invalid(outputs)
    assert (found.code if found else "") == reason
    assert find("service").warnings(outputs) == (["translation not observed: not allowed"] if warned else [])


@pytest.mark.parametrize(
    ("proxy", "mode", "valid"),
    [("iptables", None, False), ("iptables", "iptables", True), (None, None, True)],
)
def test_a_mode_of_kube_proxy_that_was_not_observed_is_not_measured(
    proxy: str | None, mode: str | None, valid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k8sdds.workloads.transactions.missing_round_trips", lambda *_: None)
    (trial,) = trials(cell(network="cilium-vxlan", test_options={"proxy": proxy}))
    measurement = SimpleNamespace(service_unobserved="not allowed", proxy_mode=mode, outcomes={})
    found = find("service").invalid(TrialOutputs(trial, cast(Any, measurement), Path(), {}))
    assert (found is None) == valid
    assert found is None or found.code == "not-translated"


class Api:
    """An API server with one range of addresses, and a user without some rights."""

    def __init__(self, cidr: str, *refused: str) -> None:
        self.cidr, self.refused = cidr, refused

    def is_allowed(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return f"{verb} {resource}" not in self.refused

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/apis/networking.k8s.io/v1/servicecidrs"
        if "list servicecidrs" in self.refused:
            raise ApiError(403, "forbidden")
        return {"items": [{"spec": {"cidrs": [self.cidr]}}]}


@pytest.mark.parametrize(
    ("api", "namespace", "expected"),
    [
        (Api("10.96.0.0/12"), None, []),
        (Api("10.96.0.0/24"), None, ["5000 Services need as many addresses, but 10.96.0.0/24 has 256"]),
        (Api("10.96.0.0/24", "list servicecidrs"), None, []),
        (Api("fd00::/120"), None, []),
        (Api("10.96.0.0/12", "create endpointslices"), "lab", ["not allowed: create endpointslices"]),
        (Api("10.96.0.0/12", "create endpointslices"), None, []),
        (Api("10.96.0.0/12", "delete services", "bind clusterroles"), None, ["not allowed: delete services"]),
    ],
)
def test_what_a_cluster_needs(api: Api, namespace: str | None, expected: list[str]) -> None:
    client = cast(KubernetesClient, api)
    problems = preflight.service_problems([cell(5000), cell(1, "headless")], client, namespace, "iptables")
    assert [problem.what for problem in problems] == [f"test service: {what}" for what in expected]
    assert preflight.service_problems([cell(test="tcp-crr", test_options={})], client, namespace, None) == []


@pytest.mark.parametrize(
    ("proxy", "mode", "expected"),
    [
        (None, None, ""),
        (None, "ipvs", ""),
        ("nftables", "nftables", ""),
        ("nftables", "iptables", "runs in iptables mode"),
        ("iptables", None, "mode of the cluster's kube-proxy is unknown"),
    ],
)
def test_the_mode_of_kube_proxy_is_that_of_the_cluster(proxy: Any, mode: Any, expected: str) -> None:
    options = {"test_options": {"proxy": proxy} if proxy else {}}
    client = cast(KubernetesClient, Api("10.96.0.0/12"))
    problems = preflight.service_problems([cell(**options), cell()], client, None, mode)
    assert len(problems) == bool(expected)
    assert all(expected in problem.what and problem.input for problem in problems)


@pytest.mark.parametrize(
    ("network", "engine", "remedies"),
    [
        ("cilium-vxlan", {}, ["leave out proxy, or select `engine: kube-proxy` of the network"]),
        ("cilium-vxlan", {"engine": "kube-proxy"}, []),
        ("cilium-native", {}, ["leave out proxy, or select `engine: kube-proxy` of the network"]),
    ],
)
def test_no_mode_of_kube_proxy_is_measured_if_the_network_replaces_it(
    network: str, engine: dict[str, str], remedies: list[str]
) -> None:
    wanted = cell(network=network, network_options=engine, test_options={"proxy": "iptables"})
    problems = preflight.unsupported([wanted], can_switch=True)
    assert [problem.remedy for problem in problems] == remedies
    left_out = cell(network=network, network_options=engine)
    assert preflight.unsupported([left_out], can_switch=True) == []
    # Where others installed Cilium, kube-proxy may handle the Services.
    assert preflight.unsupported([wanted], can_switch=False) == []


@pytest.mark.parametrize(
    ("network", "before", "after", "mode"),
    [
        ("cilium-vxlan", Counters(0, 0, 0), Counters(0, 0, 0), None),
        ("cilium-vxlan", Counters(0, 0, 0), Counters(110, 90, 90), "iptables"),
        ("cilium-vxlan", Counters(None, 0, 0), Counters(None, 90, 90), "iptables"),
        ("cilium-vxlan", None, None, None),
        ("flannel-vxlan", Counters(0, 0, 0), Counters(0, 0, 0), "iptables"),
        ("flannel-vxlan", None, None, "iptables"),
    ],
)
def test_connections_that_kube_proxy_translated_have_its_mode(
    network: str, before: Any, after: Any, mode: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SimpleNamespace(node="worker1")
    created = created_services.Services(
        cast(Any, SimpleNamespace(client=None)), cast(Any, None), cast(Any, None)
    )
    monkeypatch.setattr(created, "_connection", SERVICE)
    monkeypatch.setattr(created_services.installed, "proxy_mode", lambda client: "iptables")
    monkeypatch.setattr(created, "_between", lambda slots: SimpleNamespace(client=client))
    (reading,) = created.translations(cell(network=network), {})
    assert isinstance(reading, Compared)
    assert reading._fields(before, lambda: after, {})["proxy_mode"] == mode
