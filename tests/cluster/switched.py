"""Replace the network of the cluster by one whose real daemon runs from an archive of its image, and later restore it.

Nothing on a node may have changed afterwards.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from k8sdds import nodes, versions
from k8sdds.kubernetes import apply
from k8sdds.system.paths import shared
from tests.cluster import node_facts
from tests.clusters import Deployed

SPACE = "daemon-test"
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
    """A cluster while it has another network than flannel-vxlan."""

    cluster: Deployed
    profile: Path
    """Profile of the cluster with a bundle that contains the network."""
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
        deadline = time.monotonic() + 180
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


def profile_with_bundle(cluster: Deployed, folder: Path, sources: Sequence[str]) -> Path:
    """Create a bundle with the given sources, and return the profile of the cluster with this bundle."""
    created = cluster.k8sdds("bundle", "create", str(folder / "bundle"), "--suite", "none", *sources)
    assert created.returncode == 0, created.stderr
    profile = folder / "one-machine.yaml"
    text = (shared("profiles") / "one-machine.yaml").read_text()
    profile.write_text(
        re.sub("(?m)^software: .*", f"software: {{source: bundle, bundle: {folder / 'bundle'}}}", text)
    )
    return profile


def inside_of(cluster: Deployed) -> Callable[..., str]:
    """Return a function that runs a program on a node and returns its standard output."""

    def inside(node: str, *argv: str, stdin: str = "") -> str:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("K8SDDS_STATE_DIR", str(cluster.state))
            return nodes.run(cluster.name, node, argv, stdin=stdin, timeout_s=300)

    return inside


def switch_by_command(cluster: Deployed, profile: Path, *network: str) -> dict[str, Any]:
    """Switch the cluster to a network, and return the result of the command."""
    done = cluster.k8sdds("network", "switch", str(profile), *network, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["network"] == network[0] and not any(answer["left"].values())
    return answer


WAIT = ("wait", "pod", "--all", "-n", SPACE, "--for=condition=Ready", "--timeout=180s")


@contextlib.contextmanager
def switched_to(cluster: Deployed, profile: Path, switch: Callable[[], dict[str, Any]]) -> Iterator[Switched]:
    """Yield the cluster after a switch from flannel-vxlan, with a pod on every node, and switch back at the end."""
    inside = inside_of(cluster)
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "mine", "namespace": SPACE}},
        *(pod(f"on-{node}", node) for node in cluster.nodes),
    ]
    # A pod on every node, so that its bridge exists before and after.
    inside(cluster.nodes[0], *KUBECTL, "apply", "-f", "-", stdin=apply.list_document(objects))
    cluster.kubectl(*WAIT)
    before = facts(inside, cluster)
    try:
        answer = switch()
        cluster.kubectl(*WAIT)
        yield Switched(cluster, profile, answer, inside)
        assert all(switch_by_command(cluster, profile, "flannel-vxlan")["removed"].values())
        cluster.kubectl(*WAIT)
        after = facts(inside, cluster)
        for node in cluster.nodes:
            assert (after[node] - before[node], before[node] - after[node]) == (set(), set()), node
    finally:
        cluster.kubectl("delete", "namespace", SPACE)


def check_network_policies(switched: Switched) -> None:
    """Check that a policy denies packets, that another one allows some, and that nothing is denied without policies."""
    addresses, control = switched.addresses(), switched.cluster.nodes[0]
    target = addresses["on-worker1"]
    switched.await_answers("on-worker2", target, True)
    switched.inside(control, *KUBECTL, "apply", "-f", "-", stdin=apply.list_document([DENY]))
    switched.await_answers("on-worker2", target, False)
    switched.inside(control, *KUBECTL, "apply", "-f", "-", stdin=apply.list_document([ALLOW]))
    switched.cluster.kubectl("label", "pod", "-n", SPACE, "on-worker2", "may=ask")
    switched.await_answers("on-worker2", target, True)
    switched.await_answers(f"on-{control}", target, False)
    switched.cluster.kubectl("delete", "networkpolicy", "-n", SPACE, "--all")
    switched.await_answers(f"on-{control}", target, True)
