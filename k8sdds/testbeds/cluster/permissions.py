"""What this user may do on the cluster, against what a campaign needs. docs/cluster.md has the manifests."""

from __future__ import annotations

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.system.errors import Problem

IN_NAMESPACE = (
    ("create", "", "pods"), ("get", "", "pods"), ("list", "", "pods"), ("watch", "", "pods"),
    ("delete", "", "pods"), ("create", "", "pods/exec"), ("get", "", "pods/exec"), ("list", "", "events"),
)  # fmt: skip
"""(verb, API group, resource)"""
WITHOUT_NAMESPACE = (
    ("create", "", "namespaces"), ("get", "", "namespaces"), ("list", "", "namespaces"),
    ("watch", "", "namespaces"), ("delete", "", "namespaces"), ("list", "", "nodes"),
)  # fmt: skip
CAMPAIGN_ROLE = "k8sdds-campaign"
"""ClusterRole that a user may bind to itself in the namespace of a campaign; deploy/rights/cluster.yaml."""
BINDING = ("create", "rbac.authorization.k8s.io", "rolebindings")


def lacks(client: KubernetesClient, namespace: str | None) -> list[Problem]:
    """What this user may not do and would have to: in a prepared namespace, or in one of its own."""
    if namespace is not None:
        missing = [_words(one) for one in IN_NAMESPACE if not client.is_allowed(*one, namespace=namespace)]
        remedy = f"deploy/rights/namespace.yaml has the Role, for an administrator to apply in {namespace}"
        return (
            [Problem(f"not allowed in namespace {namespace}: {', '.join(missing)}", remedy)]
            if missing
            else []
        )
    missing = [_words(one) for one in WITHOUT_NAMESPACE if not client.is_allowed(*one)]
    if not may_bind(client):
        missing += [_words(one) for one in IN_NAMESPACE if not client.is_allowed(*one)]
    remedy = (
        "deploy/rights/cluster.yaml has the ClusterRole, for an administrator to apply; or work in a"
        " namespace that an administrator has prepared: --namespace"
    )
    return [Problem(f"not allowed on this cluster: {', '.join(missing)}", remedy)] if missing else []


def may_bind(client: KubernetesClient) -> bool:
    """Whether this user may give itself the rights of a campaign in a namespace it has made."""
    return client.is_allowed(*BINDING) and client.is_allowed(
        "bind", "rbac.authorization.k8s.io", "clusterroles", name=CAMPAIGN_ROLE
    )


def take(client: KubernetesClient, namespace: str) -> None:
    """Bind the campaign's role to this user in its namespace, unless it may do all that already."""
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


def may_see_nodes(client: KubernetesClient) -> bool:
    """Whether the nodes may be asked for; else the scheduler places participants."""
    return client.is_allowed("list", "", "nodes")


def _words(one: tuple[str, str, str]) -> str:
    return f"{one[0]} {one[2]}"


NODES = f"{CORE}/nodes"
NAMESPACES = f"{CORE}/namespaces"
