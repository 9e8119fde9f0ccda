"""What a network switch reads and changes in the API server."""

from __future__ import annotations

from typing import Any, cast

import pytest
import yaml

from k8sdds import versions
from k8sdds.deploy.network_switch import cluster_objects
from k8sdds.kubernetes import kubeconfig
from k8sdds.kubernetes.client import STRATEGIC_PATCH, KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from tests.unit.test_kubeconfig import GOOD

NETWORKS = f"/namespaces/{versions.NETWORK_NAMESPACE}"


class Server:
    """An API server with these objects, by path. It deletes an object when it has been looked for `lasts` times."""

    def __init__(self, lasts: int = 1, **lists: list[dict[str, Any]]) -> None:
        self.lists = lists
        self.changes: list[tuple[Any, ...]] = []
        self._lasts = lasts

    def resource(self, api_version: str, kind: str) -> str:
        return f"{kind.lower()}s"

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return {"items": self.lists.get(path.rpartition("/")[2], [])}

    def get_raw(self, path: str, **query: Any) -> bytes:
        return f"the log of {query['container']}".encode()

    def find(self, path: str) -> dict[str, Any] | None:
        self._lasts -= 1
        return {"metadata": {"uid": "1"}} if self._lasts >= 0 else None

    def patch(self, path: str, body: dict[str, Any], *kind: str, **query: str) -> None:
        self.changes.append((path, body, *kind))

    def delete(self, path: str, propagation: str) -> None:
        self.changes.append((path, propagation))


def client(server: Server) -> KubernetesClient:
    return cast(KubernetesClient, server)


def agent(**more: Any) -> dict[str, Any]:
    metadata = {"name": "flannel", "namespace": versions.NETWORK_NAMESPACE, "uid": "1"}
    return {"metadata": {**metadata, **more}, "spec": {"containers": [{"name": "flanneld"}]}}


def test_agents_are_stopped_before_their_daemonset_is_gone() -> None:
    server = Server(daemonsets=[agent()])
    cluster_objects.stop_agents(client(server), "flannel-vxlan", 60)
    assert server.changes == [(f"/apis/apps/v1{NETWORKS}/daemonsets/flannel", "Foreground")]
    with pytest.raises(
        PrerequisiteError, match=f"DaemonSet {versions.NETWORK_NAMESPACE}/flannel was not deleted"
    ):
        cluster_objects.stop_agents(client(Server(lasts=100, daemonsets=[agent()])), "flannel-vxlan", 0)


def test_only_what_networks_wrote_on_nodes_is_removed() -> None:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "False"}]
    node = {
        "metadata": {"name": "pi1", "annotations": {"flannel.alpha.coreos.com/public-ip": "x", "mine": "y"}},
        "spec": {},
        "status": {"conditions": conditions},
    }
    plain = {"metadata": {"name": "pi2"}, "spec": {}, "status": {"conditions": conditions[:1]}}
    server = Server(nodes=[node, plain])
    cluster_objects.clean_nodes(client(server), ["flannel.alpha.coreos.com/"])
    removed = {"status": {"conditions": [{"type": "NetworkUnavailable", "$patch": "delete"}]}}
    assert server.changes == [
        ("/api/v1/nodes/pi1", {"metadata": {"annotations": {"flannel.alpha.coreos.com/public-ip": None}}}),
        ("/api/v1/nodes/pi1/status", removed, STRATEGIC_PATCH),
    ]


def test_reasons_are_waiting_containers_and_events_or_else_logs() -> None:
    pod = agent(
        name="flannel-x", ownerReferences=[{"kind": "DaemonSet", "name": "flannel", "controller": True}]
    )
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "no route"}}
    status = {"containerStatuses": [{"name": "flanneld", "state": state}]}
    event = {"involvedObject": {"name": "flannel"}, "reason": "FailedCreate", "message": "quota"}
    for server, reasons in (
        (Server(pods=[pod, agent()]), ["flannel-x: flanneld: the log of flanneld"]),
        (Server(pods=[pod | {"status": status}], events=[event]),
         ["no node: flanneld: ImagePullBackOff no route", "flannel: FailedCreate: quota"]),
    ):  # fmt: skip
        assert cluster_objects.reasons(client(server), "flannel") == reasons
    assert not cluster_objects.is_running({"status": status}, "flanneld")


def test_a_kubeconfig_of_a_control_plane_is_read_from_its_text() -> None:
    configuration = kubeconfig.from_text(yaml.safe_dump(GOOD), "master")
    assert configuration.host == "https://127.0.0.1:1"
    with pytest.raises(PrerequisiteError, match="master: its kubeconfig cannot be used"):
        kubeconfig.from_text("hello: [", "master")
