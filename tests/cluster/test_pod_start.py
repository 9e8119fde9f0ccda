"""The start of pods on a cluster: every pod is timed, and none is left."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from k8sdds.kubernetes.client import CORE, KubernetesClient
from k8sdds.results.run_folder import RunFolder
from tests.cluster.conftest import ENDS_S, Command, User, running, wait
from tests.measuring import experiment, measured

STARTS = """\
  - networks: [host, flannel-vxlan]
    test:
      - pod-start
      - {name: pod-start, pods: 20}
      - {name: pod-start, pods: 2, dds: cyclonedds}
      - {name: pod-start, pods: 20, dds: fastdds}
    payload_bytes: 64
"""


@pytest.mark.long
def test_pods_start_at_once(user: User, k8sdds: Command, admin: KubernetesClient, tmp_path: Path) -> None:
    last = measured(k8sdds, tmp_path, experiment(STARTS, baseline="host", warmup_s=0), *user.options)
    run = RunFolder.open(tmp_path / "out")
    assert sorted(record["pods"] for record in last) == [1, 1, 2, 2, 20, 20, 20, 20]
    for record in last:
        steps = [record[f"pod_{step}_s"] for step in ("scheduling", "network", "containers")]
        assert None not in steps and min(steps) >= 0
        assert sum(steps) == pytest.approx(record["pod_start_mean_s"])
        assert record["pods_ready_s"] >= record["pod_start_mean_s"]
        # A median needs ten values above it.
        assert (record.get("pod_start_p50_s") is None) == (record["pods"] < 20)
        assert (record.get("pods_matched_s") is None) == (record.get("dds") is None)
        if record.get("dds"):
            assert record["pods_matched_s"] > record["pods_matching_s"] > 0
            raw = run.raw(record["trial_id"], record["attempt"])
            match = json.loads((raw / "pod-starts.json").read_text())["match"]
            assert match["received"] > 0 and len(match["pods"]) == 2
            assert match["clock_error_s"] >= 0 and match["since_ready_s"] > 0
    assert started(admin) == []


def started(admin: KubernetesClient) -> list[str]:
    """Return the pods of pod-start tests that exist."""
    names = [str(pod["metadata"]["name"]) for pod in admin.get(f"{CORE}/pods")["items"]]
    return [name for name in names if name.startswith("start-")]


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_pods_are_deleted_after_ctrl_c(user: User, admin: KubernetesClient, tmp_path: Path) -> None:
    many = STARTS.replace("      - pod-start\n", "      - {name: pod-start, pods: 100}\n")
    text = experiment(many, baseline="host", warmup_s=0)
    (tmp_path / "starts.yaml").write_text(text)
    with running(tmp_path, "starts.yaml", *user.options, "--seed", "1", "-o", "out") as process:
        wait(lambda: started(admin), process, "pods that start")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=ENDS_S)
    assert process.returncode == 130, stderr
    assert started(admin) == []
    attempts = RunFolder.open(tmp_path / "out").attempts()
    assert attempts[-1]["reason"].startswith("interrupted: ")
