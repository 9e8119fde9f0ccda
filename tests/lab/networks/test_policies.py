"""NetworkPolicies in the lab: the rules that kube-router creates for them, on packets that they allow and deny."""

from __future__ import annotations

import json
from pathlib import Path

from k8sdds.results.run_folder import RunFolder
from k8sdds.testbeds.lab.testbed import Lab
from tests.conftest import Command
from tests.lab.conftest import cell, output_of

COUNT = 20


def test_packets_pass_the_chains_of_all_policies(lab: Lab) -> None:
    """`up` fails unless the policies deny what another node sends, and allow what a participant sends."""
    lab.up([cell("kube-router", policies=COUNT)])
    (lab_network,) = lab.networks.values()
    before = _matched(output_of(lab_network, "node1", "iptables-nft-save", "-c", "-t", "filter"))
    assert len(before) == COUNT
    target = lab_network.plan.datapath.attachments["sub0"].address
    send = f"import socket; s=socket.socket(2,2); [s.sendto(b'x', ('{target}', 9)) for _ in range(10)]"
    output_of(lab_network, "pub0", "python3", "-c", send)
    after = _matched(output_of(lab_network, "node1", "iptables-nft-save", "-c", "-t", "filter"))
    # A flow of UDP without answers stays new, so that no packet takes the shortcut of known connections.
    assert [after[name] - before[name] for name in before] == [10] * COUNT
    refused = output_of(lab_network, "node1", "iptables-nft-save", "-c", "-t", "filter")
    (reject,) = [line for line in refused.splitlines() if "SUB0 reject" in line]
    assert int(reject[1:].partition(":")[0]) > 0


def _matched(rules: str) -> dict[str, int]:
    """Return how many packets the first rule of each policy's chain has marked."""
    lines = [line for line in rules.splitlines() if "ingress pods" in line and "-j MARK" in line]
    return {line.partition("-A ")[2].split()[0]: int(line[1:].partition(":")[0]) for line in lines}


def test_a_campaign_sweeps_the_number_of_policies(k8sdds: Command, tmp_path: Path) -> None:
    sweep = {"networks": ["kube-router"], "policies": [0, 100], "test": "latency"}
    settings = {"baseline": "kube-router", "repetitions": 1, "duration_s": 0.5, "warmup_s": 0.1}
    (tmp_path / "p.yaml").write_text(json.dumps({"name": "p", **settings, "sweeps": [sweep]}))
    done = k8sdds("run", str(tmp_path / "p.yaml"), "-o", "run")
    assert done.returncode == 0, done.stderr
    trials = {trial.get("policies"): trial for trial in RunFolder(tmp_path / "run").attempts()}
    assert set(trials) == {0, 100} and all(trial["valid"] for trial in trials.values())
    assert "100 policies deny what node0 sends to sub0" in trials[100]["network_proof"]
    assert "deny" not in trials[0]["network_proof"]
    # Each policy has two rules and a jump in the chain of a pod; the first replaces what accepts all packets.
    rules = {count: trial["fingerprint"]["rules"] for count, trial in trials.items()}
    assert rules[100] - rules[0] >= 299
    assert "100 policies" in k8sdds("report", "run").stdout
