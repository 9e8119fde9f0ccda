"""Measure pods with and without a CPU limit on a real cluster, whose kubelets set the limit."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8sdds import versions
from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.results import machine
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.paths import shared
from tests.cluster.conftest import Command, User
from tests.clusters import Deployed
from tests.measuring import ENDS_S, experiment, last_attempts, measured, running

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.long]

LIMITED = """\
  - networks: flannel-vxlan
    test: throughput
    middleware: cyclonedds
    payload_bytes: 1024
    cpu_quota: [500m, none]
    cpu_request: [none, 250m]
"""
WHOLE_CORES = """\
  - networks: flannel-vxlan
    test: latency
    middleware: cyclonedds
    payload_bytes: 1024
    cpu_quota: 1
    cpu_request: [1, 500m]
"""
PARTICIPANTS = ("pub0", "sub0")
PODS = f"{versions.MANAGED_BY_LABEL}={versions.MANAGED_BY},{versions.PARTICIPANT_LABEL} in ({','.join(PARTICIPANTS)})"


def test_pods_have_the_limits_of_their_trial(user: User, admin: KubernetesClient, tmp_path: Path) -> None:
    (tmp_path / "limits.yaml").write_text(experiment(LIMITED, baseline="flannel-vxlan", duration_s=10))
    seen = set()
    with running(tmp_path, "limits.yaml", *user.options, "-o", "out") as process:
        while process.poll() is None:
            for pod in admin.get(f"{CORE}/pods", labelSelector=PODS)["items"]:
                (container,) = pod["spec"]["containers"]
                limit, request = (container["resources"][kind].get("cpu") for kind in ("limits", "requests"))
                seen.add((pod["metadata"]["labels"][versions.PARTICIPANT_LABEL], limit, request))
            time.sleep(0.1)
        _, errors = process.communicate(timeout=ENDS_S)
    assert process.returncode == 0, errors
    asked = {("500m", "50m"), ("500m", "250m"), (None, "50m"), (None, "250m")}
    assert seen == {(name, *limits) for name in PARTICIPANTS for limits in asked}
    # This user may not read the policy of the CPU managers.
    assert [*machine.cpu_managers(RunFolder.open(tmp_path / "out").facts)] == [""]
    for record in last_attempts(tmp_path / "out"):
        assert record["valid"], record["reason"]
        if record["cpu_quota"] is None:
            assert record.get("throttling") is record.get("throttled_periods_percent") is None
            continue
        # A publisher as fast as possible uses its quota in each period.
        publisher = record["throttling"]["pub0"]
        assert publisher["periods"] >= publisher["throttled_periods"] > 0 and publisher["throttled_s"] > 0
        assert record["throttled_periods_percent"] > 0
        # Nothing outside of the pods reads when they are stopped.
        assert record.get("slow_stopped_percent") is None


@pytest.fixture
def static(one_machine: Deployed, tmp_path: Path) -> Iterator[None]:
    """Switch the CPU managers of the cluster to `static`, and restore them."""
    profile = tmp_path / "static.yaml"
    text = (shared("profiles") / "one-machine.yaml").read_text()
    profile.write_text(text.replace("kubernetes:", "kubernetes:\n  cpu_manager: static"))
    try:
        assert switched(one_machine, str(profile)) == "static"
        assert one_machine.k8sdds("deploy", str(profile), "--yes").stdout == "no changes\n"
        yield
    finally:
        assert switched(one_machine, "one-machine") == "none"


def switched(cluster: Deployed, profile: str) -> str:
    """Deploy a profile; return the policy to which deploy changed the CPU managers of all nodes."""
    done = cluster.k8sdds("deploy", profile, "--yes")
    assert done.returncode == 0, done.stderr
    found = re.findall(r"(\S+): cpu manager: use the policy (\w+)", done.stdout)
    assert sorted(node for node, _ in found) == sorted(cluster.nodes), done.stdout
    (policy,) = {policy for _, policy in found}
    return policy


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core of each node is for other pods")
@pytest.mark.usefixtures("static")
def test_pods_get_cores_of_their_own(one_machine: Deployed, k8sdds: Command, tmp_path: Path) -> None:
    # An administrator, who may read the policy.
    options = ("--testbed", "cluster", "--kubeconfig", str(one_machine.kubeconfig))
    records = measured(k8sdds, tmp_path, experiment(WHOLE_CORES, baseline="flannel-vxlan"), *options)
    run = RunFolder.open(tmp_path / "out")
    assert list(machine.cpu_managers(run.facts)) == ["static"]
    for record in records:
        for name in PARTICIPANTS:
            raw = run.raw(record["trial_id"], record["attempt"]) / name
            cpus = json.loads((raw / "meters.json").read_text())["execution"]["cpus"]
            # The other pods of a node have the cores that no pod has alone, the first one among them.
            assert (cpus.isdigit() and cpus != "0") == (record["cpu_request"] == 1), cpus
