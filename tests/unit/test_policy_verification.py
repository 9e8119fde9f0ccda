"""The verification of policies: what it probes, and what it concludes. tests/cluster runs it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import pytest

from k8sdds.cli import policy
from k8sdds.discovery import PEERS, SERVER
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.application import Application
from k8sdds.networks.detection import DetectedNetwork
from k8sdds.recommend.network_policy import Communication
from k8sdds.recommend.policy_verification import Finding, check, conclude, extent, on_installed, probes
from k8sdds.system.errors import InputError, K8sddsError, PrerequisiteError, RequirementsNotMet
from k8sdds.testbeds.cluster.testbed import ClusterTestbed
from k8sdds.testbeds.probing import PORT
from k8sdds.testbeds.selection import CLUSTER, SelectedTestbed
from tests.unit.test_running_campaigns import held_lease

NODES: dict[str, Any] = {
    "camera": {"publishes": ["images"]},
    "planner": {"subscribes": ["images"], "publishes": ["commands"]},
    "arm": {"subscribes": ["commands"]},
}
FLOWS = [{"name": name, "payload_bytes": 100, "rate": 10} for name in ("images", "commands")]
ROBOT = Application.model_validate({"name": "robot", "nodes": NODES, "flows": FLOWS})


@pytest.mark.parametrize(
    ("used", "port"),
    [
        (Communication(domain=1), 7660),
        (Communication("fastdds", discovery=SERVER), 7411),
        (Communication("zenoh", discovery=PEERS), PORT),
    ],
)
def test_no_policy_admits_what_is_probed(used: Communication, port: int) -> None:
    assert {(each.sender, each.receiver, each.port) for each in probes(ROBOT, used)} == {
        *(("a stranger", receiver, port) for receiver in NODES),
        ("planner", "camera", PORT), ("camera", "planner", PORT), ("planner", "arm", PORT),
        ("arm", "camera", port), ("camera", "arm", port),
    }  # fmt: skip


def findings(flows: tuple[bool, ...], refused: tuple[bool, ...]) -> list[Finding]:
    """Return findings of which these have passed."""
    return [
        Finding("it", "found", admitted, passed)
        for admitted, all_ in ((True, flows), (False, refused))
        for passed in all_
    ]


@pytest.mark.parametrize(
    ("flows", "refused", "message"),
    [
        ((True, True), (True, True), "does not enforce policies: all that they refuse has passed"),
        (
            (True, True),
            (True, False),
            "enforces only a part: 1 of 2 connections that no policy admits passed",
        ),
        ((False, True), (False, False), "refuses 1 of 2 flows that the policies admit"),
        (
            (False, True),
            (True, False),
            "enforces only a part: 1 of 2 connections that no policy admits passed;"
            " and it refuses 1 of 2 flows that the policies admit",
        ),
    ],
)
def test_a_network_enforces_policies_or_does_not(
    flows: tuple[bool, ...], refused: tuple[bool, ...], message: str
) -> None:
    with pytest.raises(RequirementsNotMet) as raised:
        conclude(findings(flows, refused), "this network")
    assert raised.value.message == f"this network {message}"
    conclude(findings((True, True), (False, False)), "this network")


@pytest.mark.parametrize(
    "used", [Communication("connext"), Communication(discovery="multicast", group="239.1.1.1")]
)
def test_what_test_pods_cannot_run_is_refused(used: Communication) -> None:
    with pytest.raises(InputError, match=r"--verify cannot run connext|multicast group of DDS"):
        check(used)


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        (Communication(), "5 test pods; with the policies, 3 matches and 8 probes"),
        (
            Communication("fastdds", discovery=SERVER),
            "7 test pods; with the policies, 3 matches and 8 probes",
        ),
    ],
)
def test_the_extent_counts_pods_matches_and_probes(used: Communication, expected: str) -> None:
    assert extent(ROBOT, used) == expected
    assert len(probes(ROBOT, used)) == 8


def test_policies_are_those_of_the_installed_network() -> None:
    assert on_installed(Communication(), "weavenet").network == "weavenet"
    assert on_installed(Communication(network="weavenet"), "weavenet").network == "weavenet"
    assert on_installed(Communication(discovery="multicast"), "weavenet").network == "weavenet"
    assert on_installed(Communication(discovery="multicast"), "unknown").network is None


class Api:
    """An API server with these Leases that refuses no right and creates nothing."""

    def __init__(self, *leases: dict[str, Any]) -> None:
        self.leases = list(leases)

    def is_allowed(self, *right: str, **where: str) -> bool:
        return True

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        assert path.endswith("/leases")
        return {"items": self.leases}


@pytest.mark.parametrize(
    ("used", "running", "kind", "message"),
    [
        (
            Communication(network="weavenet"), False, InputError,
            "--network is weavenet, but the network of the cluster is flannel-vxlan",
        ),
        (
            Communication(discovery="multicast"), False, InputError,
            "flannel-vxlan carries no multicast between nodes",
        ),
        (
            Communication(), True, PrerequisiteError,
            "another campaign is running on this cluster: 20261123T120000Z-quickstart",
        ),
    ],
)  # fmt: skip
def test_a_verification_is_refused_before_anything_is_created(
    monkeypatch: pytest.MonkeyPatch,
    used: Communication,
    running: bool,
    kind: type[K8sddsError],
    message: str,
) -> None:
    @contextlib.contextmanager
    def cluster_api(_: SelectedTestbed) -> Iterator[KubernetesClient]:
        yield cast(KubernetesClient, Api(*([held_lease()] if running else [])))

    monkeypatch.setattr(policy, "cluster_api", cluster_api)
    monkeypatch.setattr(ClusterTestbed, "installed", DetectedNetwork("flannel-vxlan", "Flannel"))
    with pytest.raises(kind) as raised:
        policy._verify(ROBOT, used, SelectedTestbed(CLUSTER))
    assert str(raised.value).startswith(message)
