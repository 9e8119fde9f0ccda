"""Participants on one node: what their interfaces and the link to other nodes really carry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from tests.conftest import Command
from tests.lab.conftest import missing_feature

NETWORKS = ("host", "flannel-vxlan", "calico-bgp")


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "one-node.yaml"
    sweep = {
        "networks": [name for name in NETWORKS if not missing_feature(name)],
        "test": ["throughput", "latency"],
    }
    settings = {"repetitions": 1, "duration_s": 0.6, "warmup_s": 0.1, "placement": "same-node"}
    path.write_text(json.dumps({"name": "one-node", **settings, "sweeps": [sweep]}))
    return path


def test_samples_stay_on_the_node(k8sdds: Command, experiment: Path, tmp_path: Path) -> None:
    done = k8sdds("run", str(experiment), "-o", "run")
    assert done.returncode in (0, 4), done.stderr
    trials = RunFolder(tmp_path / "run").attempts()
    # On a busy machine, samples may arrive too bunched for a rate, but never on another path.
    assert {str(trial["reason"]).split(":")[0] for trial in trials if not trial["valid"]} <= {"uneven"}
    assert {trial["network"] for trial in trials if trial["valid"]} >= {"host", "flannel-vxlan"}
    for trial in trials:
        assert trial["placement"] == "same-node"
        evidence = trial["link_bytes"]
        payload_bytes = trial["payload_bytes"] * evidence["delivered_samples"]["sub0"]
        assert evidence["received"]["sub0"] > payload_bytes > 100 * evidence["uplink"]
        assert trial["wire_bytes_per_payload_byte"] < 2.5
