"""Measure how a fleet discovers itself on a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Command, User
from tests.measuring import experiment, measured

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.long]

FLEETS = """\
  - networks: flannel-vxlan
    test: {name: discovery, processes: 2, members: 2, steady_s: 1, change: restart-process}
    middleware: [cyclonedds, fastdds]
    discovery: peers
    topics: 2
  - networks: flannel-vxlan
    test: {name: discovery, processes: 2, members: 2, steady_s: 1}
    middleware: fastdds
    discovery: server
"""


def test_the_members_of_pods_find_each_other(k8sdds: Command, user: User, tmp_path: Path) -> None:
    text = experiment(FLEETS, duration_s=16, warmup_s=0, baseline="flannel-vxlan")
    for record in measured(k8sdds, tmp_path, text, *user.options):
        assert record["fleet"]["created"] == 8 and record["unmatched_percent"] == 0
        assert record["fleet_packets"] > 0 and record["link_bytes"]["sent"] > 0
        if record["discovery"] == "peers":
            assert record["fleet_rematched_s"] > 0
