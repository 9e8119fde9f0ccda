"""The meter and discovery servers are pulled with the login of the campaign, and name it if they do not start."""

from __future__ import annotations

from typing import Any, cast

import pytest

from k8sdds.kubernetes import objects
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.trial import Cell
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import image_login
from k8sdds.testbeds.cluster.discovery import DiscoveryServers
from k8sdds.testbeds.cluster.metrics import MetricsCollector
from k8sdds.testbeds.cluster.namespace import CampaignNamespace

IMAGE = "registry.example/lab/perftest:1"
SECRET = [{"name": image_login.NAME}]


class Client:
    """An API server that creates everything and runs nothing."""

    def __init__(self) -> None:
        self.created: dict[str, dict[str, Any]] = {}

    def is_allowed(self, *right: str, **where: str) -> bool:
        return True

    def resource(self, api_version: str, kind: str) -> str:
        return f"{kind.lower()}s"

    def get(self, path: str) -> dict[str, Any]:
        return {"metadata": {"uid": "1"}}

    def create(self, path: str, body: dict[str, Any], **query: Any) -> dict[str, Any]:
        self.created[body["kind"]] = body
        return body


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(objects, "wait_for_replicas", lambda *_: (0, 3))
    return Client()


def namespace(client: Client, owned: bool = True) -> CampaignNamespace:
    api = cast(KubernetesClient, client)
    logins = {"auths": {"registry.example": {}}} if owned else None
    return CampaignNamespace(api, "c", "n", owned, "C", logins)


def test_the_meter_is_pulled_with_the_login(client: Client) -> None:
    collector = MetricsCollector(namespace(client), packet_filters=False, image=IMAGE)
    collector._create()
    assert client.created["DaemonSet"]["spec"]["template"]["spec"]["imagePullSecrets"] == SECRET
    (line,) = collector._lines
    assert "no meter is ready" in line["said"] and "use --image-login" in line["said"]


def test_no_meter_is_created_in_a_prepared_namespace(client: Client) -> None:
    collector = MetricsCollector(namespace(client, owned=False), packet_filters=False, image=IMAGE)
    collector._create()
    assert not client.created and "creates no meter" in collector._lines[0]["said"]


def test_a_discovery_server_is_pulled_with_the_login(client: Client) -> None:
    cell = Cell(
        network="unknown", test="latency", payload_bytes=1024, middleware="fastdds", discovery="server"
    )
    servers = DiscoveryServers(namespace(client), IMAGE)
    with pytest.raises(PrerequisiteError, match="is ready after") as error:
        servers.provide(cell)
    assert client.created["StatefulSet"]["spec"]["template"]["spec"]["imagePullSecrets"] == SECRET
    assert set(client.created) == {"Service", "StatefulSet"} and "use --image-login" in error.value.remedy


@pytest.mark.parametrize("restarts", [False, True])
def test_only_servers_that_trials_restart_share_their_process_ids(client: Client, restarts: bool) -> None:
    cell = Cell(network="unknown", test="latency", payload_bytes=1024, middleware="zenoh", discovery="server")
    with pytest.raises(PrerequisiteError, match="is ready after"):
        DiscoveryServers(namespace(client), IMAGE, restarts=restarts).provide(cell)
    pod = client.created["StatefulSet"]["spec"]["template"]["spec"]
    assert pod.get("shareProcessNamespace", False) == restarts
