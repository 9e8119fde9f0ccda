"""Test that created objects pass strict validation and Pod Security."""

from __future__ import annotations

import pytest

from k8sdds.kubernetes import objects
from k8sdds.kubernetes.client import CORE, ApiError, KubernetesClient
from k8sdds.kubernetes.metrics import node_meter
from k8sdds.middleware.connext import SERVICE as CONNEXT
from k8sdds.middleware.connext import settings
from k8sdds.middleware.fastdds import SERVER as FASTDDS
from k8sdds.middleware.zenoh import ROUTER as ZENOH
from k8sdds.system.cgroups import CpuResources
from k8sdds.testbeds.cluster import pods
from k8sdds.testbeds.cluster.pods import Slot
from k8sdds.versions import PERFTEST_IMAGE

MEMORY = (64 * 2**20, 512 * 2**20)


def test_objects_pass_strict_validation_and_pod_security(
    admin: KubernetesClient, namespace: tuple[str, bool]
) -> None:
    name, privileged = namespace
    path = f"{CORE}/namespaces/{name}/pods"
    sharing = Slot("shared-memory", "all", "", False, sharing=("pub0", "sub0"))
    for slot in (
        Slot("pub0", "pub", "somewhere", False, CpuResources(0.5)),
        Slot("sub0", "sub", "", False),
        sharing,
    ):
        admin.create(path, pods.pod("a", slot, PERFTEST_IMAGE, "c", MEMORY), dryRun="All")
    licensed = pods.pod(
        "c",
        Slot("pub0", "pub", "", False),
        PERFTEST_IMAGE,
        "c",
        MEMORY,
        extra_volumes=settings.license_parts(),
    )
    admin.create(path, licensed, dryRun="All")
    secret = settings.license_secret(name, b"a license")
    admin.create(objects.collection_path(admin, secret), secret, dryRun="All")
    for field, slot in {
        "hostNetwork": Slot("pub0", "pub", "somewhere", True),
        "SYS_NICE": Slot("pub0", "pub", "somewhere", False, capabilities=("SYS_NICE",)),
    }.items():
        body = pods.pod("b", slot, PERFTEST_IMAGE, "c", MEMORY)
        if privileged:
            admin.create(path, body, dryRun="All")
        else:
            with pytest.raises(ApiError, match=field):
                admin.create(path, body, dryRun="All")
    manifests = [
        *FASTDDS.objects(name),
        *CONNEXT.objects(name, image="registry.example/cds:1"),
        *ZENOH.objects(name),
        *ZENOH.at("somewhere", host=False).objects(name),
        *node_meter.objects(name, filters=privileged),
    ]
    for manifest in manifests:
        admin.create(objects.collection_path(admin, manifest), manifest, dryRun="All")
        if "template" in manifest.get("spec", {}):
            # Pod Security checks pods, not the objects that create them.
            template = manifest["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            pod["metadata"] = {**template["metadata"], "name": "test"}
            pod["spec"] = {**template["spec"], "serviceAccountName": "default"}
            admin.create(path, pod, dryRun="All")
    if not privileged:
        allowed = node_meter.objects(name, filters=True)[-1]["spec"]["template"]["spec"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "test"}}
        with pytest.raises(ApiError, match="NET_ADMIN"):
            spec = {**allowed, "serviceAccountName": "default"}
            admin.create(path, {**pod, "spec": spec}, dryRun="All")


def test_strict_validation_rejects_an_unknown_field(admin: KubernetesClient) -> None:
    wrong = pods.pod("a", Slot("pub0", "pub", "n", False), PERFTEST_IMAGE, "c", MEMORY)
    wrong["spec"]["hostNetwrk"] = True
    with pytest.raises(ApiError, match="hostNetwrk"):
        admin.create(f"{CORE}/namespaces/default/pods", wrong, dryRun="All")
