"""Tuning sets in the lab: applied to nodes and pods, or refused by the name of each setting."""

from __future__ import annotations

import json
from pathlib import Path

from k8sdds.results.run_folder import RunFolder
from tests.conftest import Command

SYSCTLS = Path("/proc/sys/net/ipv4")


def _write(folder: Path, tuning: list[str]) -> None:
    settings = {"baseline": "flannel-hostgw", "repetitions": 1, "duration_s": 0.5, "warmup_s": 0.1}
    sweep = {"networks": "flannel-hostgw", "test": "latency", "tuning": tuning}
    (folder / "t.yaml").write_text(json.dumps({"name": "t", **settings, "sweeps": [sweep]}))


def test_a_campaign_sweeps_tuning_sets(k8sdds: Command, tmp_path: Path) -> None:
    before = (SYSCTLS / "tcp_rmem").read_text()
    _write(tmp_path, ["none", "tcp-buffers"])
    done = k8sdds("run", str(tmp_path / "t.yaml"), "-o", "run")
    assert done.returncode == 0, done.stderr
    trials = {trial.get("tuning"): trial for trial in RunFolder(tmp_path / "run").attempts()}
    assert set(trials) == {"none", "tcp-buffers"} and all(trial["valid"] for trial in trials.values())
    seen = trials["tcp-buffers"]["node_settings"]
    assert set(seen) == {"node0", "node1", "pub0", "sub0"}
    assert {place["net.ipv4.tcp_rmem"] for place in seen.values()} == {"4096 131072 16777216"}
    assert "node_settings" not in trials["none"]
    assert (SYSCTLS / "tcp_rmem").read_text() == before, "this machine is unchanged"
    assert "tuning tcp-buffers" in k8sdds("report", "run").stdout


def test_settings_of_the_whole_machine_are_refused_by_name(k8sdds: Command, tmp_path: Path) -> None:
    _write(tmp_path, ["tuned-network-latency"])
    done = k8sdds("run", str(tmp_path / "t.yaml"), "-o", "run")
    assert done.returncode == 3
    message = " ".join(done.stderr.split())
    assert (
        "tuning tuned-network-latency: the nodes of the lab share these settings with this machine" in message
    )
    assert "vm.swappiness" in message and "kernel.numa_balancing" in message
    assert "net.ipv4.tcp_fastopen" not in message
    assert not (tmp_path / "run").exists()
