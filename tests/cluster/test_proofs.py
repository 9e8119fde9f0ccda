"""A network is proven before it is measured, by what the nodes themselves show; else it is refused, or said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.kubernetes.client import CORE, KubernetesClient
from tests.cluster.conftest import Command, User, account, apply, rights
from tests.clusters import Deployed

pytestmark = pytest.mark.usefixtures("nothing_left")


ALONE = """name: alone
baseline: flannel-vxlan
repetitions: 1
duration_s: 0.5
sweeps:
  - networks: [flannel-vxlan]
    test: latency
"""


def test_a_network_that_is_not_what_its_name_says_is_caught(
    k8sdds: Command, user: User, tmp_path: Path
) -> None:
    """Flannel is there with VXLAN, and somebody says that it is host-gw."""
    words = ("--pod-network", "flannel-hostgw", "--set", "networks=[host, flannel-hostgw]", "--repeat", "1")
    done = k8sdds("run", "quickstart", *user.options, *words, "-o", "run")
    assert done.returncode == 3, done.stdout + done.stderr
    said = " ".join(done.stderr.split())
    assert (
        "the installed network is not Flannel, host-gw backend" in said
        and "by flannel.1, a tunnel (vxlan)" in said
    )
    assert "--pod-network" in said
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_proven_is_said(
    k8sdds: Command, admin: KubernetesClient, one_machine: Deployed, tmp_path: Path
) -> None:
    """A namespace of an administrator who lets no pod near the nodes' own network."""
    kubeconfig, subject = account(admin, one_machine, "k8sdds-guest", tmp_path)
    objects = rights("namespace", subject)
    for one in objects:
        one["metadata"]["name" if one["kind"] == "Namespace" else "namespace"] = "k8sdds-strict"
    objects[0]["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply(admin, objects)
    (tmp_path / "alone.yaml").write_text(ALONE)
    reached = ("--testbed", "cluster", "--kubeconfig", str(kubeconfig), "--namespace", "k8sdds-strict")
    done = k8sdds("run", "./alone.yaml", *reached, "--pod-network", "flannel-vxlan", "-o", "run")
    admin.delete(f"{CORE}/namespaces/k8sdds-strict")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "run" / "trials.jsonl").read_text().splitlines()]
    (row,) = [one for one in found if one["valid"]]
    assert row["network_proof"].startswith("whole packets of 1450 bytes pass; not proven: which links")
    assert "hostNetwork=true" in row["network_proof"]
    assert any(one.startswith("unproven: which links") for one in row["warnings"])
    assert "carried" not in row["link_bytes"]


@pytest.fixture
def direct_routes(one_machine: Deployed, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pods' packets go straight from node to node, as with Flannel's DirectRouting; at the end as before."""
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))

    def ip(node: str, *words: str) -> str:
        return nodes.run(one_machine.name, node, ["ip", *words], timeout_s=60)

    there = {}
    for node in one_machine.nodes:
        there[node] = [one for one in json.loads(ip(node, "-json", "route")) if one.get("dev") == "flannel.1"]
        for route in there[node]:
            # The VTEP's neighbour entry leads to the forwarding entry with the node's address.
            (mac,) = {
                one["lladdr"] for one in json.loads(ip(node, "-json", "neigh", "show", route["gateway"]))
            }
            fdb = json.loads(
                nodes.run(one_machine.name, node, ["bridge", "-json", "fdb", "show", "dev", "flannel.1"])
            )
            (peer,) = {one["dst"] for one in fdb if one["mac"] == mac}
            ip(node, "route", "replace", route["dst"], "via", peer, "dev", "eth0")
    yield
    for node, routes in there.items():
        for route in routes:
            ip(node, "route", "replace", route["dst"], "via", route["gateway"], "dev", "flannel.1", "onlink")


@pytest.mark.long
def test_a_network_that_has_fallen_back_is_caught(
    direct_routes: None, k8sdds: Command, user: User, tmp_path: Path
) -> None:
    """All is installed and every packet passes, only not through the tunnel that gives the network its name."""
    (tmp_path / "alone.yaml").write_text(ALONE)
    done = k8sdds("run", "./alone.yaml", *user.options, "-o", "run")
    assert done.returncode == 3, done.stdout + done.stderr
    said = " ".join(done.stderr.split())
    assert (
        "the installed network is not Flannel, VXLAN backend: flannel.1 of worker" in said
        and "by other links: " in said
    )
    assert "eth0" in said and not (tmp_path / "run").exists()
