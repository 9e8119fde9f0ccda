"""Provide a deployed cluster for these tests, with users that have minimal rights."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ruamel.yaml import YAML

from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import CORE, ApiError, KubernetesClient
from k8sdds.system.paths import shared
from k8sdds.testbeds.cluster import namespace as campaign_namespace
from tests.clusters import Deployed
from tests.conftest import K8SDDS, environment
from tests.measuring import ENDS_S, Command, running, wait

USER = "k8sdds-test"
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


@pytest.fixture(scope="session")
def admin(one_machine: Deployed) -> KubernetesClient:
    """The client of an administrator, to prepare and inspect; campaigns never use it."""
    return KubernetesClient.from_kubeconfig(one_machine.kubeconfig, None)


def account(
    admin: KubernetesClient, one_machine: Deployed, name: str, folder: Path
) -> tuple[Path, dict[str, str]]:
    """Create a user without rights; return its kubeconfig and the subject for bindings."""
    path = f"{CORE}/namespaces/default/serviceaccounts"
    if admin.find(f"{path}/{name}") is None:
        admin.create(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 7200},
    }
    token = admin.create(f"{path}/{name}/token", request)["status"]["token"]
    config = yaml.safe_load(one_machine.kubeconfig.read_text())
    config["users"] = [{"name": name, "user": {"token": token}}]
    config["contexts"] = [
        {"name": "test", "context": {"cluster": config["clusters"][0]["name"], "user": name}}
    ]
    config["current-context"] = "test"
    assert base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
    kubeconfig = folder / f"{name}.conf"
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(config))
    return kubeconfig, {"kind": "ServiceAccount", "namespace": "default", "name": name}


@pytest.fixture(scope="session")
def user(admin: KubernetesClient, one_machine: Deployed, tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user with only the rights of deploy/rights/cluster.yaml."""
    kubeconfig, subject = account(admin, one_machine, USER, tmp_path_factory.mktemp("user"))
    apply(admin, rights("cluster", subject))
    return User(kubeconfig, ("--testbed", "cluster", "--kubeconfig", str(kubeconfig)))


@pytest.fixture
def k8sdds(user: User, tmp_path: Path) -> Command:
    """Run the command as a user with minimal rights, in an empty folder."""

    def run(*args: str, timeout_s: float = 600, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(K8SDDS), *args], capture_output=True, text=True, timeout=timeout_s, cwd=tmp_path,
            env=environment(tmp_path), stdin=subprocess.DEVNULL, **more,
        )  # fmt: skip

    return run


@pytest.fixture(params=[False, True], ids=["restricted", "privileged"])
def namespace(request: pytest.FixtureRequest, admin: KubernetesClient) -> Iterator[tuple[str, bool]]:
    """A campaign's namespace: its name, and whether it allows pods on the nodes' own network."""
    purpose = request.path.stem.replace("_", "-")  # a namespace with the same name may still be terminating
    manifest = campaign_namespace.manifest(
        f"{purpose}-{request.param}".lower(), purpose, privileged=request.param
    )
    admin.create(f"{CORE}/namespaces", manifest)
    yield manifest["metadata"]["name"], request.param
    admin.delete(f"{CORE}/namespaces/{manifest['metadata']['name']}")


@pytest.fixture
def nothing_left(admin: KubernetesClient) -> Iterator[None]:
    """Fail the test if a campaign leaves a namespace that is not being deleted."""
    yield
    for item in admin.get(f"{CORE}/namespaces", labelSelector=leases.SELECTOR)["items"]:
        assert "deletionTimestamp" in item["metadata"], item["metadata"]["name"]
        campaign_namespace.wait_deleted(admin, item["metadata"]["name"])


__all__ = ["ENDS_S", "ApiError", "Command", "User", "account", "apply", "rights", "running", "wait"]
