"""Run the real daemon of kube-router, from an archive of its image, on a real cluster, and compare the nodes before and after."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds import versions
from k8sdds.kubernetes import apply
from k8sdds.networks import policies
from tests import image_archives
from tests.cluster import lab_objects
from tests.cluster.switched import (
    KUBECTL,
    SPACE,
    Switched,
    check_network_policies,
    profile_with_bundle,
    switch_by_command,
    switched_to,
)
from tests.clusters import Deployed
from tests.measuring import experiment, measured


@pytest.fixture(scope="module")
def switched(one_machine: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switched]:
    """Switch the cluster from flannel-vxlan to kube-router, and at the end back. Nothing on a node may have changed."""
    profile = profile_with_bundle(
        one_machine, tmp_path_factory.mktemp("kube-router"), image_archives.options("kube-router")
    )
    with switched_to(
        one_machine, profile, lambda: switch_by_command(one_machine, profile, "kube-router")
    ) as cluster:
        yield cluster


@pytest.mark.long
def test_a_switch_is_rejected_before_any_change(one_machine: Deployed) -> None:
    """Without confirmation, and without a bundle that contains the image."""
    installed = one_machine.kubectl("get", "daemonsets", "-n", versions.NETWORK_NAMESPACE, "-o", "yaml")
    switch = ("network", "switch", one_machine.name, "kube-router")
    done = one_machine.k8sdds(*switch)
    assert done.returncode == 2 and "add --yes to confirm" in done.stderr, done.stderr
    done = one_machine.k8sdds(*switch, "--yes")
    assert done.returncode == 3, done.stderr
    assert "prevents downloads" in done.stderr and f"cannot get {versions.KUBE_ROUTER_IMAGE}" in done.stderr
    assert (
        one_machine.kubectl("get", "daemonsets", "-n", versions.NETWORK_NAMESPACE, "-o", "yaml") == installed
    )


def test_the_daemon_connects_all_nodes_by_bgp(switched: Switched) -> None:
    for node in switched.cluster.nodes:
        routes = json.loads(switched.inside(node, "ip", "-j", "route", "show", "proto", "17"))
        assert len(routes) == 2 and all(route["dev"] == "eth0" for route in routes)
        sessions = switched.inside(
            node, "ss", "-Htn", "state", "established", "( sport = :179 or dport = :179 )"
        )
        peers = {line.split()[3].rpartition(":")[0] for line in sessions.splitlines()}
        assert peers == {route["gateway"] for route in routes}
        conflist = json.loads(switched.inside(node, "cat", "/etc/cni/net.d/10-kuberouter.conflist"))
        assert conflist["plugins"][0]["mtu"] == 1500
    assert switched.exec("on-worker1", "cat", "/sys/class/net/eth0/mtu").strip() == "1500"
    assert {line.partition(" ")[0] for lines in switched.answer["removed"].values() for line in lines} >= {
        "link", "chain", "rule", "file", "route",
    }  # fmt: skip


def test_the_lab_has_the_objects_of_the_daemon(switched: Switched) -> None:
    assert lab_objects.undeclared("kube-router", switched.cluster, switched.inside) == []


def test_network_policies_are_enforced(switched: Switched) -> None:
    check_network_policies(switched)


def test_the_lab_has_the_rules_of_policies(switched: Switched) -> None:
    """Each of three policies selects the test's pods, and allows only them."""
    control, labels = switched.cluster.nodes[0], {"of": "pods"}
    manifests = [policies.manifest(policies.policy_name(number), SPACE, {}, labels) for number in range(3)]
    switched.inside(control, *KUBECTL, "apply", "-f", "-", stdin=apply.list_document(manifests))
    try:
        address = switched.addresses()["on-worker1"]
        deadline = time.monotonic() + 60
        while True:
            daemon = lab_objects.policy_rules(
                lambda script: switched.inside("worker1", "sh", stdin=script), address
            )
            if sum("-j <policy>" in line for line in daemon) or time.monotonic() > deadline:
                break
            time.sleep(1)
    finally:
        switched.cluster.kubectl("delete", "networkpolicy", "-n", SPACE, "--all")
    assert sorted(lab_objects.policy_rules_in_lab("kube-router", 3)) == sorted(daemon)


@pytest.mark.long
def test_a_campaign_sets_policies(switched: Switched, tmp_path: Path) -> None:
    sweep = "  - {networks: kube-router, test: latency, policies: [0, 40]}\n"
    text = experiment(sweep, baseline="kube-router")
    cluster = switched.cluster
    last = measured(cluster.k8sdds, tmp_path, text, "--testbed", cluster.name)
    without, selected = sorted(last, key=lambda record: record["policies"])
    assert "40 policies deny what " in selected["network_proof"]
    # A policy adds three rules, and the pods of other trials on the node change the number by fewer than 40.
    assert selected["fingerprint"]["rules"] - without["fingerprint"]["rules"] >= 119 - 40
    assert json.loads(cluster.kubectl("get", "networkpolicies", "-A", "-o", "json"))["items"] == []
    for record in last:
        assert record["fidelity"] == "real" and record["mtu_bytes"] == 1500
        assert not any(warning.startswith("unproven") for warning in record["warnings"])
    assert without["network_proof"].startswith("routed by eth0, no tunnel")


@pytest.mark.long
def test_a_restart_of_the_agents_keeps_routes_and_configuration(switched: Switched) -> None:
    """A graceful restart: the other nodes keep their routes while an agent restarts."""

    def state() -> list[str]:
        return [
            switched.inside(
                node, "sh", "-c", "ip route show proto 17; cat /etc/cni/net.d/10-kuberouter.conflist"
            )
            for node in switched.cluster.nodes
        ]

    before, target = state(), switched.addresses()["on-worker1"]
    (agent,) = json.loads(
        switched.cluster.kubectl(
            "get", "pods", "-n", versions.NETWORK_NAMESPACE, "--field-selector", "spec.nodeName=worker1",
            "-l", "app.kubernetes.io/name=kube-router", "-o", "json",
        )
    )["items"]  # fmt: skip
    switched.cluster.kubectl(
        "delete", "pod", "-n", versions.NETWORK_NAMESPACE, agent["metadata"]["name"], "--wait=false"
    )
    end = time.monotonic() + 20  # it restarts meanwhile
    while time.monotonic() < end:
        assert switched.answers("on-worker2", target)
        assert state() == before
        time.sleep(0.2)
    of_network = ("-n", versions.NETWORK_NAMESPACE, "--timeout=180s")
    switched.cluster.kubectl("rollout", "status", "daemonset/kube-router", *of_network)
    assert state() == before
