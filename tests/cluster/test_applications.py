"""Test an application on a real cluster: all configurations are measured; networks are switched and left out."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.clusters import Deployed
from tests.measuring import valid_attempts

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.long]

FLOWS = """
flows:
  - {name: camera, payload_bytes: 16384, rate: 50, subscribers: 2, delay: p50 <= 10 s}
  - {name: commands, payload_bytes: 64, rate: 100, delay: p50 <= 10 s}
"""
APPLICATION = f"""
name: robot
{FLOWS}
cpu_percent: 2000
choices:
  networks: [flannel-vxlan, flannel-hostgw, baremetal]
  middleware: cyclonedds
  transport: unicast
  receive_mode: listener
  message_bytes: auto
repetitions: 2
duration_s: 2
"""


def test_all_configurations_are_measured_and_judged(one_machine: Deployed, tmp_path: Path) -> None:
    path, folder = tmp_path / "robot.yaml", tmp_path / "run"
    path.write_text(APPLICATION)
    done = one_machine.k8sdds("run", str(path), "--testbed", one_machine.name, "-o", str(folder))
    assert done.returncode in (0, 8), done.stdout + done.stderr
    assert "Left out because the testbed does not have them: baremetal" in done.stdout
    rows = valid_attempts(folder)
    cells = Counter((row["network"], row["payload_bytes"]) for row in rows)
    assert cells == {
        (network, payload): 2 for network in ("flannel-vxlan", "flannel-hostgw") for payload in (16384, 64)
    }
    for row in rows:
        # Two subscribers and a publisher on three nodes; each publisher is on the same node.
        assert len(row["nodes_cpu"]) == row["subscribers"] + 1
    assert len(set.intersection(*(set(row["nodes_cpu"]) for row in rows))) >= 1
    answer = json.loads((folder / "report" / "recommendation.json").read_text())
    assert len(answer["configurations"]) == 2 and answer["not_measured"] == []
    assert {"network": "baremetal"} in [each["choices"] for each in answer["excluded"]]
    (budget,) = [each for each in answer["configurations"][0]["requirements"] if each["flow"] is None]
    assert (budget["metric"], budget["n"]) == ("node_cpu_percent", 2)
    refused = one_machine.k8sdds(
        "run", str(path), "--testbed", one_machine.name, "--network", "baremetal", "--dry-run"
    )
    assert refused.returncode == 2 and "baremetal" in refused.stderr


def test_twenty_nodes_run_at_once(one_machine: Deployed, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    choices = ("middleware=cyclonedds", "receive_mode=listener", "message_bytes=auto")
    done = one_machine.k8sdds(
        "run", "mont-blanc", "--testbed", one_machine.name, "--network", "flannel-hostgw", "--repeat", "2",
        *(f"--set=choices.{choice}" for choice in choices), "-o", str(folder),
    )  # fmt: skip
    assert done.returncode in (0, 8), done.stdout + done.stderr
    rows = valid_attempts(folder)
    assert len(rows) == 2
    for row in rows:
        assert len(row["nodes_cpu"]) > 1 and len(row["by_flow"]) == 23
        for flow in row["by_flow"].values():
            assert flow["sent"] > 0 and flow["lost"] == 0
            assert all(counts["received"] == flow["sent"] for counts in flow["subscribers"].values())
