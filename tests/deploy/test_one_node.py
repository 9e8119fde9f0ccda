"""A cluster of one node whose profile changes: additions are created, and what is dropped is deleted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.testbeds.cluster.installed import proxy_mode
from tests.clusters import Deployed
from tests.deploy.conftest import Site

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root"),
]
NAME = "solo"
PROFILE = """\
name: solo
provider: local
nodes: [{name: only, roles: [control-plane, worker], labels: {LABELS}, taints: [TAINTS]}]
metrics_server: null
discovery_service: DISCOVERY
software: bundle
"""


class Solo(Site):
    """The cluster, and the file of its profile."""

    @property
    def cluster(self) -> Deployed:
        return Deployed(NAME, self.state / "clusters" / NAME / "kubeconfig", self.state, ["only"], "")

    def write(self, labels: str, discovery: bool, taints: str = "", more: str = "") -> None:
        text = PROFILE.replace("LABELS", labels).replace("TAINTS", taints)
        self.profile.write_text(text.replace("DISCOVERY", str(discovery).lower()) + more)

    def deploy_with(self, labels: str, discovery: bool, taints: str = "") -> str:
        self.write(labels, discovery, taints)
        return self.deploy()

    def inside(self, *args: str) -> None:
        self.k8sdds("nodes", "exec", f"{NAME}/only", "--", *args)

    def labels(self) -> dict[str, str]:
        node = json.loads(self.cluster.kubectl("get", "node", "only", "-o", "json"))
        kept: dict[str, str] = node["metadata"]["labels"]
        return {key: value for key, value in kept.items() if "kubernetes.io" not in key}


@pytest.fixture
def solo(state: Path) -> Iterator[Solo]:
    made = Solo(state, state.parent / "solo.yaml")
    try:
        yield made
    finally:
        done = made.run("destroy", str(made.profile), "--yes")
    assert done.returncode == 0, done.stderr


def test_deploy_follows_changes_of_the_profile(solo: Solo) -> None:
    # The discovery service tolerates the taint, which is set before it starts.
    taint = "'dedicated=robots:NoSchedule'"
    output = solo.deploy_with("rack: one, zone: a", discovery=True, taints=taint)
    assert all(
        f"only: {phase}: " in output for phase in ("labels", "taints", "discovery service", "smoke test")
    )
    assert solo.labels() == {"rack": "one", "zone": "a"}
    ready = solo.cluster.kubectl(
        "get", "statefulset", "-n", "k8sdds-system", "-o", "jsonpath={.items[*].status.readyReplicas}"
    )
    assert ready == "1"
    assert solo.deploy_with("rack: one, zone: a", discovery=True, taints=taint) == "no changes\n"
    path = "jsonpath={.spec.taints[*].key}{.metadata.annotations.k8sdds\\.io/taints}"
    taints = ("get", "node", "only", "-o", path)
    assert solo.cluster.kubectl(*taints) == "dedicateddedicated:NoSchedule"

    # Labels that the user sets are never changed.
    solo.cluster.kubectl("label", "node", "only", "theirs=x")
    output = solo.deploy_with("zone: b", discovery=False)
    assert "taints: taint only" in output and solo.cluster.kubectl(*taints) == ""
    assert "labels: label 1 nodes" in output and "delete the discovery service" in output
    assert solo.labels() == {"zone": "b", "theirs": "x"}
    assert solo.cluster.kubectl("get", "statefulsets,services", "-n", "k8sdds-system", "-o", "name") == ""
    assert solo.deploy_with("zone: b", discovery=False) == "no changes\n"
    assert solo.deploy_with("", discovery=False).count("labels: label 1 nodes") == 1
    assert solo.labels() == {"theirs": "x"}


def test_kube_proxy_changes_its_mode(solo: Solo) -> None:
    iptables = "iptables-save | grep -q '^:KUBE-SERVICES'"
    nftables = "nft list table ip kube-proxy | grep -q 'map service-ips'"
    # The API server by the address of its Service, which kube-proxy translates.
    by_service = (
        "kubectl --kubeconfig /etc/kubernetes/admin.conf --server https://10.96.0.1 get --raw /readyz"
    )
    solo.write("", False)
    assert solo.deploy().count("kube-proxy:") == 0
    solo.inside("sh", "-ec", f"{iptables}; ! {nftables}; {by_service}")
    solo.write("", False, more="kubernetes: {kube_proxy: nftables}\n")
    assert "kube-proxy: use the mode nftables" in solo.deploy()
    solo.inside("sh", "-ec", f"{nftables}; ! {iptables}; {by_service}")
    assert solo.deploy() == "no changes\n"
    client = KubernetesClient.from_kubeconfig(solo.cluster.kubeconfig, None)
    assert proxy_mode(client) == "nftables"
    solo.write("", False)
    assert "kube-proxy: use the mode iptables" in solo.deploy()
    solo.inside("sh", "-ec", f"{iptables}; ! {nftables}; {by_service}")
    assert proxy_mode(client) == "iptables"


def test_network_that_the_bundle_cannot_run_is_refused_before_nodes_are_created(solo: Solo) -> None:
    secret = solo.profile.with_name("psk")
    secret.write_text("0123456789abcdef" * 6)
    secret.chmod(0o600)
    solo.write("", False, more=f"network: {{name: flannel-ipsec, password_file: {secret}}}\n")
    done = solo.run("deploy", str(solo.profile), "--yes")
    assert done.returncode == 2, done.stderr
    assert (
        "flannel-ipsec needs charon" in done.stderr
        and "→ with this bundle: host, flannel-vxlan" in done.stderr
    )
    assert "only" not in solo.k8sdds("nodes", "ls").stdout
