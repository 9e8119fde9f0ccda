"""Run the real daemon of kube-router, built from source, on a real cluster, and compare the nodes before and after."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from k8sdds import nodes, versions
from k8sdds.kubernetes import apply
from k8sdds.system.paths import shared
from tests import sources
from tests.clusters import Deployed
from tests.deploy import node_facts

SPACE = "kube-router-test"
KUBECTL = ("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf")
DENY = {
    "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
    "metadata": {"name": "deny", "namespace": SPACE},
    "spec": {"podSelector": {"matchLabels": {"of": "pods"}}, "policyTypes": ["Ingress"]},
}  # fmt: skip
ALLOW = {
    **DENY, "metadata": {"name": "allow", "namespace": SPACE},
    "spec": {**DENY["spec"], "ingress": [{"from": [{"podSelector": {"matchLabels": {"may": "ask"}}}]}]},
}  # fmt: skip


@dataclass(frozen=True)
class Switched:
    """A cluster while it has kube-router."""

    cluster: Deployed
    profile: Path
    """Profile of the cluster with a bundle that contains kube-router."""
    answer: dict[str, Any]
    """Result of the switch."""
    inside: Callable[..., str]

    def addresses(self) -> dict[str, str]:
        """Return the addresses of the test's pods by their names."""
        items = json.loads(self.cluster.kubectl("get", "pods", "-n", SPACE, "-o", "json"))["items"]
        return {item["metadata"]["name"]: item["status"]["podIP"] for item in items}

    def exec(self, pod: str, *argv: str) -> str:
        return self.cluster.kubectl("exec", "-n", SPACE, pod, "--", *argv)

    def answers(self, pod: str, address: str) -> bool:
        """Return whether a pod gets an answer from another pod."""
        script = f"k8sdds-probe ask {address}:7000 --count 1 --timeout 1 >/dev/null && echo yes || echo no"
        return self.exec(pod, "sh", "-c", script).strip() == "yes"

    def await_answers(self, pod: str, address: str, expected: bool) -> None:
        deadline = time.monotonic() + 30
        while self.answers(pod, address) != expected:
            assert time.monotonic() < deadline, f"{pod} → {address}: answers are not {expected}"


def pod(name: str, node: str) -> dict[str, Any]:
    container = {
        "name": "c", "image": versions.TOOLS_IMAGE, "imagePullPolicy": "Never",
        "command": ["k8sdds-probe", "listen", "--udp", "7000"],
    }  # fmt: skip
    spec = {"nodeName": node, "serviceAccountName": "mine", "terminationGracePeriodSeconds": 0, "containers": [container],
            "tolerations": [{"operator": "Exists"}]}  # fmt: skip
    metadata = {"name": name, "namespace": SPACE, "labels": {"of": "pods"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def facts(inside: Callable[..., str], cluster: Deployed) -> dict[str, set[str]]:
    return {
        node: node_facts.read(lambda script, node=node: inside(node, "sh", stdin=script))  # type: ignore[misc]
        for node in cluster.nodes
    }


@pytest.fixture(scope="module")
def switched(one_machine: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switched]:
    """Switch the cluster from flannel-vxlan to kube-router, and at the end back. Nothing on a node may have changed."""
    options = sources.kube_router()
    folder = tmp_path_factory.mktemp("kube-router")

    def inside(node: str, *argv: str, stdin: str = "") -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))
            return nodes.run(one_machine.name, node, argv, stdin=stdin, timeout_s=120)

    def switch(name: str) -> dict[str, Any]:
        done = one_machine.k8sdds("network", "switch", str(profile), name, "--yes", "--json")
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["network"] == name and not any(answer["left"].values())
        return answer

    created = one_machine.k8sdds("bundle", "create", str(folder / "bundle"), "--suite", "none", *options)
    assert created.returncode == 0, created.stderr
    profile = folder / "one-machine.yaml"
    text = (shared("profiles") / "one-machine.yaml").read_text()
    profile.write_text(
        re.sub("(?m)^software: .*", f"software: {{source: bundle, bundle: {folder / 'bundle'}}}", text)
    )
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine", "namespace": SPACE}},
        *(pod(f"on-{node}", node) for node in one_machine.nodes),
    ]
    # A pod on every node, so that its bridge exists before and after.
    control = one_machine.nodes[0]
    inside(control, *KUBECTL, "apply", "-f", "-", stdin=apply.list_document(objects))
    wait = ("wait", "pod", "--all", "-n", SPACE, "--for=condition=Ready", "--timeout=60s")
    one_machine.kubectl(*wait)
    before = facts(inside, one_machine)
    try:
        answer = switch("kube-router")
        one_machine.kubectl(*wait)
        yield Switched(one_machine, profile, answer, inside)
        assert all(switch("flannel-vxlan")["removed"].values())
        one_machine.kubectl(*wait)
        after = facts(inside, one_machine)
        for node in one_machine.nodes:
            assert (after[node] - before[node], before[node] - after[node]) == (set(), set()), node
    finally:
        one_machine.kubectl("delete", "namespace", SPACE)


def test_a_switch_is_rejected_before_any_change(one_machine: Deployed) -> None:
    """Without confirmation, and without a bundle that contains the image."""
    installed = one_machine.kubectl("get", "daemonsets", "-n", versions.NETWORK_NAMESPACE, "-o", "yaml")
    switch = ("network", "switch", one_machine.name, "kube-router")
    done = one_machine.k8sdds(*switch)
    assert done.returncode == 2 and "add --yes to confirm" in done.stderr, done.stderr
    done = one_machine.k8sdds(*switch, "--yes")
    assert done.returncode == 3, done.stderr
    assert "prevents cloning" in done.stderr and f"cannot get {versions.KUBE_ROUTER_IMAGE}" in done.stderr
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


def test_network_policies_are_enforced(switched: Switched) -> None:
    addresses, control = switched.addresses(), switched.cluster.nodes[0]
    target = addresses["on-worker1"]
    switched.await_answers("on-worker2", target, True)
    switched.inside(control, *KUBECTL, "apply", "-f", "-", stdin=apply.list_document([DENY]))
    switched.await_answers("on-worker2", target, False)
    switched.inside(control, *KUBECTL, "apply", "-f", "-", stdin=apply.list_document([ALLOW]))
    switched.cluster.kubectl("label", "pod", "-n", SPACE, "on-worker2", "may=ask")
    switched.await_answers("on-worker2", target, True)
    assert not switched.answers(f"on-{control}", target)
    switched.cluster.kubectl("delete", "networkpolicy", "-n", SPACE, "--all")
    switched.await_answers(f"on-{control}", target, True)


def test_quickstart_measures_it(switched: Switched, tmp_path: Path) -> None:
    options = (
        "--testbed",
        switched.cluster.name,
        "--network",
        "kube-router",
        "--repeat",
        "1",
        "--duration",
        "0.5",
    )
    done = switched.cluster.k8sdds("run", "quickstart", *options, "-o", str(tmp_path / "run"))
    assert done.returncode in (0, 4), done.stderr
    rows = [json.loads(line) for line in (tmp_path / "run/trials.jsonl").read_text().splitlines()]
    measured = [row for row in rows if row["network"] == "kube-router" and row["valid"]]
    assert {row["test"] for row in measured} == {"throughput", "latency"}
    # On a busy machine, an attempt may be repeated, but not because of the path.
    reasons = {str(row["reason"]).split(":")[0] for row in rows if not row["valid"]}
    assert reasons <= {"uneven", "lost-samples", "deadline", "peer-lost"}
    for row in measured:
        assert row["fidelity"] == "real" and row["mtu_bytes"] == 1500
        assert row["network_proof"].startswith("routed by eth0, no tunnel")
        assert not any(warning.startswith("unproven") for warning in row["warnings"])


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
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        assert switched.answers("on-worker2", target)
        assert state() == before
        time.sleep(0.2)
    rollout = (
        "rollout",
        "status",
        "daemonset/kube-router",
        "-n",
        versions.NETWORK_NAMESPACE,
        "--timeout=60s",
    )
    switched.cluster.kubectl(*rollout)
    assert state() == before
