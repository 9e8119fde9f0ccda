"""A cluster of one node whose profile changes: what it adds is made, what it drops is removed, all else stays."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import Deployed, run

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root"),
]
NAME = "solo"
PROFILE = """\
name: solo
provider: local
nodes: [{name: only, roles: [control-plane, worker], labels: {LABELS}}]
metrics_server: null
discovery_service: DISCOVERY
software: bundle
"""


class Solo:
    """The cluster, and the file of its profile."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.state.mkdir(mode=0o700)
        self.path = folder / "solo.yaml"
        self.cluster = Deployed(NAME, self.state / "clusters" / NAME / "kubeconfig", self.state, ["only"], "")

    def deploy(self, labels: str, discovery: bool) -> str:
        text = PROFILE.replace("LABELS", labels).replace("DISCOVERY", str(discovery).lower())
        self.path.write_text(text)
        done = self.cluster.k8sdds("deploy", str(self.path), "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def inside(self, *words: str) -> None:
        done = self.cluster.k8sdds("nodes", "exec", "--cluster", NAME, "only", "--", *words)
        assert done.returncode == 0, done.stderr

    def labels(self) -> dict[str, str]:
        node = json.loads(self.cluster.kubectl("get", "node", "only", "-o", "json"))
        kept: dict[str, str] = node["metadata"]["labels"]
        return {key: value for key, value in kept.items() if "kubernetes.io" not in key}


@pytest.fixture
def solo(tmp_path: Path) -> Iterator[Solo]:
    made = Solo(tmp_path)
    try:
        yield made
    finally:
        done = run(made.state, "destroy", str(made.path), "--yes")
    assert done.returncode == 0, done.stderr


def test_a_profile_that_changes(solo: Solo) -> None:
    said = solo.deploy("rack: one, zone: a", discovery=True)
    assert "only: discovery service:" in said and "only: smoke test: run a pod" in said
    assert solo.labels() == {"rack": "one", "zone": "a"}
    ready = solo.cluster.kubectl(
        "get", "statefulset", "-n", "k8sdds-system", "-o", "jsonpath={.items[*].status.readyReplicas}"
    )
    assert ready == "1"
    assert solo.deploy("rack: one, zone: a", discovery=True) == "no changes\n"

    # Somebody else's label stays, whatever the profile says of its own.
    solo.cluster.kubectl("label", "node", "only", "theirs=x")
    said = solo.deploy("zone: b", discovery=False)
    assert "labels: label 1 nodes" in said and "delete the discovery service" in said
    assert solo.labels() == {"zone": "b", "theirs": "x"}
    assert solo.cluster.kubectl("get", "statefulsets,services", "-n", "k8sdds-system", "-o", "name") == ""
    assert solo.deploy("zone: b", discovery=False) == "no changes\n"
    assert solo.deploy("", discovery=False).count("labels: label 1 nodes") == 1
    assert solo.labels() == {"theirs": "x"}

    # A program that is not the installed one any more, whatever its times say.
    solo.inside("sh", "-ec", "f=/opt/cni/bin/portmap; t=$(stat -c @%Y $f); echo >>$f; touch -d $t $f")
    assert "install Kubernetes" in solo.deploy("", discovery=False)
    assert solo.deploy("", discovery=False) == "no changes\n"


def test_a_network_that_the_bundle_cannot_run_is_refused_before_nodes_are_made(solo: Solo) -> None:
    secret = solo.path.with_name("psk")
    secret.write_text("0123456789abcdef" * 6)
    secret.chmod(0o600)
    text = PROFILE.replace("LABELS", "").replace("DISCOVERY", "false")
    solo.path.write_text(text + f"network: {{name: flannel-ipsec, password_file: {secret}}}\n")
    done = solo.cluster.k8sdds("deploy", str(solo.path), "--yes")
    assert done.returncode == 2, done.stderr
    assert "flannel-ipsec needs charon" in done.stderr and "→ with this bundle: flannel-vxlan" in done.stderr
    assert "only" not in solo.cluster.k8sdds("nodes", "ls").stdout
