"""Test all DDS Security levels on a real cluster, on a network that the campaign installs.

tests/cluster/test_switch.py measures one level in every run, where the network is installed anyway.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.security import levels
from tests.cluster import secured
from tests.clusters import Deployed


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_every_level_is_measured_on_a_network_that_the_campaign_installs(
    one_machine: Deployed, tmp_path: Path
) -> None:
    names = levels.names()
    attempts = secured.measure(one_machine, tmp_path, names)
    valid = [row for row in attempts if row["valid"]]
    assert {(row["security"], row["test"]) for row in valid} == {
        (name, test) for name in names for test in ("latency", "throughput")
    }
    for row in valid:
        assert row["network"] == secured.NETWORK
        assert row["network_proof"].startswith("routed by eth0, no tunnel")
        assert row["link_bytes"]["carried"]["sub0"] >= row["received"] * row["payload_bytes"]
    # The original network is installed again.
    done = one_machine.k8sdds("deploy", one_machine.name, "--dry-run")
    assert "no changes" in done.stdout, done.stdout
