"""An application of three nodes that run at once in the lab: what each node received, and the chain through all."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.results import histograms
from k8sdds.results.run_folder import RunFolder
from k8sdds.system import yaml_text
from tests.conftest import Command
from tests.measuring import last_attempts

pytestmark = pytest.mark.usefixtures("nothing_left")

UNDECIDED = 8
"""Exit code of a campaign with one repetition, which decides no requirement."""

COMPUTED_NS = 1_990_000
"""CPU time between the last input and a command, with the resolution of histograms."""

APPLICATION = {
    "name": "three-nodes",
    "flows": [
        {"name": "scan", "payload_bytes": 20_000, "rate": 50, "missed_percent": 50},
        {"name": "imu", "payload_bytes": 64, "rate": 100, "reliability": "best-effort"},
        {"name": "video", "schedule": "video.txt"},
        {"name": "command", "payload_bytes": 128, "after": "scan", "compute_ms": 2, "reliability": "reliable"},
    ],
    "nodes": {
        "driver": {"publishes": ["scan", "imu", "video"], "on": "robot"},
        "planner": {"subscribes": ["scan", "imu", "video"], "publishes": "command", "on": "base"},
        "motor": {"subscribes": ["command", "imu"], "on": "robot"},
    },
    "chains": [{"name": "reaction", "from": "scan", "to": "command", "delay": "p50 <= 10 s"}],
    "choices": {"networks": "flannel-vxlan", "middleware": ["cyclonedds", "fastdds"], "receive_mode": "listener",
                "transport": "unicast", "message_bytes": "auto", "batch_bytes": [0, 1000]},
    "repetitions": 1,
    "duration_s": 2,
}  # fmt: skip


def test_each_node_receives_all_flows_at_once(k8sdds: Command, tmp_path: Path) -> None:
    file = tmp_path / "three.yaml"
    file.write_text(yaml_text.dump(APPLICATION))
    (tmp_path / "video.txt").write_text("period 500000\n0 60000\n1000 500\n400000 36\n")
    done = k8sdds("run", str(file), "-o", str(tmp_path / "run"))
    run, last = RunFolder.open(tmp_path / "run"), last_attempts(tmp_path / "run")
    assert [record["reason"] for record in last if not record["valid"]] == [], done.stderr
    assert done.returncode == UNDECIDED, done.stderr
    measured = sorted((record["middleware"], record["batch_bytes"]) for record in last)
    assert measured == [("cyclonedds", 0), ("cyclonedds", 1000), ("fastdds", 0)]
    for record in last:
        flows = record["by_flow"]
        assert {name: list(flow["subscribers"]) for name, flow in flows.items()} == {
            "scan": ["planner"], "imu": ["planner", "motor"], "video": ["planner"], "command": ["motor"]
        }  # fmt: skip
        assert [flows[name]["scheduled"] for name in ("scan", "imu", "video")] == [100, 200, 12]
        # A busy machine sends fewer samples, but it counts each one.
        for flow in flows.values():
            assert 0 < flow["sent"] <= flow["scheduled"]
            for counts in flow["subscribers"].values():
                assert counts["received"] + counts["lost"] == flow["sent"]
        scan, command = flows["scan"], flows["command"]
        assert (scan["lost"], command["lost"]) == (0, 0)
        # Each command follows a scan; it was due when the scan had arrived, and sent after 2 ms of computing.
        assert command["sent"] <= scan["received"] <= command["scheduled"] == 100
        assert command["delay_count"] == command["chain"]["delay_count"] == command["received"]
        logged = histograms.latencies(histograms.logged(run.raw(record["trial_id"], record["attempt"])))
        assert logged["one_way:command"].minimum >= COMPUTED_NS
        assert logged["chain:command"].minimum >= COMPUTED_NS
    assert "Chains of the most promising configuration" in done.stdout
