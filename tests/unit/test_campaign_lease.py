"""A campaign renews its Lease until its cluster is as it was before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import ApiError
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import namespace
from k8sdds.testbeds.cluster.namespace import CampaignLease, CampaignNamespace
from k8sdds.testbeds.cluster.testbed import ClusterTestbed
from k8sdds.testbeds.selection import SelectedTestbed
from tests.unit import builders

WAIT_S = 30


class Api:
    """An API server that counts requests; the first renewals fail as given."""

    def __init__(self, *failures: Exception, allowed: bool = True) -> None:
        self.failures = list(failures)
        self.allowed = allowed
        self.requests: list[str] = []
        self.changed = threading.Condition()

    def _note(self, request: str) -> None:
        with self.changed:
            self.requests.append(request)
            self.changed.notify_all()

    def wait_for(self, done: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(done, WAIT_S), self.requests

    def create(self, path: str, body: dict[str, Any]) -> None:
        if not self.allowed:
            raise ApiError(403, "forbidden")
        self._note("create")

    def delete(self, path: str) -> None:
        self._note("delete")

    def patch_once(self, path: str, body: dict[str, Any]) -> None:
        if self.failures:
            self._note("failed")
            raise self.failures.pop(0)
        self._note("renew")


def held(api: Api, monkeypatch: pytest.MonkeyPatch) -> CampaignLease:
    monkeypatch.setattr(leases, "RENEW_S", 0.001)
    monkeypatch.setattr(namespace, "RETRY_S", 0.001)
    campaign_lease = CampaignLease(
        CampaignNamespace(api, "c", "k8sdds-c", owned=True, title="a campaign")  # type: ignore[arg-type]
    )
    campaign_lease.acquire()
    return campaign_lease


def test_a_lease_is_renewed_until_it_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(
        PrerequisiteError("the API server does not answer"),
        OSError("reset"),
        ApiError(404, "somebody deleted it"),
    )
    campaign_lease = held(api, monkeypatch)
    api.wait_for(lambda: api.requests.count("renew") >= 3)
    campaign_lease.release()
    campaign_lease.release()
    assert api.requests[:2] == ["delete", "create"], "that of a killed process is replaced"
    assert api.requests.count("failed") == 3 and api.requests.count("create") == 2
    assert api.requests.count("delete") == 2 and not campaign_lease.is_held
    # A user without the right measures without a lease.
    api = Api(allowed=False)
    campaign_lease = held(api, monkeypatch)
    assert not campaign_lease.is_held
    campaign_lease.release()
    assert api.requests == ["delete"]


@pytest.mark.parametrize(("switch_s", "refused"), [(0, False), (35, True)], ids=["same network", "switches"])
def test_a_campaign_that_would_change_the_cluster_waits_for_others(
    switch_s: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = leases.manifest("c", "20261124T120000Z-quickstart", datetime.now(UTC))
    other["metadata"]["namespace"] = "k8sdds-c"

    class Listing:
        def get(self, path: str, labelSelector: str) -> dict[str, Any]:
            return {"items": [other]}

    testbed = ClusterTestbed(Listing(), SelectedTestbed("cluster"), "d")  # type: ignore[arg-type]
    monkeypatch.setattr(testbed, "preparation_s", lambda _: switch_s)
    trial = builders.trial(builders.cell(network="kube-router"), "cluster")
    problems = testbed._disturbed_campaigns([trial])
    assert [("20261124T120000Z-quickstart in namespace k8sdds-c" in found.what) for found in problems] == (
        [True] if refused else []
    )


def test_the_lease_is_held_until_the_original_network_is_restored() -> None:
    steps: list[str] = []

    class Part:
        def __init__(self, name: str) -> None:
            self.close = self.restore = self.release = self.delete = lambda: steps.append(name)

    testbed = ClusterTestbed(None, SelectedTestbed("cluster"), "c")  # type: ignore[arg-type]
    testbed._session, testbed._switch = Part("session"), Part("switch")  # type: ignore[assignment]
    testbed._lease, testbed._namespace = Part("lease"), Part("namespace")  # type: ignore[assignment]
    testbed.close()
    assert steps == ["session", "switch", "lease", "namespace"]
