"""Test that a campaign on a cluster survives the end of any of its parts, at any moment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k8sdds.nodes import records
from tests.chaos import Chaos, command_line, descendants
from tests.clusters import Deployed
from tests.commands import environment
from tests.measuring import experiment

SWEEPS = """\
  - networks: [host, {network}]
    test: [latency]
  - networks: [{network}]
    test: [latency]
    middleware: fastdds
    discovery: server
"""
PROGRAMS = {
    "k8sdds-supervisor", "k8sdds-perftest", "k8sdds-probe", "fast-discovery-server", "flanneld", "cilium-agent",
}  # fmt: skip
"""What k8sdds or a network runs on the nodes. Kubernetes and systemd keep everything else running."""


def parts(command: int) -> list[int]:
    """Return the parts of the campaign on the nodes, and the port forward to the API server."""
    record = records.read("one-machine")
    assert record is not None
    on_nodes = [
        pid
        for machine in record.machines.values()
        for pid in descendants(machine.pid)
        if os.path.basename(command_line(pid)[0]) in PROGRAMS
    ]
    forward = ["pipe.py", str(record.holder[0])]
    return on_nodes + [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if [os.path.basename(word) for word in command_line(int(entry.name))[2:4]] == forward
    ]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_killed_parts_cost_no_attempt(one_machine: Deployed, tmp_path: Path, seed: int) -> None:
    campaign = survives(one_machine, tmp_path, "flannel-vxlan", seed)
    assert campaign.interrupted()


def survives(cluster: Deployed, folder: Path, network: str, seed: int) -> Chaos:
    """Run a campaign on a network, in YAML, while its parts are killed. Every trial must have one valid attempt."""
    (folder / "chaos.yaml").write_text(
        experiment(SWEEPS.format(network=network), baseline="host", repetitions=4)
    )
    start = ("run", "chaos.yaml", "--testbed", "one-machine", "-o", "run")
    variables = environment(folder) | {"K8SDDS_STATE_DIR": str(cluster.state)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("K8SDDS_STATE_DIR", str(cluster.state))
        campaign = Chaos(start, folder / "run", variables, parts, seed, pause_s=(1, 4))
        campaign.run(kills=20, command_too=True, timeout_s=3600)
    campaign.require_one_valid_attempt_per_trial()
    return campaign
