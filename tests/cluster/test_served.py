"""Test discovery servers and node meters on a real cluster: the loss of servers during a campaign."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.results.run_folder import RunFolder
from tests.cluster.conftest import running
from tests.clusters import Deployed

SERVED = """name: served
baseline: flannel-vxlan
repetitions: 2
duration_s: 3
sweeps:
  - networks: [flannel-vxlan]
    middleware: fastdds
    discovery: server
"""


@pytest.mark.long
def test_a_campaign_survives_the_loss_of_all_discovery_servers(
    admin: KubernetesClient, one_machine: Deployed, tmp_path: Path
) -> None:
    (tmp_path / "served.yaml").write_text(SERVED)
    options = ("--testbed", "cluster", "--kubeconfig", str(one_machine.kubeconfig))
    killed = 0
    with running(tmp_path, "served.yaml", *options, "--meter", "-o", "run") as campaign:
        while campaign.poll() is None and killed < 4:
            time.sleep(1)
            # In the first trial, and when the servers have been replaced.
            if (tmp_path / "run" / "campaign.json").exists():
                killed += kill_servers(admin)
        output = "".join(campaign.communicate(timeout=600))
    assert campaign.returncode in (0, 4), output
    assert killed >= 2
    run = RunFolder.open(tmp_path / "run")
    attempts = run.attempts()
    assert {row["discovery"] for row in attempts} == {"server"} and any(row["valid"] for row in attempts)
    # An attempt is invalid only if its servers are lost while participants discover each other.
    reasons = {str(row["reason"]).split(":")[0] for row in attempts if not row["valid"]}
    assert reasons <= {"part-failed", "uneven"}
    lines = map(json.loads, (run.path / "readings.jsonl").read_text().splitlines())
    readings = [line for line in lines if line["kind"] == "node"]
    assert {line["when"] for line in readings} == {"before", "after"}
    assert len({line["node"] for line in readings}) == 3
    assert all(line["lacks"] == {} and line["resource"] for line in readings)
    assert "flannel-vxlan" in (run.path / "report" / "tables" / "upkeep.csv").read_text()


def kill_servers(admin: KubernetesClient) -> int:
    """Kill both discovery servers of this test's campaign if both have an address; return the number killed."""
    listed = admin.get(f"{CORE}/pods", labelSelector="app.kubernetes.io/name=k8sdds-discovery")["items"]
    servers = [
        item["metadata"]
        for item in listed
        if "deletionTimestamp" not in item["metadata"]
        and item["status"].get("podIP")
        and "-served-" in item["metadata"]["namespace"]
    ]
    if len(servers) < 2:
        return 0
    for meta in servers:
        admin.delete(f"{CORE}/namespaces/{meta['namespace']}/pods/{meta['name']}", grace_s=0)
    return len(servers)
