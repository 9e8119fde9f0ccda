"""Provide a deployed cluster for these tests, with users that have minimal rights."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.testbeds.cluster import namespace as campaign_namespace
from tests.clusters import Deployed
from tests.commands import K8SDDS, environment
from tests.measuring import ENDS_S, Command, running, wait
from tests.users import User, with_cluster_rights

USER = "k8sdds-test"


@pytest.fixture(scope="session")
def admin(one_machine: Deployed) -> KubernetesClient:
    """The client of an administrator, to prepare and inspect; campaigns never use it."""
    return KubernetesClient.from_kubeconfig(one_machine.kubeconfig, None)


@pytest.fixture(scope="session")
def user(admin: KubernetesClient, one_machine: Deployed, tmp_path_factory: pytest.TempPathFactory) -> User:
    """A user with only the rights of deploy/rights/cluster.yaml."""
    return with_cluster_rights(admin, one_machine.kubeconfig, USER, tmp_path_factory.mktemp("user"))


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
        campaign_namespace.wait_deleted(admin, item["metadata"]["name"], ENDS_S)


__all__ = ["ENDS_S", "Command", "User", "running", "wait"]
