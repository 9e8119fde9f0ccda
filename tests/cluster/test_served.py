"""Test discovery servers and node meters on a real cluster: manifests, and losses during a campaign."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from k8sdds.discovery.cloud import CONNEXT
from k8sdds.discovery.server import FASTDDS
from k8sdds.kubernetes import objects
from k8sdds.kubernetes.client import CORE, ApiError, KubernetesClient
from k8sdds.kubernetes.metrics import node_meter
from tests.clusters import Deployed
from tests.conftest import K8SDDS, environment

SERVED = """name: served
baseline: flannel-vxlan
repetitions: 2
duration_s: 3
sweeps:
  - networks: [flannel-vxlan]
    middleware: fastdds
    discovery: server
"""


def test_manifests_pass_strict_validation_and_pod_security(
    admin: KubernetesClient, namespace: tuple[str, bool]
) -> None:
    name, privileged = namespace
    wanted = [
        *FASTDDS.objects(name),
        *CONNEXT.objects(name, image="registry.example/cds:1"),
        *node_meter.objects(name, filters=privileged),
    ]
    for one in wanted:
        admin.create(objects.collection_path(admin, one), one, dryRun="All")
        if "template" in one.get("spec", {}):
            # Pod Security judges pods, not what makes them.
            template = one["spec"]["template"]
            pod = {"apiVersion": "v1", "kind": "Pod", **template}
            pod["metadata"] = {**template["metadata"], "name": "tried"}
            pod["spec"] = {**template["spec"], "serviceAccountName": "default"}
            admin.create(f"{CORE}/namespaces/{name}/pods", pod, dryRun="All")
    if not privileged:
        allowed = node_meter.objects(name, filters=True)[-1]["spec"]["template"]["spec"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried"}}
        with pytest.raises(ApiError, match="NET_ADMIN"):
            spec = {**allowed, "serviceAccountName": "default"}
            admin.create(f"{CORE}/namespaces/{name}/pods", {**pod, "spec": spec}, dryRun="All")


def rows(folder: Path, name: str = "trials.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.mark.long
def test_losing_all_discovery_servers_in_mid_campaign(
    admin: KubernetesClient, one_machine: Deployed, tmp_path: Path
) -> None:
    (tmp_path / "served.yaml").write_text(SERVED)
    options = ("--testbed", "cluster", "--kubeconfig", str(one_machine.kubeconfig))
    argv = [str(K8SDDS), "run", "served.yaml", *options, "--meter", "-o", "run"]
    with subprocess.Popen(
        argv, cwd=tmp_path, env=environment(tmp_path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    ) as campaign:  # fmt: skip
        killed, calm = 0, 0.0
        try:
            while campaign.poll() is None:
                time.sleep(1)
                # Often enough for every trial to lose them, or to have to wait for them.
                if (tmp_path / "run" / "campaign.json").exists() and time.monotonic() > calm:
                    killed += kill_servers(admin)
                    calm = time.monotonic() + 6
        finally:
            campaign.kill()
        said = campaign.stdout.read() if campaign.stdout else ""
    assert campaign.returncode in (0, 4), said
    assert killed >= 2
    found = rows(tmp_path / "run")
    assert {row["discovery"] for row in found} == {"server"} and any(row["valid"] for row in found)
    # Servers that are lost while participants look for each other cost an attempt, nothing else does.
    reasons = {str(row["reason"]).split(":")[0] for row in found if not row["valid"]}
    assert reasons <= {"no-match", "uneven"}
    read = [line for line in rows(tmp_path / "run", "readings.jsonl") if line["kind"] == "node"]
    assert {line["when"] for line in read} == {"before", "after"}
    assert len({line["node"] for line in read}) == 3
    assert all(line["lacks"] == {} and line["resource"] for line in read)
    assert "flannel-vxlan" in (tmp_path / "run" / "report" / "tables" / "upkeep.csv").read_text()


def kill_servers(admin: KubernetesClient) -> int:
    """Kill both discovery servers of this test's campaign where both have an address; how many."""
    listed = admin.get(f"{CORE}/pods", labelSelector="app.kubernetes.io/name=k8sdds-discovery")["items"]
    there = [
        one["metadata"]
        for one in listed
        if "deletionTimestamp" not in one["metadata"]
        and one["status"].get("podIP")
        and "-served-" in one["metadata"]["namespace"]
    ]
    if len(there) < 2:
        return 0
    for meta in there:
        admin.delete(f"{CORE}/namespaces/{meta['namespace']}/pods/{meta['name']}", grace_s=0)
    return len(there)
