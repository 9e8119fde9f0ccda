"""Measure on clusters that others built: few rights and strict namespaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.testbeds.cluster import namespace as campaign_namespace
from tests.cluster.conftest import Command, User, account, apply, rights
from tests.clusters import Deployed
from tests.measuring import valid_attempts

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.long]

SHORT = ("--repeat", "1", "--duration", "0.5", "--set", "test=latency")
"""Two trials of the quickstart, one on each of two networks."""


def checked(k8sdds: Command, *args: str) -> str:
    """Run a command that must succeed; return all of its output."""
    done = k8sdds(*args)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def refused(k8sdds: Command, *args: str, code: int = 3) -> str:
    """Run a command that must fail; return its message in one line."""
    done = k8sdds(*args)
    assert done.returncode == code and "Traceback" not in done.stderr, (
        done.returncode,
        done.stdout + done.stderr,
    )
    return " ".join(done.stderr.split())


# -- rights -----------------------------------------------------------------------------------------------

FEW = "k8sdds-few"


def without(objects: list[dict[str, Any]], verb: str, resource: str) -> list[dict[str, Any]]:
    """Return a copy of objects of which no role grants a right."""
    copies: list[dict[str, Any]] = json.loads(json.dumps(objects))
    for rule in (rule for each in copies for rule in each.get("rules", ())):
        if resource in rule["resources"] and verb in rule["verbs"]:
            rule["verbs"] = [each for each in rule["verbs"] if each != verb] or ["none"]
    return copies


def test_each_missing_right_is_named(
    k8sdds: Command, admin: KubernetesClient, user: User, one_machine: Deployed, tmp_path: Path
) -> None:
    """Before anything is created, and without one of them alone."""
    kubeconfig, subject = account(admin, one_machine, FEW, tmp_path)
    role, _, binding = rights("cluster", subject)
    for each in (role, binding):
        each["metadata"]["name"] = FEW
    binding["roleRef"]["name"] = FEW
    options = ("--testbed", "cluster", "--kubeconfig", str(kubeconfig), "--dry-run")
    needed = [("create", "namespaces"), ("get", "namespaces"), ("list", "namespaces"), ("delete", "namespaces"),
              ("list", "nodes"), ("create", "rolebindings"), ("bind", "clusterroles")]  # fmt: skip
    for verb, resource in needed:
        apply(admin, without([role, binding], verb, resource))
        message = refused(k8sdds, "run", "quickstart", *options)
        assert (
            f"not allowed on this cluster: {verb} {resource}" in message and "k8sdds init rights" in message
        )
        assert message.count("not allowed") == 1 and f"{verb} {resource}," not in message
    apply(admin, without([role, binding], "list", "daemonsets"))
    assert "unknown" in checked(k8sdds, "run", "quickstart", *options)
    for name in ("clusterrolebindings", "clusterroles"):
        admin.delete(f"/apis/rbac.authorization.k8s.io/v1/{name}/{FEW}")


@pytest.mark.parametrize("right", [("watch", "pods"), ("create", "pods/exec"), ("list", "events")])
def test_a_campaign_role_without_a_right_is_named(
    k8sdds: Command, admin: KubernetesClient, user: User, right: tuple[str, str]
) -> None:
    """The check cannot read the role, so that the right is missing in the namespace of the campaign."""
    _, role, _ = rights("cluster", {})
    try:
        apply(admin, without([role], *right))
        message = refused(k8sdds, "run", "quickstart", *user.options, *SHORT)
    finally:
        apply(admin, [role])
    assert f"does not allow: {' '.join(right)}" in message and "k8sdds init rights" in message


# -- a prepared namespace ---------------------------------------------------------------------------------


def test_a_restricted_namespace_is_measured_without_host(
    k8sdds: Command, admin: KubernetesClient, one_machine: Deployed, tmp_path: Path
) -> None:
    kubeconfig, subject = account(admin, one_machine, "k8sdds-guest", tmp_path)
    objects = rights("namespace", subject)
    objects[0]["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    apply(admin, objects)
    run = ("run", "quickstart", "--testbed", "cluster", "--kubeconfig", str(kubeconfig), *SHORT)
    run = (*run, "--namespace", "k8sdds-lab")
    message = refused(k8sdds, *run, "--dry-run")
    assert "hostNetwork=true" in message and "--set networks=NETWORK --set baseline=NETWORK" in message
    checked(k8sdds, *run, "--set", "networks=unknown", "--set", "baseline=unknown", "-o", "run")
    (row,) = valid_attempts(tmp_path / "run")
    assert row["network"] == "unknown"
    admin.delete(f"{CORE}/namespaces/k8sdds-lab")
    campaign_namespace.wait_deleted(admin, "k8sdds-lab")
