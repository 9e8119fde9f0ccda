"""Objects beside the pods of a campaign, as manifests have them: where they go, and when they are ready."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from k8sdds.kubernetes.client import Api, ApiRejected
from k8sdds.system.errors import PrerequisiteError

PLURALS = {
    "Service": "services", "ServiceAccount": "serviceaccounts", "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets", "PodDisruptionBudget": "poddisruptionbudgets", "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings", "Secret": "secrets",
}  # fmt: skip


def collection(one: dict[str, Any]) -> str:
    """The path where an object of this kind is made."""
    version, namespace = one["apiVersion"], one["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/{f'namespaces/{namespace}/' if namespace else ''}{PLURALS[one['kind']]}"


def may_create(api: Api, one: dict[str, Any]) -> bool:
    """Whether this user may make an object."""
    group = one["apiVersion"].rpartition("/")[0]
    return api.may("create", group, PLURALS[one["kind"]], namespace=one["metadata"].get("namespace", ""))


def create(api: Api, objects: Sequence[dict[str, Any]]) -> None:
    """Make objects; those that are there, as after a campaign that was killed, are taken as they are."""
    for one in objects:
        try:
            api.create(collection(one), one)
        except ApiRejected as refused:
            if refused.status != 409:
                raise PrerequisiteError(
                    f"{one['kind']} {one['metadata']['name']} is refused: {refused.message}",
                    "may this user make it? a quota or a policy may stand against it too",
                ) from refused


def await_replicas(api: Api, one: dict[str, Any], timeout_s: float) -> tuple[int, int]:
    """(ready, wanted) pods of a StatefulSet or DaemonSet, once they are equal or the time is over."""
    query = {"fieldSelector": f"metadata.name={one['metadata']['name']}"}
    end = time.monotonic() + timeout_s
    found = (0, -1)
    while time.monotonic() < end:
        listed = api.get(collection(one), **query)
        for item in listed["items"]:
            found = replicas(one["kind"], item)
        if found[0] == found[1]:
            return found
        version = listed["metadata"]["resourceVersion"]
        left = max(1.0, end - time.monotonic())
        for event in api.watch(collection(one), for_s=left, resourceVersion=version, **query):
            if event["type"] == "MODIFIED":
                found = replicas(one["kind"], event["object"])
            if found[0] == found[1] or event["type"] == "ERROR":
                break
    return found


def replicas(kind: str, one: dict[str, Any]) -> tuple[int, int]:
    """(ready, wanted) as an object's status says; wanted is -1 until a controller has seen it."""
    status = one.get("status") or {}
    if status.get("observedGeneration", 0) < one["metadata"].get("generation", 1):
        return 0, -1
    if kind == "DaemonSet":
        return status.get("numberReady", 0), status.get("desiredNumberScheduled", -1)
    return status.get("readyReplicas", 0), one["spec"]["replicas"]
