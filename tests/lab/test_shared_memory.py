"""Test which way samples take between pods of one node, by their networks and /dev/shm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k8sdds.versions import UNPRIVILEGED_USER
from tests.conftest import Command
from tests.measuring import experiment, measured
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("nothing_left")

SWEEP = """\
  - networks: [host, flannel-hostgw]
    test: TEST
    middleware: [fastdds, zenoh]
    transport: shared-memory
    dev_shm: [shared, own]
    payload_bytes: 8192
"""
USERS = """\
  - networks: [host, flannel-hostgw]
    test: throughput
    middleware: MIDDLEWARE
    transport: shared-memory
    users: other
    payload_bytes: 8192
"""
WAYS = {
    ("fastdds", "host", "shared"): "memory",
    ("fastdds", "host", "own"): "nothing",
    ("fastdds", "flannel-hostgw", "shared"): "network",
    ("fastdds", "flannel-hostgw", "own"): "network",
    ("zenoh", "host", "shared"): "memory",
    ("zenoh", "host", "own"): "network",
    ("zenoh", "flannel-hostgw", "shared"): "memory",
    ("zenoh", "flannel-hostgw", "own"): "network",
}


@pytest.mark.parametrize(
    ("test", "metric"),
    sampled([("throughput", "throughput_mbps"), ("latency", "latency_mean_us")], every_run=1),
)
def test_the_way_of_samples_follows_from_the_pods(
    k8sdds: Command, tmp_path: Path, test: str, metric: str
) -> None:
    records = measured(k8sdds, tmp_path, experiment(SWEEP.replace("TEST", test), duration_s=0.3))
    assert len(records) == len(WAYS)
    for record in records:
        pods = (record["middleware"], record["network"], record.get("dev_shm", "shared"))
        assert record["samples_by"] == WAYS[pods], pods
        assert (record[metric] is not None) == (record["received"] > 0)
        assert not record.get("missing") or record["received"]
        if WAYS[pods] == "nothing":
            assert record["received"] == 0 and any("no-match" in text for text in record["warnings"])
    report = (tmp_path / "out" / "report" / "report.html").read_text()
    assert "Shared memory between pods" in report and "hostNetwork: true, or one pod" in report


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives participants other user ids")
@pytest.mark.parametrize(
    ("middleware", "on_host"), sampled([("zenoh", "network"), ("fastdds", "nothing")], every_run=1)
)
def test_other_user_ids_cannot_share_memory(
    k8sdds: Command, tmp_path: Path, middleware: str, on_host: str
) -> None:
    tmp_path.chmod(0o700)
    sweep = USERS.replace("MIDDLEWARE", middleware)
    records = measured(k8sdds, tmp_path, experiment(sweep, duration_s=0.3))
    ways = {record["network"]: record["samples_by"] for record in records}
    assert ways == {"host": on_host, "flannel-hostgw": "network"}
    owners = {file.stat().st_uid for file in (tmp_path / "out/raw").glob("*/*/*")}
    assert owners >= {UNPRIVILEGED_USER, UNPRIVILEGED_USER - 1}
    report = (tmp_path / "out" / "report" / "report.html").read_text()
    assert "one user id (runAsUser)" in report
