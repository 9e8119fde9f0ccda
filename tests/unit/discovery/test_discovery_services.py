"""Test discovery services as data: manifests and names of servers."""

from __future__ import annotations

import pytest

from k8sdds import discovery, middleware
from k8sdds.middleware import connext, fastdds, zenoh
from k8sdds.system.errors import InputError

FASTDDS, CONNEXT, ZENOH = fastdds.SERVER, connext.SERVICE, zenoh.ROUTER


@pytest.mark.parametrize("service", [FASTDDS, CONNEXT, ZENOH, ZENOH.at("edge-1", host=True)])
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


def test_a_router_has_least_privileges_and_a_name_for_each_place() -> None:
    here, there = (ZENOH.at(node, host=False) for node in ("a", "b"))
    assert ZENOH.at("", host=False) == ZENOH and len({here.name, there.name, ZENOH.name}) == 3
    assert ZENOH.servers("ns") == ("k8sdds-zenoh-0.k8sdds-zenoh.ns.svc:7447",)
    (_, _, router), (*_, plain) = ZENOH.at("a", host=True).objects("ns"), ZENOH.objects("ns")
    pod, other = (each["spec"]["template"]["spec"] for each in (router, plain))
    assert (pod["nodeName"], pod["hostNetwork"]) == ("a", True)
    assert not other.keys() & {"nodeName", "hostNetwork"} and plain["spec"]["replicas"] == 1
    assert other["automountServiceAccountToken"] is False and other["securityContext"]["runAsNonRoot"]
    (container,) = other["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert "--adminspace-permissions=none" in container["args"]


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
