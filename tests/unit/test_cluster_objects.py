"""What a network switch reads from the API server; tests/cluster/test_switch.py shows what it changes there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from k8sdds import versions
from k8sdds.deploy.network_switch import cluster_objects
from k8sdds.kubernetes import kubeconfig, objects
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from tests.unit.test_kubeconfig import GOOD


class Server:
    """An API server with these objects, by path."""

    def __init__(self, **lists: list[dict[str, Any]]) -> None:
        self.lists = lists

    def get(self, path: str, **query: str) -> dict[str, Any]:
        return {"items": self.lists.get(path.rpartition("/")[2], [])}

    def get_raw(self, path: str, **query: Any) -> bytes:
        return f"the log of {query['container']}".encode()


def client(server: Server) -> KubernetesClient:
    return cast(KubernetesClient, server)


def agent(**more: Any) -> dict[str, Any]:
    metadata = {"name": "flannel", "namespace": versions.NETWORK_NAMESPACE, "uid": "1"}
    return {"metadata": {**metadata, **more}, "spec": {"containers": [{"name": "flanneld"}]}}


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


def test_an_object_that_stays_is_reported() -> None:
    daemonset = agent() | {"apiVersion": "apps/v1", "kind": "DaemonSet"}
    server = SimpleNamespace(resource=lambda version, kind: "daemonsets", find=lambda path: daemonset)
    with pytest.raises(PrerequisiteError, match=r"DaemonSet \S+/flannel was not deleted within 0 s"):
        objects.await_deletion(cast(KubernetesClient, server), [daemonset], 0)
