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


RESTARTS = """\
  - networks: flannel-vxlan
    test: {name: discovery, processes: 2, members: 2, steady_s: 1, change: restart-server, change_s: 8, late_s: 10}
    middleware: [fastdds, zenoh]
    discovery: server
"""


def test_the_members_of_pods_find_each_other(k8sdds: Command, user: User, tmp_path: Path) -> None:
    text = experiment(FLEETS, duration_s=16, warmup_s=0, baseline="flannel-vxlan")
    for record in measured(k8sdds, tmp_path, text, *user.options):
        assert record["fleet"]["created"] == 8 and record["unmatched_percent"] == 0
        assert record["fleet_packets"] > 0 and record["link_bytes"]["sent"] > 0
        if record["discovery"] == "peers":
            assert record["fleet_rematched_s"] > 0


def test_the_servers_of_a_cluster_restart_at_their_addresses(
    k8sdds: Command, user: User, tmp_path: Path
) -> None:
    text = experiment(RESTARTS, duration_s=30, warmup_s=0, baseline="flannel-vxlan")
    found = {record["middleware"]: record for record in measured(k8sdds, tmp_path, text, *user.options)}
    for record in found.values():
        assert record["outage_s"] > 0 and record["fleet"]["expected"] == 32
        assert record["service_cpu_percent"] > 0
    # Members of Zenoh connect to the router again. Those of Fast DDS do not always find the late one.
    assert found["zenoh"]["broken_percent"] > 0 and found["zenoh"]["unmatched_percent"] == 0
    assert found["fastdds"]["broken_percent"] == 0
