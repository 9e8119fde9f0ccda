"""Services on a cluster: kube-proxy translates every connection to them, and none is left, also after Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds.kubernetes import leases
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.model.services import MAX_SERVICES
from k8sdds.testbeds.cluster import namespace
from k8sdds.testbeds.cluster.permissions import NAMESPACES
from tests.cluster.conftest import ENDS_S, Command, User, running, wait
from tests.clusters import Deployed
from tests.measuring import experiment, measured

MAX_REMOVAL_S = 3600
EACH_KIND = (
    "service",
    *(f"{{name: service, via: {via}, services: 200}}" for via in ("cluster-ip", "node-port", "headless")),
)


def services(tests: str) -> str:
    """Return an experiment with these tests of Services."""
    sweep = f"  - {{networks: flannel-vxlan, test: [{tests}], payload_bytes: 1}}\n"
    return experiment(sweep, baseline="flannel-vxlan")


def left(admin: KubernetesClient) -> list[str]:
    """Return the Services and slices of tests on the cluster."""
    paths = (f"{CORE}/services", "/apis/discovery.k8s.io/v1/endpointslices")
    listed = [one["metadata"] for path in paths for one in admin.get(path)["items"]]
    return [one["name"] for one in listed if one["name"].startswith("service-")]


def wait_gone(admin: KubernetesClient, timeout_s: float = ENDS_S) -> None:
    """Wait until the namespaces of campaigns were deleted, with all that they contain."""
    for one in admin.get(NAMESPACES, labelSelector=leases.SELECTOR)["items"]:
        namespace.wait_deleted(admin, one["metadata"]["name"], timeout_s)


@pytest.mark.long
def test_kube_proxy_translates_every_connection(
    user: User, k8sdds: Command, admin: KubernetesClient, tmp_path: Path
) -> None:
    text = services(", ".join(EACH_KIND))
    last = measured(k8sdds, tmp_path, text, *user.options)
    assert sorted(record["services"] for record in last) == [1, 200, 200, 200]
    for record in last:
        opened = record["connections_per_s"] * record["measured_s"]
        assert not any("translation not observed" in warning for warning in record["warnings"])
        if record["via"] == "headless":
            assert record["service_connections"] == 0 < opened
        else:
            assert record["service_connections"] >= opened > 0
            assert record["service_tracked"] > 0
        assert record["conntrack_entries"] is not None
    wait_gone(admin)
    assert left(admin) == []


@pytest.mark.long
def test_the_largest_number_of_services(
    user: User, k8sdds: Command, admin: KubernetesClient, tmp_path: Path
) -> None:
    tests = f"{{name: service, services: {MAX_SERVICES}}}"
    text = services(tests)
    (record,) = measured(k8sdds, tmp_path, text, *user.options, timeout_s=900)
    assert record["services"] == MAX_SERVICES
    assert record["service_connections"] >= record["connections_per_s"] * record["measured_s"] > 0
    assert record["conntrack_entries"] > 0
    wait_gone(admin, MAX_REMOVAL_S)
    assert left(admin) == []


def set_mode(cluster: Deployed, mode: str) -> None:
    """Restart kube-proxy on all nodes in another mode, in which it removes the rules of the one before."""
    proxy = ("--namespace", "kube-system")
    config = json.loads(cluster.kubectl(*proxy, "get", "configmap", "kube-proxy", "-o", "json"))["data"]
    changed = re.sub(r"^mode: .*$", f"mode: {mode}", config["config.conf"], flags=re.MULTILINE)
    patch = json.dumps({"data": {"config.conf": changed}})
    cluster.kubectl(*proxy, "patch", "configmap", "kube-proxy", "--patch", patch)
    cluster.kubectl(*proxy, "rollout", "restart", "daemonset/kube-proxy")
    cluster.kubectl(*proxy, "rollout", "status", "daemonset/kube-proxy", "--timeout=180s")


@pytest.fixture
def nftables(one_machine: Deployed) -> Iterator[None]:
    """Let kube-proxy run in nftables mode."""
    try:
        set_mode(one_machine, "nftables")
        yield
    finally:
        set_mode(one_machine, "iptables")


@pytest.mark.long
@pytest.mark.usefixtures("nftables")
def test_kube_proxy_in_nftables_mode(user: User, k8sdds: Command, tmp_path: Path) -> None:
    tests = ", ".join(
        f"{{name: service, via: {via}, services: 50}}" for via in ("cluster-ip", "node-port", "headless")
    )
    last = measured(k8sdds, tmp_path, services(tests), *user.options)
    ipvs = ("--set", "test={name: service, proxy: ipvs}")
    refused = k8sdds("run", str(tmp_path / "experiment.yaml"), *user.options, "-o", "no", *ipvs)
    assert refused.returncode == 2 and "runs in nftables mode" in refused.stderr
    assert {record["proxy"] for record in last} == {"nftables"}
    for record in last:
        assert not any("translation not observed" in warning for warning in record["warnings"])
        headless = record["via"] == "headless"
        assert record["service_connections"] == (0 if headless else None)
        assert headless or record["service_tracked"] > 0


@pytest.mark.long
def test_nothing_is_left_after_ctrl_c(user: User, admin: KubernetesClient, tmp_path: Path) -> None:
    many = "{name: service, services: 2000}"
    (tmp_path / "many.yaml").write_text(services(many))
    with running(tmp_path, "many.yaml", *user.options, "-o", "out") as process:
        wait(lambda: len(left(admin)) >= 50, process, "Services")
        process.send_signal(signal.SIGINT)
        _, message = process.communicate(timeout=ENDS_S)
    assert process.returncode == 130, message
    wait_gone(admin)
    assert left(admin) == []
