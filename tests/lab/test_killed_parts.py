"""Test that a campaign in the lab survives the end of any of its processes, at any moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import Chaos, descendants
from tests.conftest import environment

pytestmark = pytest.mark.usefixtures("nothing_left")

EXPERIMENT = """\
name: chaos
baseline: host
repetitions: {repetitions}
duration_s: 0.3
warmup_s: 0.1
sweeps:
  - networks: [{networks}]
    test: [latency]
"""


OUTAGES = """\
name: chaos
baseline: host
repetitions: 3
duration_s: 2.7
warmup_s: 0.1
sweeps:
  - networks: [host]
    test: {name: outage, after_s: 0.5, for_s: 0.2, what: WHAT}
    rate: 100
"""


def chaos(tmp_path: Path, networks: str, repetitions: int, seed: int) -> Chaos:
    experiment = tmp_path / "chaos.yaml"
    experiment.write_text(EXPERIMENT.format(networks=networks, repetitions=repetitions))
    start = ("run", str(experiment), "-o", "out", "--seed", "1")
    return Chaos(start, tmp_path / "out", environment(tmp_path), descendants, seed)


def test_killed_parts_cost_no_attempt(tmp_path: Path) -> None:
    campaign = chaos(tmp_path, "host, flannel-ipsec", 2, seed=1)
    assert campaign.run(kills=4, command_too=False, timeout_s=300) == 0
    campaign.require_one_valid_attempt_per_trial()
    assert campaign.reasons() <= {"part-failed"}


@pytest.mark.parametrize("what", ["link", "pod"])
def test_killed_outages_leave_nothing_behind(what: str, tmp_path: Path) -> None:
    experiment = tmp_path / "chaos.yaml"
    experiment.write_text(OUTAGES.replace("WHAT", what))
    start = ("run", str(experiment), "-o", "out", "--seed", "1")
    campaign = Chaos(start, tmp_path / "out", environment(tmp_path), descendants, seed=1)
    assert campaign.run(kills=6, command_too=True, timeout_s=120) == 0
    campaign.clean()
    campaign.require_one_valid_attempt_per_trial()
    # A busy machine can be too late to forward packets.
    assert campaign.reasons() <= {"part-failed", "link"}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_killed_campaigns_can_be_resumed(tmp_path: Path, seed: int) -> None:
    campaign = chaos(tmp_path, "baremetal, host, flannel-vxlan, flannel-ipsec", 5, seed)
    assert campaign.run(kills=25, command_too=True, timeout_s=300) == 0
    # A campaign that was killed before it created its run folder cannot be resumed.
    campaign.clean()
    campaign.require_one_valid_attempt_per_trial()
    assert campaign.interrupted()
    assert campaign.reasons() <= {"part-failed"}
