"""Run real background load: it competes with the participants during the whole trial, and leaves nothing behind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.measuring import experiment, measured

SWEEP = """
  - networks: [host]
    test: latency
    payload_bytes: 64
    background: [BACKGROUND]
"""

pytestmark = pytest.mark.skipif(not shutil.which("stress-ng"), reason="stress-ng is not installed")


def test_flows_and_busy_cores_run_next_to_the_participants(
    k8sdds: Command, tmp_path: Path, nothing_left: None
) -> None:
    # More flows than one process of iperf3 has.
    load = "{}, {flows: 130, kind: tcp, rate_mbit: 0.05, cpus: [0]}"
    last = measured(k8sdds, tmp_path, experiment(SWEEP.replace("BACKGROUND", load)))
    plain, loaded = sorted(last, key=lambda record: "background" in record)
    assert "background_load" not in plain and plain["latency_mean_us"] > 0
    assert loaded["background"] == {"flows": 130, "kind": "tcp", "rate_mbit": 0.05, "cpus": [0]}
    found = loaded["background_load"]
    assert found["sent_mbps"] > 0 and found["received_mbps"] > 0 and found["cpu_percent"] > 0
    assert found["cpu0_percent"] > 0
    assert loaded["latency_mean_us"] > 0 and loaded["machine_cpu_ms_per_mb"] is None
    report = (tmp_path / "out" / "report" / "report.html").read_text()
    assert "background 130 tcp flows of 0.05 Mbit/s, busy core 0" in report
