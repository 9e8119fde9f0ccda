"""Check and grant the rights that a campaign needs on a cluster; docs/reference/cluster.md shows the manifests."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Any

import urllib3

from k8sdds.kubernetes.client import CORE, ApiError, KubernetesClient
from k8sdds.system.errors import PrerequisiteError, Problem

NODES = f"{CORE}/nodes"
NAMESPACES = f"{CORE}/namespaces"

IN_NAMESPACE = (
    ("create", "", "pods"), ("get", "", "pods"), ("list", "", "pods"), ("watch", "", "pods"),
    ("delete", "", "pods"), ("create", "", "pods/exec"), ("get", "", "pods/exec"), ("list", "", "events"),
)  # fmt: skip
"""Rights in the campaign's namespace: (verb, API group, resource)."""
CLUSTER_WIDE = (
    ("create", "", "namespaces"), ("get", "", "namespaces"), ("list", "", "namespaces"),
    ("delete", "", "namespaces"), ("list", "", "nodes"),
)  # fmt: skip
"""Rights that a campaign needs to create its own namespace."""
CAMPAIGN_ROLE = "k8sdds-campaign"
"""ClusterRole in deploy/rights/cluster.yaml that users may bind to themselves in a campaign's namespace."""
RBAC = "rbac.authorization.k8s.io"
CREATE_BINDING = ("create", RBAC, "rolebindings")
EFFECTIVE_WITHIN_S = 10
"""How long a new binding may have no effect."""


def readable(client: KubernetesClient, path: str, **query: Any) -> dict[str, Any] | None:
    """Return an object or a list; None if it does not exist, or this user may not read it."""
    try:
        return client.get(path, **query)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return None


def readable_at_once(client: KubernetesClient, path: str, **query: Any) -> dict[str, Any] | None:
    """Return an object or a list; None if one request does not return it, for whatever reason."""
    try:
        return client.get_once(path, **query)
    except (PrerequisiteError, urllib3.exceptions.HTTPError, OSError):
        return None


def readable_pods(client: KubernetesClient, namespace: str) -> list[dict[str, Any]]:
    """Return the pods of a namespace; none if this user may not list them."""
    listed = readable(client, f"{NAMESPACES}/{namespace}/pods")
    return listed["items"] if listed else []


def pods_named(client: KubernetesClient, patterns: Collection[str]) -> dict[str, dict[str, Any]]:
    """Return the pods whose NAMESPACE/NAME matches one of these patterns, by this name, if this user may list them."""
    namespaces = dict.fromkeys(pattern.partition("/")[0] for pattern in patterns)
    pods = {
        f"{namespace}/{pod['metadata']['name']}": pod
        for namespace in namespaces
        for pod in readable_pods(client, namespace)
    }
    return {name: pod for name, pod in pods.items() if any(fnmatchcase(name, each) for each in patterns)}


def missing_rights(client: KubernetesClient, namespace: str | None) -> list[Problem]:
    """Return the rights that this user lacks; without a prepared `namespace`, a campaign creates one."""
    missing = (
        [] if namespace else [_describe(right) for right in CLUSTER_WIDE if not client.is_allowed(*right)]
    )
    if in_campaign := missing_in_campaign(client, namespace, IN_NAMESPACE):
        missing += in_campaign if namespace else _missing_to_bind_role(client)
    if not missing:
        return []
    if namespace:
        where = f"in namespace {namespace}"
        remedy = f"let an administrator grant them in {namespace}: k8sdds init rights --like namespace"
    else:
        where = "on this cluster"
        remedy = (
            "let an administrator grant them: k8sdds init rights; or use a namespace that an administrator has"
            " prepared: --namespace"
        )
    return [Problem(f"not allowed {where}: {', '.join(missing)}", remedy)]


def missing_in_campaign(
    client: KubernetesClient, namespace: str | None, rights: Iterable[tuple[str, str, str]]
) -> list[str]:
    """Return which rights (verb, API group, resource) in the campaign's namespace this user does not have.

    The campaign role includes all of them. Without a prepared `namespace`, a campaign creates one.
    """
    if namespace is None and not _missing_to_bind_role(client):
        return []
    where = {"namespace": namespace} if namespace else {}
    return [_describe(right) for right in rights if not client.is_allowed(*right, **where)]


def _missing_to_bind_role(client: KubernetesClient) -> list[str]:
    missing = [] if client.is_allowed(*CREATE_BINDING) else [_describe(CREATE_BINDING)]
    may_bind = client.is_allowed("bind", RBAC, "clusterroles", name=CAMPAIGN_ROLE)
    return missing if may_bind else [*missing, f"bind clusterroles {CAMPAIGN_ROLE}"]


def bind_campaign_role(client: KubernetesClient, namespace: str) -> None:
    """Bind the campaign role to this user in a namespace, unless the user already has its rights there.

    Raises PrerequisiteError if the role does not grant all of them.
    """
    if all(client.is_allowed(*right, namespace=namespace) for right in IN_NAMESPACE):
        return
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
    parts = user["username"].split(":")
    if parts[:2] == ["system", "serviceaccount"]:
        subject = {"kind": "ServiceAccount", "namespace": parts[2], "name": parts[3]}
    else:
        subject = {"kind": "User", "apiGroup": RBAC, "name": user["username"]}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": CAMPAIGN_ROLE},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": CAMPAIGN_ROLE},
        "subjects": [subject],
    }
    client.create(f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings", binding)
    end = time.monotonic() + EFFECTIVE_WITHIN_S
    missing = [right for right in IN_NAMESPACE if not _becomes_allowed(client, right, namespace, end)]
    if missing:
        raise PrerequisiteError(
            f"the ClusterRole {CAMPAIGN_ROLE}, bound in namespace {namespace} {EFFECTIVE_WITHIN_S} s ago, does not"
            f" allow: {', '.join(map(_describe, missing))}",
            f"let an administrator apply the ClusterRole {CAMPAIGN_ROLE} again: k8sdds init rights",
        )


def _becomes_allowed(
    client: KubernetesClient, right: tuple[str, str, str], namespace: str, end: float
) -> bool:
    """Return whether a right is there before this time; the API server applies a binding when it has observed it."""
    while not client.is_allowed(*right, namespace=namespace):
        if time.monotonic() >= end:
            return False
        time.sleep(0.1)
    return True


def _describe(right: tuple[str, str, str]) -> str:
    verb, _, resource = right
    return f"{verb} {resource}"
