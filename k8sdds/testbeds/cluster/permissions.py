"""Check and grant the rights that a campaign needs on a cluster; docs/reference/cluster.md shows the manifests."""

from __future__ import annotations

from collections.abc import Iterable

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.system.errors import Problem

NODES = f"{CORE}/nodes"
NAMESPACES = f"{CORE}/namespaces"

IN_NAMESPACE = (
    ("create", "", "pods"), ("get", "", "pods"), ("list", "", "pods"), ("watch", "", "pods"),
    ("delete", "", "pods"), ("create", "", "pods/exec"), ("get", "", "pods/exec"), ("list", "", "events"),
)  # fmt: skip
"""Rights in the campaign's namespace: (verb, API group, resource)."""
CLUSTER_WIDE = (
    ("create", "", "namespaces"), ("get", "", "namespaces"), ("list", "", "namespaces"),
    ("watch", "", "namespaces"), ("delete", "", "namespaces"), ("list", "", "nodes"),
)  # fmt: skip
"""Rights that a campaign needs to create its own namespace."""
CAMPAIGN_ROLE = "k8sdds-campaign"
"""ClusterRole in deploy/rights/cluster.yaml that users may bind to themselves in a campaign's namespace."""
CREATE_BINDING = ("create", "rbac.authorization.k8s.io", "rolebindings")


def missing_rights(client: KubernetesClient, namespace: str | None) -> list[Problem]:
    """Return the rights that this user needs and does not have.

    Args:
        client: The cluster and the user.
        namespace: A prepared namespace; None: the campaign creates its own.
    """
    if namespace is not None:
        missing = [
            _describe(right) for right in IN_NAMESPACE if not client.is_allowed(*right, namespace=namespace)
        ]
        remedy = f"let an administrator grant them in {namespace}: k8sdds init rights --like namespace"
        where = f"in namespace {namespace}"
    else:
        missing = [_describe(right) for right in CLUSTER_WIDE if not client.is_allowed(*right)]
        if not _may_bind_campaign_role(client):
            missing += [_describe(right) for right in IN_NAMESPACE if not client.is_allowed(*right)]
        remedy = (
            "let an administrator grant them: k8sdds init rights; or use a namespace that an administrator has"
            " prepared: --namespace"
        )
        where = "on this cluster"
    return [Problem(f"not allowed {where}: {', '.join(missing)}", remedy)] if missing else []


def missing_in_campaign(
    client: KubernetesClient, namespace: str | None, rights: Iterable[tuple[str, str, str]]
) -> list[str]:
    """Return which rights in the campaign's namespace this user does not have. The campaign role includes all of them.

    Args:
        client: The cluster and the user.
        namespace: A prepared namespace; None: the campaign creates its own.
        rights: (verb, API group, resource).
    """
    if namespace is None and _may_bind_campaign_role(client):
        return []
    where = {"namespace": namespace} if namespace else {}
    return [_describe(right) for right in rights if not client.is_allowed(*right, **where)]


def _may_bind_campaign_role(client: KubernetesClient) -> bool:
    return client.is_allowed(*CREATE_BINDING) and client.is_allowed(
        "bind", "rbac.authorization.k8s.io", "clusterroles", name=CAMPAIGN_ROLE
    )


def bind_campaign_role(client: KubernetesClient, namespace: str) -> None:
    """Bind the campaign role to this user in a namespace, unless the user already has its rights there."""
    if client.is_allowed("create", "", "pods/exec", namespace=namespace):
        return
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
    parts = user["username"].split(":")
    if parts[:2] == ["system", "serviceaccount"]:
        subject = {"kind": "ServiceAccount", "namespace": parts[2], "name": parts[3]}
    else:
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user["username"]}
    client.create(
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": CAMPAIGN_ROLE},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CAMPAIGN_ROLE,
            },
            "subjects": [subject],
        },
    )  # fmt: skip


def can_list_nodes(client: KubernetesClient) -> bool:
    """Return whether this user may list nodes. If not, the scheduler places the participants."""
    return client.is_allowed("list", "", "nodes")


def _describe(right: tuple[str, str, str]) -> str:
    verb, _, resource = right
    return f"{verb} {resource}"
