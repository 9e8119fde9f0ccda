"""Verify the policies of an application on a real cluster: Flannel does not enforce them, the real kube-router next to it does."""

from __future__ import annotations

import base64
import gzip
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.bundle import golang
from k8sdds.bundle.contents import HOST_ARCH, Program
from k8sdds.deploy.network_switch import footprint, node_state
from k8sdds.deploy.network_switch.footprint import NetworkLeftover
from k8sdds.kubernetes import apply, leases
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.testbeds.cluster import namespace, pods
from k8sdds.testbeds.cluster.pods import Slot
from tests.cluster.conftest import ENDS_S, Command, User
from tests.cluster.switched import KUBECTL, inside_of
from tests.clusters import Deployed
from tests.commands import K8SDDS, environment
from tests.measuring import valid_attempts
from tests.users import account, rights
from tests.users import apply as grant

pytestmark = pytest.mark.usefixtures("nothing_left")

VERSION, MODULE = "2.1.0", "github.com/cloudnativelabs/kube-router/v2"
PROGRAM = Program(
    "kube-router", VERSION, str(Path(__file__).parent / "kube_router"), f"{MODULE}/cmd/kube-router"
)
PATH = "/opt/kube-router"
"""The program on a node, in place of an image."""
ARGS = ["--run-firewall=true", "--run-router=false", "--run-service-proxy=false"]
AGENT = ("-n", versions.NETWORK_NAMESPACE, "daemonset/kube-router")
APPLICATION = """\
name: robot
nodes:
  camera: {publishes: [images]}
  planner: {subscribes: [images], publishes: [commands]}
  arm: {subscribes: [commands]}
flows:
  - {name: images, payload_bytes: 1000, rate: 10}
  - {name: commands, payload_bytes: 100, rate: 10}
"""


@pytest.fixture
def application(tmp_path: Path) -> str:
    file = tmp_path / "robot.yaml"
    file.write_text(APPLICATION)
    return str(file)


def objects() -> list[dict[str, Any]]:
    """Return the objects of our manifest of kube-router, which enforces policies only, without those of its routing."""
    _, *others, agent = apply.read_manifest("networks/kube-router/manifest.yaml")
    spec = agent["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    del spec["initContainers"]
    container |= {"image": versions.TOOLS_IMAGE, "imagePullPolicy": "Never", "command": [PATH], "args": ARGS}
    # Two volumes are of its CNI configuration.
    kept = ("modules", "xtables-lock")
    program = {"name": "program", "hostPath": {"path": PATH}}
    spec["volumes"] = [program, *(each for each in spec["volumes"] if each["name"] in kept)]
    mounts = [each for each in container["volumeMounts"] if each["name"] in kept]
    container["volumeMounts"] = [{"name": "program", "mountPath": PATH}, *mounts]
    return [*(each for each in others if each["kind"] != "ConfigMap"), agent]


@pytest.fixture
def kube_router(one_machine: Deployed) -> Iterator[None]:
    """Let kube-router enforce policies for the pods of Flannel, and remove it with its rules."""
    inside = inside_of(one_machine)
    built = golang.build(PROGRAM, HOST_ARCH, print).read_bytes()
    text = base64.b64encode(gzip.compress(built)).decode()
    for node in one_machine.nodes:
        inside(node, "sh", "-c", f"base64 -d | gzip -d > {PATH} && chmod 755 {PATH}", stdin=text)
    made = apply.list_document(objects())
    try:
        inside(one_machine.nodes[0], *KUBECTL, "apply", "-f", "-", stdin=made)
        one_machine.kubectl("rollout", "status", *AGENT, "--timeout=180s")
        yield
    finally:
        inside(
            one_machine.nodes[0], *KUBECTL, "delete", "--cascade=foreground", "--wait", "-f", "-", stdin=made
        )
        for node in one_machine.nodes:
            inside(node, "sh", stdin=footprint.removal_script(leftovers(inside, node)))
            inside(node, "rm", PATH)
            assert leftovers(inside, node) == []


def leftovers(inside: Callable[..., str], node: str) -> list[NetworkLeftover]:
    state = node_state.parse(inside(node, "sh", stdin=footprint.probe_script()))
    return footprint.leftovers(state, [], [], ["kube-router"])


@pytest.mark.long  # waits until the network's agents would have enforced them
def test_flannel_does_not_enforce_policies(k8sdds: Command, user: User, application: str) -> None:
    done = k8sdds("policy", application, "--verify", *user.options)
    assert done.returncode == 7, done.stderr
    assert "does not enforce policies: all that they refuse has passed" in done.stderr
    assert "refused   a stranger to camera, UDP 7410: answered (NOT AS STATED)" in done.stdout
    assert done.stdout.count("refused ") == done.stdout.count("NOT AS STATED")
    assert done.stdout.count("samples arrived (as stated)") == 2


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        ("--middleware", "cyclonedds"),
        ("--middleware", "fastdds", "--domain", "7", "--discovery", "server"),
        ("--middleware", "zenoh"),
        ("--middleware", "zenoh", "--discovery", "server"),
    ],
    ids=" ".join,
)
def test_kube_router_enforces_policies(
    kube_router: None, k8sdds: Command, user: User, application: str, options: tuple[str, ...]
) -> None:
    done = k8sdds("policy", application, "--verify", *options, *user.options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT AS STATED" not in done.stdout
    assert done.stdout.count("samples arrived (as stated)") == 2
    assert "refused   camera to arm, " in done.stdout and "refused   camera, a stranger: " in done.stdout


DENY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny-all", "namespace": "k8sdds-lab"},
    "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
}


@pytest.mark.long
def test_a_campaign_needs_a_policy_where_traffic_is_refused_by_default(
    kube_router: None, k8sdds: Command, admin: KubernetesClient, one_machine: Deployed, tmp_path: Path
) -> None:
    kubeconfig, subject = account(admin, one_machine.kubeconfig, "k8sdds-guest", tmp_path)
    grant(admin, rights("namespace", subject))
    policies = "/apis/networking.k8s.io/v1/namespaces/k8sdds-lab/networkpolicies"
    admin.create(policies, DENY)
    run = ["run", "quickstart", "--testbed", "cluster", "--kubeconfig", str(kubeconfig), "--repeat", "1"]
    run += ["--duration", "0.5", "--namespace", "k8sdds-lab", "--set", "test=latency", "-o", "run"]
    # Until kube-router knows new pods, all packets pass.
    refused = next((done for done in (k8sdds(*run[:-2]) for _ in range(5)) if done.returncode == 3), None)
    assert refused is not None
    message = " ".join(refused.stderr.split())
    assert "does not answer" in message and "one of these NetworkPolicies may refuse it: deny-all" in message
    (allow,) = rights("network-policy", {})
    admin.create(policies, allow)
    done = k8sdds(*run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {row["network"] for row in valid_attempts(tmp_path / "run")} == {"host", "unknown"}
    admin.delete(f"{CORE}/namespaces/k8sdds-lab")
    namespace.wait_deleted(admin, "k8sdds-lab", ENDS_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_stopped_verification_deletes_its_namespace(
    admin: KubernetesClient, user: User, application: str, tmp_path: Path, number: signal.Signals
) -> None:
    command = [str(K8SDDS), "policy", application, "--verify", *user.options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env=environment(tmp_path),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert any("must reach each other" in line for line in process.stdout)
        process.send_signal(number)
        _, errors = process.communicate(timeout=ENDS_S)
    assert process.returncode == (130 if number == signal.SIGINT else 5), errors
    assert "the namespace of the test is being deleted" in errors
    for item in admin.get(f"{CORE}/namespaces", labelSelector=leases.SELECTOR)["items"]:
        assert "deletionTimestamp" in item["metadata"]


def test_the_first_pod_of_a_campaign_is_admitted(user: User) -> None:
    """The API server has observed the binding of the campaign role before the namespace is used."""
    client = KubernetesClient.from_kubeconfig(user.kubeconfig, None)
    slot = Slot("test", "test", "worker1", host=False)
    for number in range(20):
        own = namespace.create(client, f"binding-{number}", None, privileged=False)
        try:
            body = pods.pod("test", slot, versions.PERFTEST_IMAGE, own.campaign, pods.memory_bytes([]))
            client.create(own.pods, body, dryRun="All")
        finally:
            own.delete()
