"""Test discovery services as data: manifests and names of servers."""

from __future__ import annotations

import pytest

from k8sdds import discovery, middleware
from k8sdds.middleware import connext, fastdds
from k8sdds.system.errors import InputError

FASTDDS, CONNEXT = fastdds.SERVER, connext.SERVICE


@pytest.mark.parametrize("service", [FASTDDS, CONNEXT], ids=["fastdds", "connext"])
def test_objects_of_a_service(service: discovery.Service) -> None:
    objects = service.objects("there", 3, "registry.example/image:1")
    kinds = {item["kind"]: item for item in objects}
    assert list(kinds) == ["Service", "PodDisruptionBudget", "StatefulSet"]
    assert {item["metadata"]["namespace"] for item in objects} == {"there"}
    assert {item["metadata"]["labels"]["app.kubernetes.io/managed-by"] for item in objects} == {"k8sdds"}
    sets = kinds["StatefulSet"]["spec"]
    assert (
        sets["replicas"] == 3 and sets["serviceName"] == service.name == kinds["Service"]["metadata"]["name"]
    )
    assert kinds["Service"]["spec"]["clusterIP"] == "None"
    assert kinds["Service"]["spec"]["selector"] == sets["selector"]["matchLabels"]
    assert sets["selector"]["matchLabels"].items() <= sets["template"]["metadata"]["labels"].items()
    (container,) = sets["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/image:1"
    assert container["ports"][0]["containerPort"] == service.port
    assert service.ready == ("statefulset", service.name)


def test_servers_are_named_by_their_pods() -> None:
    assert FASTDDS.servers("there") == (
        "k8sdds-discovery-0.k8sdds-discovery.there.svc:11811",
        "k8sdds-discovery-1.k8sdds-discovery.there.svc:11811",
    )


def test_invalid_services() -> None:
    assert middleware.find("cyclonedds").service is None and middleware.find("raw").service is None
    with pytest.raises(InputError, match="no free image"):
        CONNEXT.objects("there")
    for replicas in (0, 10):
        with pytest.raises(InputError, match="discovery servers"):
            FASTDDS.objects("there", replicas)
