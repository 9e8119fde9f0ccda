"""Missing rights and refused settings of clusters are named before anything is created there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from k8sdds.cli.options import ClusterOptions
from k8sdds.cli.testbed import select
from k8sdds.kubernetes.apply import read_manifest
from k8sdds.kubernetes.client import ApiError, KubernetesClient
from k8sdds.model.trial import Cell
from k8sdds.system.errors import InputError
from k8sdds.testbeds import selection
from k8sdds.testbeds.cluster import permissions, pods, preflight
from k8sdds.testbeds.cluster.namespace import CampaignNamespace
from k8sdds.testbeds.cluster.pod_pool import ADMITTING_POLICY, PodPool, not_created


class Api:
    """An API server and a user who has all rights except these."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.status = 403

    def is_allowed(self, verb: str, group: str, resource: str, namespace: str = "", name: str = "") -> bool:
        return f"{verb} {resource}" not in self.refused

    def get_once(self, path: str, **query: Any) -> dict[str, Any]:
        if "list networkpolicies" in self.refused:
            raise ApiError(self.status, "refused")
        assert path.endswith("/n/networkpolicies") and query == {"labelSelector": "!k8sdds.io/campaign"}
        return {"items": [{"metadata": {"name": "deny-all"}}]}


@pytest.mark.parametrize(
    ("namespace", "refused", "expected"),
    [
        (None, [], ""),
        (None, ["bind clusterroles"], ""),  # and all rights of the role
        (None, ["list nodes", "create namespaces"], "on this cluster: create namespaces, list nodes"),
        (None, ["bind clusterroles", "watch pods"], "on this cluster: bind clusterroles k8sdds-campaign"),
        (None, ["create rolebindings", "watch pods"], "on this cluster: create rolebindings"),
        (None, ["watch pods"], ""),
        ("lab", ["list nodes", "watch pods"], "in namespace lab: watch pods"),
    ],
)
def test_missing_rights_are_named(namespace: str | None, refused: list[str], expected: str) -> None:
    found = permissions.missing_rights(cast(KubernetesClient, Api(*refused)), namespace)
    assert [problem.what for problem in found] == ([f"not allowed {expected}"] if expected else [])
    assert all("k8sdds init rights" in problem.remedy for problem in found)


@pytest.mark.parametrize(
    ("refused", "status", "expected"),
    [([], 0, ["deny-all"]), (["list networkpolicies"], 403, []), (["list networkpolicies"], 503, [])],
)
def test_policies_that_may_refuse_packets_are_named(
    refused: list[str], status: int, expected: list[str]
) -> None:
    pool, api = PodPool.__new__(PodPool), Api(*refused)  # without a watch
    api.status = status
    pool._client = cast(KubernetesClient, api)
    pool._namespace = CampaignNamespace(pool._client, "c", "n", owned=False, title="C")
    assert pool.policies_of_others() == expected
    (admitting,) = read_manifest("rights/network-policy.yaml")
    assert admitting["metadata"]["name"] == ADMITTING_POLICY


@pytest.mark.parametrize(
    "taints", ["dedicated", "a:NoSchedule,b", "a=b:NoSchedule", "a:Never", "a: NoSchedule", "a:NoSchedule\n"]
)
def test_a_taint_has_a_key_and_an_effect(
    taints: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(tmp_path))
    kubeconfig = Path("lab.conf")
    with pytest.raises(InputError, match="is not KEY:EFFECT"):
        select("cluster", ClusterOptions(kubeconfig=kubeconfig, tolerate=taints))
    named = select(
        "cluster", ClusterOptions(kubeconfig=kubeconfig, tolerate="example.com/a:NoExecute,b:NoSchedule")
    )
    assert named.taints == ("example.com/a:NoExecute", "b:NoSchedule")
    assert select("cluster", ClusterOptions(kubeconfig=kubeconfig, tolerate="")).taints == ()
    login = select("cluster", ClusterOptions(kubeconfig=kubeconfig, image_login=Path("login.json")))
    assert login.image_login == str(Path("login.json").absolute())
    selection.write(login)
    assert select("cluster", ClusterOptions()).image_login == login.image_login
    assert select("cluster", ClusterOptions(image_login=Path(""))) == replace(login, image_login=None)


VIOLATION = 'pods "sub0-host" is forbidden: violates PodSecurity "restricted:latest": host namespaces'


class Admission:
    """An API server that rejects pods on the nodes' own network with this status and message."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message

    def create(self, path: str, body: dict[str, Any], dryRun: str) -> None:
        assert (path, dryRun) == ("/api/v1/namespaces/lab/pods", "All")
        if body["spec"].get("hostNetwork"):
            raise ApiError(self.status, self.message)


@pytest.mark.parametrize(
    ("networks", "namespace", "status", "message", "refused"),
    [
        (["host", "unknown"], "lab", 403, VIOLATION, True),
        (["unknown"], "lab", 403, VIOLATION, False),
        (["host"], "lab", 400, 'admission webhook "a.example" denied the request: no host', True),
        (["host"], "lab", 422, "ValidatingAdmissionPolicy 'a' denied request: no host", True),
        (["host"], "lab", 400, 'admission webhook "a.example" does not support dry run', False),
        (["host"], "lab", 500, 'failed calling webhook "a.example"', False),
        (["host"], None, 403, VIOLATION, False),
    ],
)
def test_a_prepared_namespace_must_admit_the_pods(
    networks: list[str], namespace: str | None, status: int, message: str, refused: bool
) -> None:
    cells = [Cell(network=name, test="latency", payload_bytes=1024) for name in networks]
    api = cast(KubernetesClient, Admission(status, message))
    found = preflight.admission_problems(cells, api, namespace, "registry.example/perftest")
    whats = [problem.what for problem in found]
    assert whats == [f"cannot create pod sub0-host: {message}"] * refused
    for problem in found:
        assert ("--set baseline=NETWORK" in problem.remedy) == (message == VIOLATION)


class Recorder:
    """An API server that admits all pods."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []

    def create(self, path: str, body: dict[str, Any], dryRun: str) -> None:
        self.pods.append(body["spec"])


def test_each_kind_of_pod_is_checked() -> None:
    base = Cell(network="unknown", test="latency", payload_bytes=1024)
    cells = [
        *(base.model_copy(update={"cpu_quota": quota}) for quota in (8.0, 0.5, 8.0)),
        base,
        base.model_copy(update={"test": "ping"}),
        base.model_copy(update={"network": "host", "transport": "shared-memory"}),
    ]
    recorder = Recorder()
    assert preflight.admission_problems(cells, cast(KubernetesClient, recorder), "lab", "a.example/b") == []
    containers = [spec["containers"] for spec in recorder.pods]
    limits = [parts[0]["resources"]["limits"].get("cpu") for parts in containers]
    assert limits == ["8000m", "500m", None, None, None], "the same limit is checked once"
    assert [len(parts) for parts in containers] == [1, 1, 1, 1, 2]
    assert [len(spec["securityContext"].get("sysctls", ())) for spec in recorder.pods] == [0, 0, 0, 1, 0]


def test_each_kind_of_shared_memory_is_checked() -> None:
    base = Cell(network="flannel-vxlan", test="latency", payload_bytes=1024, transport="shared-memory")
    cells = [base.model_copy(update={"dev_shm": kind}) for kind in ("shared", "own")]
    cells += [cell.model_copy(update={"users": "other"}) for cell in cells]
    recorder = Recorder()
    assert preflight.admission_problems(cells, cast(KubernetesClient, recorder), "lab", "a.example/b") == []
    paths = [
        volume["hostPath"]["path"]
        for spec in recorder.pods
        for volume in spec["volumes"]
        if "hostPath" in volume
    ]
    assert len(recorder.pods) == 4 and len(paths) == 2
    assert all(path.startswith("/var/lib/kubelet/pods/") and "//" not in path for path in paths)
    own_users = ["runAsUser" in spec["containers"][0]["securityContext"] for spec in recorder.pods]
    assert own_users == [False, False, True, True]


@pytest.mark.parametrize(
    ("role", "host", "message", "without_host"),
    [
        ("sub", True, VIOLATION, True),
        ("sub", False, VIOLATION, False),
        (pods.NODE_PROBE, True, VIOLATION, False),
        ("sub", True, "exceeded quota: q, requested: cpu=1", False),
    ],
)
def test_only_pod_security_suggests_to_measure_without_host(
    role: str, host: bool, message: str, without_host: bool
) -> None:
    slot = pods.Slot("sub0", role, "n1", host)
    error = not_created(pods.pod("a", slot, "a.example/b", "c", (1, 1)), "lab", ApiError(403, message))
    assert error.message == f"cannot create pod a: {message}"
    assert ("networks=NETWORK" in error.remedy) == without_host
