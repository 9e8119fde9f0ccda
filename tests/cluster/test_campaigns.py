"""Test experiments on a real cluster, as a user with minimal rights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.results.run_folder import RunFolder
from tests.cluster.conftest import Command, User
from tests.clusters import Deployed
from tests.measuring import valid_attempts
from tests.users import account, apply, rights

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_quickstart_is_measured_reported_and_compared(k8sdds: Command, user: User, tmp_path: Path) -> None:
    done = k8sdds("run", "quickstart", *user.options, "--repeat", "1", "--duration", "1", "-o", "first")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Testbed: cluster (kubeconfig")
    folder = tmp_path / "first"
    valid = valid_attempts(folder)
    assert {(row["network"], row["test"]) for row in valid} == {
        (network, test) for network in ("host", "flannel-vxlan") for test in ("throughput", "latency")
    }
    for row in valid:
        assert row["fidelity"] == "real"
        assert row["nodes"] == 2
        assert row["mtu_bytes"] == (1500 if row["network"] == "host" else 1450)
        samples = row["link_bytes"]["delivered_samples"]["sub0"]
        assert row["link_bytes"]["received"]["sub0"] >= samples * 1024
        assert row["start_skew_s"] >= 0
        # One stream per participant, at most two commands for the node probe, two on each node for the CPU time outside
        # of pods, and a renewed watch.
        assert 2 <= row["api_calls"] <= 2 + 2 + 4 + 2
        # What each node spent outside of pods was read, and the trial's cost contains it. Most of what the participants used
        # is not that of other programs: the shim of their pods, which waits for them, has their time.
        assert row["network_cpu_percent"] is not None
        assert not any(warning.startswith("cpu:") for warning in row["warnings"])
        assert row["total_cpu_percent"] >= row["node_cpu_percent"] > 0
        observed = row["fingerprint"]
        assert observed["not_observed"] == {}
        assert observed["path_mtu_bytes"] == row["mtu_bytes"]
        if row["network"] == "flannel-vxlan":
            assert (observed["outer_protocol"], observed["outer_port"]) == ("VXLAN", 8472)
            assert (observed["added_bytes"], observed["multicast"], observed["conntrack"]) == (
                50,
                False,
                True,
            )
            assert 0 < observed["rules_matched"] < observed["rules"]
            assert row["network_proof"].startswith("carried by flannel.1 (vxlan)")
            assert row["link_bytes"]["carried"]["sub0"] >= samples * 1024
        else:
            assert (observed["outer_protocol"], observed["added_bytes"]) == ("none", 0)
            assert row["network_proof"].startswith("routed by eth0, no tunnel")
        assert not any(warning.startswith("unproven") for warning in row["warnings"])
    assert "one kernel" in (folder / "report" / "report.html").read_text()
    campaign = json.loads((folder / "campaign.json").read_text())
    assert len({node["boot_id"] for node in campaign["testbed"]["facts"]["nodes"].values()}) == 1
    # The preparation takes some requests per pod; the number does not grow with time.
    assert sum(campaign["testbed"]["facts"]["api_calls"].values()) < 100
    assert k8sdds("compare", "first@host", "first@flannel-vxlan").returncode == 0


@pytest.mark.long
def test_an_experiment_of_the_study_with_meters(k8sdds: Command, user: User, tmp_path: Path) -> None:
    sweep = ("--set", "networks=[host, flannel-vxlan]", "--set", "payload_bytes=1024", "--meter")
    args = ("--repeat", "1", "--duration", "1", *sweep, "-o", "run")
    done = k8sdds("run", "best-effort", *user.options, *args)
    assert done.returncode in (0, 4), done.stderr
    attempts = RunFolder.open(tmp_path / "run").attempts()
    # On a busy machine, some trials may fail with uneven samples, but not because of the path.
    assert any(row["valid"] for row in attempts)
    reasons = {str(row["reason"]).split(":")[0] for row in attempts if not row["valid"]}
    assert reasons <= {"uneven", "lost-samples", "deadline", "peer-lost"}
    metered(tmp_path / "run", attempts, done.stdout)


def metered(folder: Path, attempts: list[dict[str, Any]], output: str) -> None:
    """Check readings by a user who may not create a ClusterRole: one network each, with the missing sources reported."""
    lines = [json.loads(line) for line in (folder / "readings.jsonl").read_text().splitlines()]
    nodes = [line for line in lines if line["kind"] == "node"]
    by_block = {
        row["block"]: {item["network_label"] for item in attempts if item["block"] == row["block"]}
        for row in attempts
    }
    assert {frozenset({line["network"]}) for line in nodes} == {
        frozenset(networks) for networks in by_block.values()
    }
    assert all({line["network"]} == by_block[line["block"]] for line in nodes)
    assert all(line["stat"] and line["lacks"]["resource"] and "resource" not in line for line in nodes)
    reason = "this user may not create clusterrolebindings and clusterroles"
    assert any(line["kind"] == "lack" and reason in line["said"] for line in lines)
    assert reason in (folder / "report" / "report.html").read_text()
    assert "Not measured: kubelets and the network's own pods" in " ".join(output.split())


@pytest.mark.long
def test_twelve_subscribers_on_three_nodes(k8sdds: Command, user: User, tmp_path: Path) -> None:
    args = ("--set", "payload_bytes=1024", "--set", "rate=200", "-o", "run", "--network", "host")
    done = k8sdds("run", "multicast-12sub", *user.options, "--repeat", "1", "--duration", "2", *args)
    assert done.returncode == 0, done.stderr
    valid = valid_attempts(tmp_path / "run")
    assert {row["subscribers"] for row in valid} == {12}


@pytest.mark.long
def test_a_prepared_namespace_is_enough(
    k8sdds: Command, admin: KubernetesClient, one_machine: Deployed, tmp_path: Path
) -> None:
    """The user may not list nodes, so the scheduler places the pods and the network must be named."""
    kubeconfig, subject = account(admin, one_machine.kubeconfig, "k8sdds-guest", tmp_path)
    apply(admin, rights("namespace", subject))
    args = ["run", "quickstart", "--testbed", "cluster", "--kubeconfig", str(kubeconfig), "--repeat", "1"]
    args += ["--duration", "0.5", "--namespace", "k8sdds-lab", "-o", "run"]
    refused = k8sdds(*args, "--network", "flannel-vxlan")
    assert refused.returncode == 3
    assert "--pod-network" in refused.stderr or "pod network" in refused.stderr
    done = k8sdds(*args, "--pod-network", "flannel-vxlan", "--set", "test=latency")
    assert done.returncode == 0, done.stderr
    assert all(row["valid"] for row in RunFolder.open(tmp_path / "run").attempts()[-2:])
    assert admin.get(f"{CORE}/namespaces/k8sdds-lab/pods")["items"] == [] or all(
        "deletionTimestamp" in pod["metadata"]
        for pod in admin.get(f"{CORE}/namespaces/k8sdds-lab/pods")["items"]
    )
    admin.delete(f"{CORE}/namespaces/k8sdds-lab")


def test_missing_prerequisites_are_reported_before_anything_is_created(
    k8sdds: Command, user: User, admin: KubernetesClient, one_machine: Deployed, tmp_path: Path
) -> None:
    kubeconfig, _ = account(admin, one_machine.kubeconfig, "k8sdds-no-rights", tmp_path)
    no_rights = ("--testbed", "cluster", "--kubeconfig", str(kubeconfig))
    for args, code, message in (
        ((*no_rights, "--pod-network", "flannel-vxlan"), 3, "create namespaces"),
        ((*user.options, "--image", "k8sdds.local/none:1"), 3, "k8sdds images load"),
        ((*user.options, "--set", "nodes=9"), 3, "nodes: 9"),
    ):
        done = k8sdds("run", "quickstart", *args, "--dry-run")
        assert done.returncode == code, (args, done.stderr)
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert k8sdds("run", "quickstart", *user.options, "--dry-run").returncode == 0
    assert not (tmp_path / "runs").exists()
