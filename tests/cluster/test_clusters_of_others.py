"""Measure on clusters that others built: few rights, a private registry, strict namespaces, taints, networks of clouds."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.nodes import records
from k8sdds.testbeds.cluster import namespace as campaign_namespace
from k8sdds.testbeds.selection import sibling_image
from tests.cluster.conftest import ENDS_S, Command, User
from tests.cluster.switched import inside_of
from tests.clusters import Deployed
from tests.deploy import registries
from tests.measuring import valid_attempts
from tests.users import account, apply, rights

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
    kubeconfig, subject = account(admin, one_machine.kubeconfig, FEW, tmp_path)
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


# -- a private registry -----------------------------------------------------------------------------------

PORT = 5000
IMAGE = sibling_image(f"127.0.0.1:{PORT}/lab/any", versions.PERFTEST_IMAGE)
FORGET = f"""
systemctl stop kubelet
rm -rf /var/lib/kubelet/image_manager/pulled
ctr -n k8s.io images ls -q | grep ^127.0.0.1:{PORT}/ | xargs -r ctr -n k8s.io images rm
systemctl start kubelet
"""
"""Remove pulled images. The kubelet records that pulls needed a login, also for the same images with other names."""
LOGIN = "puller:correct-horse-battery"


@pytest.fixture
def registry(one_machine: Deployed, tmp_path: Path) -> Iterator[None]:
    """Run a registry that requires a login on the loopback interface of each node, and remove pulled images."""
    folder = tmp_path / "registry"
    folder.mkdir()
    with registries.running(folder) as address:
        done = one_machine.k8sdds(
            "images", "push", f"{address}/lab", "perftest", "tools", "discovery-server", "--plain-http"
        )
        assert done.returncode == 0, done.stderr
    registries.htpasswd(folder / "htpasswd", LOGIN)
    settings = folder / "private.yml"
    settings.write_text(
        registries.settings(folder, f"127.0.0.1:{PORT}")
        + f"auth: {{htpasswd: {{realm: lab, path: {folder}/htpasswd}}}}\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K8SDDS_STATE_DIR", str(one_machine.state))
        record = records.read(one_machine.name)
    assert record is not None
    with contextlib.ExitStack() as stack:
        for node in one_machine.nodes:
            argv = ["nsenter", "--target", str(record.machines[node].pid), "--net", "--"]
            argv += ["docker-registry", "serve", str(settings)]
            process = stack.enter_context(
                subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.kill)
        yield
    for node in one_machine.nodes:
        inside_of(one_machine)(node, "sh", "-ec", FORGET)


def encoded(login: str) -> str:
    return base64.b64encode(login.encode()).decode()


def login_file(folder: Path, login: str, host: str = f"127.0.0.1:{PORT}") -> str:
    path = folder / "login.json"
    path.touch(0o600)
    entry = {"auth": encoded(login)}
    path.write_text(json.dumps({"auths": {host: entry, "https://index.docker.io/v1/": {"auth": "eDp5"}}}))
    return str(path)


def test_images_are_pulled_with_a_login(
    registry: None, k8sdds: Command, user: User, admin: KubernetesClient, tmp_path: Path
) -> None:
    run = ("run", "quickstart", *user.options, *SHORT, "--image", IMAGE)
    message = refused(k8sdds, *run)
    assert f'"{IMAGE}"' in message and "use --image-login" in message
    message = refused(k8sdds, *run, "--image-login", login_file(tmp_path, LOGIN, "registry.example"), code=2)
    assert f"has no login to 127.0.0.1:{PORT}" in message and "skopeo login --authfile" in message
    message = refused(k8sdds, *run, "--image-login", login_file(tmp_path, "puller:wrong"))
    assert "401" in message or "unauthorized" in message.lower(), message
    more = ("--meter", "--set", "discovery=server", "--set", "middleware=fastdds", "-o", "run")
    checked(k8sdds, *run, "--image-login", login_file(tmp_path, LOGIN), *more)
    assert {row["network"] for row in valid_attempts(tmp_path / "run")} == {"host", "flannel-vxlan"}
    readings = (tmp_path / "run/readings.jsonl").read_text()
    assert '"kind": "node"' in readings
    written = [file.read_text("latin-1") for file in (tmp_path / "run").rglob("*") if file.is_file()]
    assert not any(secret in text for text in written for secret in (LOGIN, encoded(LOGIN)))


# -- a prepared namespace ---------------------------------------------------------------------------------


def test_a_restricted_namespace_is_measured_without_host(
    k8sdds: Command, admin: KubernetesClient, one_machine: Deployed, tmp_path: Path
) -> None:
    kubeconfig, subject = account(admin, one_machine.kubeconfig, "k8sdds-guest", tmp_path)
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
    message = refused(k8sdds, *run, "--image-login", login_file(tmp_path, LOGIN), "--image", IMAGE, code=2)
    assert "imagePullSecrets of its ServiceAccount default" in message
    admin.delete(f"{CORE}/namespaces/k8sdds-lab")
    campaign_namespace.wait_deleted(admin, "k8sdds-lab", ENDS_S)


# -- taints -----------------------------------------------------------------------------------------------


@pytest.fixture
def tainted(one_machine: Deployed) -> Iterator[str]:
    """Taint both workers, as administrators do, and return the taint as `--tolerate` names it."""
    for node in one_machine.nodes[1:]:
        one_machine.kubectl("taint", "node", node, "dedicated=robots:NoSchedule")
    yield "dedicated:NoSchedule"
    for node in one_machine.nodes[1:]:
        one_machine.kubectl("taint", "node", node, "dedicated-")


def test_tainted_nodes_are_used_on_request(tainted: str, k8sdds: Command, user: User, tmp_path: Path) -> None:
    message = refused(k8sdds, "run", "quickstart", *user.options, *SHORT)
    assert f"worker1: taint {tainted}" in message and f"--tolerate {tainted}" in message
    checked(k8sdds, "run", "quickstart", *user.options, *SHORT, "--tolerate", tainted, "-o", "run")
    assert {row["network"] for row in valid_attempts(tmp_path / "run")} == {"host", "flannel-vxlan"}
    campaign = json.loads((tmp_path / "run/campaign.json").read_text())
    assert campaign["testbed"]["facts"]["reached"]["tolerate"] == tainted
