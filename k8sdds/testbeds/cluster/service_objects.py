"""Build the manifests of the Services of a trial, and of the slices with their endpoint. Pure functions.

All have the server's pod as their only endpoint, and it owns them: Kubernetes deletes them with the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from k8sdds import versions
from k8sdds.model.services import HEADLESS, NODE_PORT, Via
from k8sdds.workloads.tools.transactions import PORT

_FAMILIES = {True: "IPv6", False: "IPv4"}


def service(
    name: str, namespace: str, via: Via, pod: Mapping[str, Any], address: str, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return a Service without a selector.

    Args:
        name: Its name.
        namespace: Its namespace, that of the pod.
        via: Kind of its address.
        pod: The server's pod.
        address: Address of this pod, whose IP family the Service has.
        labels: Labels of the Service.
    """
    owner = {key: pod["metadata"][key] for key in ("name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", **owner}],
        },
        "spec": {
            "type": "NodePort" if via == NODE_PORT else "ClusterIP",
            **({"clusterIP": "None"} if via == HEADLESS else {}),
            "ports": [{"port": PORT, "targetPort": PORT, "protocol": "TCP"}],
            "ipFamilies": [_FAMILIES[":" in address]],
            "ipFamilyPolicy": "SingleStack",
        },
    }


def endpoint_slice(created: Mapping[str, Any], node: str, address: str) -> dict[str, Any]:
    """Return the slice with the endpoint of a Service that was created.

    Args:
        created: The Service, as the API server returned it.
        node: Node of the server's pod.
        address: Address of the server's pod.
    """
    metadata = created["metadata"]
    owner = {key: metadata[key] for key in ("name", "uid")}
    of_slice = {
        "kubernetes.io/service-name": metadata["name"],
        "endpointslice.kubernetes.io/managed-by": versions.MANAGED_BY,
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {**metadata["labels"], **of_slice},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", **owner}],
        },
        "addressType": _FAMILIES[":" in address],
        "endpoints": [{"addresses": [address], "nodeName": node, "conditions": {"ready": True}}],
        "ports": [{"port": PORT, "protocol": "TCP"}],
    }
