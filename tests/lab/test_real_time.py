"""Test participants with real-time priority, locked memory and marked packets, as the kernel sees them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from tests.conftest import NOBODY, Command
from tests.measuring import experiment, measured

pytestmark = pytest.mark.usefixtures("nothing_left")

SWEEP = """\
  - networks: host
    test: latency
    middleware: [cyclonedds, fastdds]
    realtime_priority: [0, 50]
    lock_memory: true
    dscp: 46
"""
EXPERIMENT = experiment(SWEEP, duration_s=0.3)


@pytest.mark.skipif(os.geteuid() != 0, reason="SCHED_FIFO requires root")
def test_the_record_contains_what_was_in_effect(k8sdds: Command, tmp_path: Path) -> None:
    records = measured(k8sdds, tmp_path, EXPERIMENT)
    assert sorted(record["realtime_priority"] for record in records) == [0, 0, 50, 50]
    for record in records:
        for participant in ("pub0", "sub0"):
            seen = record["execution"][participant]
            assert list(seen["threads"]) == (["fifo 50"] if record["realtime_priority"] else ["other"])
            assert seen["locked_bytes"] > 10**6
            assert seen["dscp"] == [46]
            meters = RunFolder.open(tmp_path / "out").raw(record["trial_id"], record["attempt"]) / participant
            kept = json.loads((meters / "meters.json").read_text())["capabilities"]["kept"]
            assert "SYS_NICE" not in kept


def test_missing_permissions_are_reported_before_anything_starts(k8sdds: Command, tmp_path: Path) -> None:
    (tmp_path / "real-time.yaml").write_text(EXPERIMENT)
    done = k8sdds("run", "./real-time.yaml", "--dry-run", user=NOBODY)
    assert done.returncode == 3
    assert "SCHED_FIFO" in done.stderr and "Operation not permitted" in done.stderr
    assert "realtime_priority" in done.stderr


SHARED_MEMORY = """\
  - networks: host
    test: throughput
    middleware: [fastdds, zenoh]
    transport: [unicast, shared-memory]
    payload_bytes: 8192
"""


def test_trials_by_shared_memory_use_no_network(k8sdds: Command, tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    for record in measured(k8sdds, tmp_path, experiment(SHARED_MEMORY, duration_s=0.3)):
        delivered = record["received"] * 8192
        on_link = record["link_bytes"]["received"]["sub0"]
        if record["transport"] == "unicast":
            assert on_link > delivered
        else:
            assert on_link < delivered / 100
            assert record["wire_bytes_per_payload_byte"] is None
    assert set(os.listdir("/dev/shm")) <= before, "the segments are in the sandbox only"
    report = (tmp_path / "out" / "report" / "report.html").read_text()
    assert "shared memory without network" in report.lower()
