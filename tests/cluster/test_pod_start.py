"""The start of pods on a cluster: every pod is timed, and none is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.results.run_folder import RunFolder
from tests.cluster.conftest import Command, User

STARTS = """\
name: starts
baseline: host
repetitions: 1
duration_s: 1
warmup_s: 0
sweeps:
  - networks: [host, flannel-vxlan]
    test: [pod-start, {name: pod-start, pods: 20}]
    payload_bytes: 64
"""


@pytest.mark.long
def test_pods_start_at_once(user: User, k8sdds: Command, admin: KubernetesClient, tmp_path: Path) -> None:
    (tmp_path / "starts.yaml").write_text(STARTS)
    done = k8sdds("run", "starts.yaml", *user.options, "-o", "out", timeout_s=400)
    run = RunFolder.open(tmp_path / "out")
    last = {record["trial_id"]: record for record in run.attempts()}.values()
    assert {record["test"]: record["reason"] for record in last if not record["valid"]} == {}, done.stderr
    assert sorted(record["pods"] for record in last) == [1, 1, 20, 20]
    for record in last:
        steps = [record[f"pod_{step}_s"] for step in ("scheduling", "network", "containers")]
        assert None not in steps and min(steps) >= 0
        assert sum(steps) == pytest.approx(record["pod_start_mean_s"])
        assert record["pods_ready_s"] >= record["pod_start_mean_s"]
        assert (record.get("pod_start_p50_s") is None) == (record["pods"] == 1)
    left = [pod["metadata"]["name"] for pod in admin.get(f"{CORE}/pods")["items"]]
    assert not [name for name in left if name.startswith("start-")]
