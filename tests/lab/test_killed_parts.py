"""Test that a campaign in the lab survives the end of any of its processes, at any moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import Chaos, descendants
from tests.conftest import environment
from tests.measuring import experiment

pytestmark = pytest.mark.usefixtures("nothing_left")


def chaos(folder: Path, sweep: str, repetitions: int, duration_s: float, seed: int) -> Chaos:
    head = {"baseline": "host", "repetitions": repetitions, "duration_s": duration_s, "warmup_s": 0.1}
    (folder / "chaos.yaml").write_text(experiment(f"  - {{{sweep}}}\n", **head))
    start = ("run", "chaos.yaml", "-o", "out", "--seed", "1")
    return Chaos(start, folder / "out", environment(folder), descendants, seed)


def test_killed_parts_cost_no_attempt(tmp_path: Path) -> None:
    campaign = chaos(tmp_path, "networks: [host, flannel-ipsec], test: latency", 2, 0.3, seed=1)
    assert campaign.run(kills=4, command_too=False, timeout_s=900) == 0
    campaign.require_one_valid_attempt_per_trial()
    assert campaign.reasons() <= {"part-failed"}


@pytest.mark.parametrize("what", ["link", "pod"])
def test_killed_outages_leave_nothing_behind(what: str, tmp_path: Path) -> None:
    outage = f"{{name: outage, after_s: 0.5, for_s: 0.2, what: {what}}}"
    campaign = chaos(tmp_path, f"networks: host, test: {outage}, rate: 100", 3, 2.7, seed=1)
    assert campaign.run(kills=6, command_too=True, timeout_s=900) == 0
    campaign.clean()
    campaign.require_one_valid_attempt_per_trial()
    # A busy machine can be too late to forward packets.
    assert campaign.reasons() <= {"part-failed", "link"}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_killed_campaigns_can_be_resumed(tmp_path: Path, seed: int) -> None:
    networks = "baremetal, host, flannel-vxlan, flannel-ipsec"
    campaign = chaos(tmp_path, f"networks: [{networks}], test: latency", 5, 0.3, seed)
    assert campaign.run(kills=25, command_too=True, timeout_s=900) == 0
    # A campaign that was killed before it created its run folder cannot be resumed.
    campaign.clean()
    campaign.require_one_valid_attempt_per_trial()
    assert campaign.interrupted()
    assert campaign.reasons() <= {"part-failed"}
