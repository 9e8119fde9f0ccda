"""Create users of a cluster, with only the rights that a manifest of deploy/rights grants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ruamel.yaml import YAML

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.system.paths import shared

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "Namespace": f"{CORE}/namespaces", "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings", "Role": f"{RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{}}/rolebindings",
}  # fmt: skip


@dataclass(frozen=True)
class User:
    """A user who measures."""

    kubeconfig: Path
    options: tuple[str, ...]
    """Options for `k8sdds run`."""


def apply(client: KubernetesClient, objects: list[dict[str, Any]]) -> None:
    """Create these objects, replacing those of an earlier test."""
    for obj in objects:
        path = PATHS[obj["kind"]].format(obj["metadata"].get("namespace", ""))
        if obj["kind"] != "Namespace":
            client.delete(f"{path}/{obj['metadata']['name']}")
        elif client.find(f"{path}/{obj['metadata']['name']}"):
            continue
        client.create(path, obj)


def rights(name: str, subject: dict[str, str]) -> list[dict[str, Any]]:
    """Return the objects of a manifest in deploy/rights for this subject."""
    text = (shared("deploy") / "rights" / f"{name}.yaml").read_text()
    objects = list(YAML(typ="safe").load_all(text))
    for obj in objects:
        if "subjects" in obj:
            obj["subjects"] = [subject]
    return objects


def account(
    admin: KubernetesClient, kubeconfig: Path, name: str, folder: Path
) -> tuple[Path, dict[str, str]]:
    """Create a user without rights, with the server of the administrator's `kubeconfig`.

    Return the user's kubeconfig and the subject for bindings.
    """
    path = f"{CORE}/namespaces/default/serviceaccounts"
    if admin.find(f"{path}/{name}") is None:
        admin.create(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 7200},
    }
    token = admin.create(f"{path}/{name}/token", request)["status"]["token"]
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": name, "user": {"token": token}}]
    config["contexts"] = [
        {"name": "test", "context": {"cluster": config["clusters"][0]["name"], "user": name}}
    ]
    config["current-context"] = "test"
    own = folder / f"{name}.conf"
    own.touch(mode=0o600)
    own.write_text(yaml.safe_dump(config))
    return own, {"kind": "ServiceAccount", "namespace": "default", "name": name}


def with_cluster_rights(admin: KubernetesClient, kubeconfig: Path, name: str, folder: Path) -> User:
    """Create a user with only the rights of deploy/rights/cluster.yaml."""
    own, subject = account(admin, kubeconfig, name, folder)
    apply(admin, rights("cluster", subject))
    return User(own, ("--testbed", "cluster", "--kubeconfig", str(own)))
