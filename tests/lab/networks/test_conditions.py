"""Conditions of trials in one campaign of the lab: tuning sets, policies, links, and participants on one node."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k8sdds.results.run_folder import RunFolder
from tests.commands import K8SDDS, environment
from tests.conftest import Command, traces
from tests.lab.conftest import missing_feature

TCP_RMEM = Path("/proc/sys/net/ipv4/tcp_rmem")
SETTINGS = {"repetitions": 1, "duration_s": 0.5, "warmup_s": 0.1}
SAME_NODE = [name for name in ("host", "flannel-vxlan", "calico-bgp") if not missing_feature(name)]
SWEEPS = [
    {"networks": "flannel-hostgw", "test": "latency", "tuning": ["none", "tcp-buffers"]},
    {"networks": "kube-router", "test": "latency", "policies": [0, 100]},
    {
        "networks": "flannel-vxlan", "test": "throughput", "payload_bytes": 8192, "message_bytes": "mtu",
        "link": {"mtu": [1500, 9000], "offloads": {"gro": True}},
    },
    {"networks": SAME_NODE, "test": ["throughput", "latency"], "placement": "same-node"},
]  # fmt: skip


def experiment(folder: Path, sweeps: list[dict[str, Any]]) -> str:
    (folder / "conditions.yaml").write_text(json.dumps({"name": "conditions", **SETTINGS, "sweeps": sweeps}))
    return "conditions.yaml"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunFolder, str]]:
    """Measure all conditions; yield the run folder and what was printed. Nothing on this machine may have changed."""
    folder = tmp_path_factory.mktemp("conditions")
    before = traces(folder), TCP_RMEM.read_text()
    argv = [str(K8SDDS), "run", experiment(folder, SWEEPS), "-o", "out"]
    done = subprocess.run(argv, cwd=folder, env=environment(folder), capture_output=True, text=True)
    # On a busy machine, samples may arrive too bunched for a rate.
    assert done.returncode in (0, 4), done.stderr
    assert (traces(folder), TCP_RMEM.read_text()) == before
    yield RunFolder.open(folder / "out"), done.stdout


@pytest.fixture
def run(measured: tuple[RunFolder, str]) -> RunFolder:
    return measured[0]


def last_by(run: RunFolder, axis: str, *networks: str) -> dict[Any, dict[str, Any]]:
    """Return the last attempts of the trials between nodes on some networks, by their value of an axis."""
    records = [record for record in run.attempts() if record["placement"] == "spread"]
    return {record.get(axis): record for record in records if record["network"] in networks}


def test_tuning_sets_apply_to_nodes_and_pods(run: RunFolder) -> None:
    trials = last_by(run, "tuning", "flannel-hostgw")
    assert set(trials) == {"none", "tcp-buffers"} and all(trial["valid"] for trial in trials.values())
    seen = trials["tcp-buffers"]["node_settings"]
    assert set(seen) == {"node0", "node1", "pub0", "sub0"}
    assert {place["net.ipv4.tcp_rmem"] for place in seen.values()} == {"4096 131072 16777216"}
    assert "node_settings" not in trials["none"]


def test_policies_add_rules(run: RunFolder) -> None:
    trials = last_by(run, "policies", "kube-router")
    assert set(trials) == {0, 100} and all(trial["valid"] for trial in trials.values())
    assert "100 policies deny what node0 sends to sub0" in trials[100]["network_proof"]
    assert "deny" not in trials[0]["network_proof"]
    # Each policy has two rules and a jump in the chain of a pod; the first replaces what accepts all packets.
    rules = {count: trial["fingerprint"]["rules"] for count, trial in trials.items()}
    assert rules[100] - rules[0] >= 299


def test_the_mtu_of_links_is_recorded(run: RunFolder) -> None:
    trials = last_by(run, "mtu_bytes", "flannel-vxlan")
    assert {mtu: trial["valid"] for mtu, trial in trials.items()} == {1450: True, 8950: True}
    seen = trials[8950]["node_links"]["node1"]
    assert (seen["mtu_bytes"], seen["generic-receive-offload"]) == (9000, True)
    # A message of a sample in one packet instead of six costs fewer headers on the wire.
    assert trials[8950]["wire_bytes_per_payload_byte"] + 0.05 < trials[1450]["wire_bytes_per_payload_byte"]


def test_samples_stay_on_the_node(run: RunFolder) -> None:
    trials = [record for record in run.attempts() if record["placement"] == "same-node"]
    # Never on another path.
    assert {str(trial["reason"]).split(":")[0] for trial in trials if not trial["valid"]} <= {"uneven"}
    assert {trial["network"] for trial in trials if trial["valid"]} >= {"host", "flannel-vxlan"}
    for trial in trials:
        evidence = trial["link_bytes"]
        payload_bytes = trial["payload_bytes"] * evidence["delivered_samples"]["sub0"]
        assert evidence["received"]["sub0"] > payload_bytes > 100 * evidence["uplink"]
        assert trial["wire_bytes_per_payload_byte"] < 2.5


def test_the_report_names_the_conditions(measured: tuple[RunFolder, str]) -> None:
    _, shown = measured
    assert "tuning tcp-buffers" in shown and "100 policies" in shown


def test_settings_of_the_whole_machine_are_refused_by_name(k8sdds: Command, tmp_path: Path) -> None:
    sweep = {"networks": ["host", "flannel-hostgw"], "test": "latency", "tuning": ["tuned-network-latency"]}
    done = k8sdds("run", experiment(tmp_path, [sweep]), "-o", "run")
    assert done.returncode == 3
    message = " ".join(done.stderr.split())
    assert "tuning tuned-network-latency: the nodes of the lab share these settings with this" in message
    assert "vm.swappiness" in message and "kernel.numa_balancing" in message
    assert "net.ipv4.tcp_fastopen" not in message
    assert not (tmp_path / "run").exists()
