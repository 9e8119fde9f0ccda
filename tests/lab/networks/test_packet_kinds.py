"""Count what leaves the pods by kind while participants run, for a test that asks for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from k8sdds.model.packet_kinds import FILE, KindCounts
from tests.conftest import environment
from tests.measuring import experiment, last_attempts

pytestmark = pytest.mark.usefixtures("nothing_left")

COUNTING = """\
from k8sdds import workloads
from k8sdds.cli.main import run

class Counting(type(workloads.find("latency"))):
    counts_kinds = True

    def warnings(self, outputs):
        return ["counted: " + " ".join(sorted(outputs.measurement.kinds))]

workloads.find("latency").__class__ = Counting
run()
"""
"""The command, with a latency test that counts packets and reports in which pods."""
BY_DISCOVERY = {
    "cyclonedds": {"participants", "endpoints", "data"},
    "fastdds": {"participants", "endpoints", "data"},
    "zenoh": {"zenoh"},
}


def counted(folder: Path, sweeps: str, **keys: object) -> dict[tuple[str, str], dict[str, KindCounts]]:
    """Run an experiment; return what was counted in each pod by middleware and discovery."""
    (folder / "kinds.yaml").write_text(experiment(sweeps, duration_s=0.3, **keys))
    argv = [sys.executable, "-c", COUNTING, "run", "kinds.yaml", "-o", "out"]
    done = subprocess.run(
        argv, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[tuple[str, str], dict[str, KindCounts]] = {}
    for record in last_attempts(folder / "out"):
        attempt = folder / "out/raw" / record["trial_id"] / str(record["attempt"])
        pods = {
            path.parent.name: KindCounts.of(json.loads(path.read_text()))
            for path in attempt.glob(f"*/{FILE}")
        }
        assert f"counted: {' '.join(sorted(pods))}" in record["warnings"]
        found[record["middleware"], record["discovery"]] = {
            name: counts for name, counts in pods.items() if counts
        }
    return found


def kinds(counts: KindCounts) -> set[str]:
    return {kind for _, kind, _, _ in counts.rows}


@pytest.mark.parametrize("families", ["ipv4", "ipv6"])
def test_discovery_and_samples_are_counted_in_each_pod(tmp_path: Path, families: str) -> None:
    sweep = "  - {networks: flannel-hostgw, test: latency, payload_bytes: 1024, middleware: [cyclonedds, fastdds, zenoh]}"
    found = counted(tmp_path, sweep, baseline="flannel-hostgw", ip_families=f"[{families}]")
    for (middleware, _), pods in found.items():
        assert set(pods) == {"pub0", "sub0"}
        for counts in pods.values():
            assert BY_DISCOVERY[middleware] <= kinds(counts)
            assert counts.dropped_packets == 0
            # Its pod sends each sample, or the reply to it.
            assert sum(size for _, _, _, size in counts.rows) > 1024


def test_the_pod_of_the_discovery_server_is_counted(tmp_path: Path) -> None:
    sweep = "  - {networks: flannel-hostgw, test: latency, payload_bytes: 1024, middleware: fastdds, discovery: server}"
    ((pods,)) = counted(tmp_path, sweep, baseline="flannel-hostgw").values()
    assert set(pods) == {"pub0", "sub0", "discovery"}
    assert kinds(pods["discovery"]) >= {"participants", "endpoints"}
    assert "data" not in kinds(pods["discovery"])


def test_a_node_without_pods_is_counted_once(tmp_path: Path) -> None:
    placement = "placement: {pub0: 0, sub0: 1, sub1: 1}"
    sweep = f"  - {{networks: baremetal, test: latency, payload_bytes: 1024, subscribers: 2, {placement}}}"
    ((pods,)) = counted(tmp_path, sweep, baseline="baremetal").values()
    assert set(pods) == {"pub0", "sub0"}
