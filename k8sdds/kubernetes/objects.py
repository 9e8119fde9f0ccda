"""Create Kubernetes objects of any kind and wait until their pods are ready."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from k8sdds.kubernetes.client import SERVER_SIDE_APPLY, ApiError, KubernetesClient, api_root
from k8sdds.system.errors import PrerequisiteError


def collection_path(client: KubernetesClient, obj: dict[str, Any]) -> str:
    """Return the URL path of the collection that an object belongs to."""
    version, namespace = obj["apiVersion"], obj["metadata"].get("namespace")
    scope = f"namespaces/{namespace}/" if namespace else ""
    return f"{api_root(version)}/{scope}{client.resource(version, obj['kind'])}"


def may_create(client: KubernetesClient, obj: dict[str, Any]) -> bool:
    """Return whether this user may create an object."""
    version = obj["apiVersion"]
    resource = client.resource(version, obj["kind"])
    namespace = obj["metadata"].get("namespace", "")
    return client.is_allowed("create", version.rpartition("/")[0], resource, namespace=namespace)


def create(client: KubernetesClient, objects: Sequence[dict[str, Any]]) -> None:
    """Create objects. An object that already exists, for example after a killed campaign, is kept unchanged."""
    for obj in objects:
        try:
            client.create(collection_path(client, obj), obj)
        except ApiError as error:
            if error.status != 409:
                raise _rejected("create", obj, error) from error


def apply(client: KubernetesClient, objects: Sequence[dict[str, Any]]) -> None:
    """Create or change objects (server-side apply). k8sdds then owns all their fields."""
    options = {"fieldManager": "k8sdds", "force": "true", "fieldValidation": "Strict"}
    for obj in objects:
        try:
            client.patch(_path(client, obj), obj, SERVER_SIDE_APPLY, **options)
        except ApiError as error:
            raise _rejected("apply", obj, error) from error


def _rejected(what: str, obj: dict[str, Any], error: ApiError) -> PrerequisiteError:
    return PrerequisiteError(
        f"cannot {what} {obj['kind']} {obj['metadata']['name']}: {error.message}", error.remedy
    )


def find_all(
    client: KubernetesClient, kinds: Sequence[tuple[str, str]], selector: str
) -> list[dict[str, Any]]:
    """Return the objects of these kinds (apiVersion, kind) with matching labels, in all namespaces."""
    found = []
    for version, kind in kinds:
        listed = client.get(f"{api_root(version)}/{client.resource(version, kind)}", labelSelector=selector)
        # The items of a list do not have these keys.
        found += [{**item, "apiVersion": version, "kind": kind} for item in listed["items"]]
    return found


def delete(
    client: KubernetesClient, objects: Sequence[dict[str, Any]], propagation: str = "Background"
) -> None:
    """Start to delete objects, which may have been deleted already."""
    for obj in objects:
        client.delete(_path(client, obj), propagation=propagation)


def await_deletion(client: KubernetesClient, objects: Sequence[dict[str, Any]], timeout_s: float) -> None:
    """Wait until none of these objects exists. Another object may have got the name of one of them."""
    end = time.monotonic() + timeout_s
    for obj in objects:
        path, uid = _path(client, obj), obj["metadata"]["uid"]
        while (now := client.find(path)) is not None and now["metadata"]["uid"] == uid:
            if time.monotonic() > end:
                metadata = obj["metadata"]
                name = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
                raise PrerequisiteError(
                    f"{obj['kind']} {name} was not deleted within {timeout_s:g} s",
                    "see: kubectl describe; a finalizer, or a node that is down, may prevent it",
                )
            time.sleep(0.2)


def _path(client: KubernetesClient, obj: dict[str, Any]) -> str:
    return f"{collection_path(client, obj)}/{obj['metadata']['name']}"


def condition(obj: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the condition of this type in an object's status; empty if the status does not have it."""
    conditions: list[dict[str, Any]] = obj.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each.get("type") == kind), {})


def image(obj: dict[str, Any]) -> str:
    """Return the image of the first container of a StatefulSet or DaemonSet."""
    return str(obj["spec"]["template"]["spec"]["containers"][0]["image"])


def wait_for_replicas(client: KubernetesClient, obj: dict[str, Any], timeout_s: float) -> tuple[int, int]:
    """Wait until all pods of a StatefulSet or DaemonSet are ready, at most `timeout_s`.

    Returns the number of ready pods and of desired pods (-1: not known yet).
    """
    path, query = collection_path(client, obj), {"fieldSelector": f"metadata.name={obj['metadata']['name']}"}
    end = time.monotonic() + timeout_s
    counts = (0, -1)
    while time.monotonic() < end:
        listing = client.get(path, **query)
        for item in listing["items"]:
            counts = replicas(obj["kind"], item)
        if counts[0] == counts[1]:
            return counts
        version = listing["metadata"]["resourceVersion"]
        remaining_s = max(1.0, end - time.monotonic())
        for event in client.watch(path, for_s=remaining_s, resourceVersion=version, **query):
            if event["type"] == "MODIFIED":
                counts = replicas(obj["kind"], event["object"])
            if counts[0] == counts[1] or event["type"] == "ERROR":
                break
    return counts


def replicas(kind: str, obj: dict[str, Any]) -> tuple[int, int]:
    """Return the number of ready and of desired pods of a StatefulSet or DaemonSet.

    The desired number is -1 until a controller has observed the object's current generation.
    """
    status = obj.get("status") or {}
    if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 1):
        return 0, -1
    if kind == "DaemonSet":
        return status.get("numberReady", 0), status.get("desiredNumberScheduled", -1)
    return status.get("readyReplicas", 0), obj["spec"]["replicas"]
