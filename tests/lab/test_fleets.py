"""Test discovery tests in the lab: fleets of each middleware, with a discovery server and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command
from tests.measuring import experiment, measured
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("nothing_left")
PEERS = """\
    test: {name: discovery, processes: 2, members: 2, steady_s: 1, change: restart-pod}
    publishers: 2
    topics: 2
    discovery: peers
"""
SERVER = """\
    test: {name: discovery, processes: 2, members: 2, steady_s: 1}
    discovery: server
"""


@pytest.mark.parametrize(
    ("network", "sweep", "middleware"),
    sampled(
        [
            ("flannel-hostgw", PEERS, "cyclonedds"),
            ("flannel-hostgw", PEERS, "fastdds"),
            ("host", SERVER, "fastdds"),
            ("host", SERVER, "zenoh"),
        ],
        every_run=2,
    ),
)
def test_the_members_of_a_fleet_match(
    k8sdds: Command, tmp_path: Path, network: str, sweep: str, middleware: str
) -> None:
    text = f"  - networks: {network}\n{sweep}    middleware: {middleware}\n"
    (record,) = measured(k8sdds, tmp_path, experiment(text, baseline=network, duration_s=16, warmup_s=0))
    assert record["unmatched_percent"] == 0 and record["fleet_matched_s"] < 16
    kinds = record["fleet_kinds"]["discovery"]
    for kind in ["zenoh"] if middleware == "zenoh" else ["participants", "endpoints"]:
        assert kinds[kind]["bytes"] > kinds[kind]["packets"] > 0
    assert record["link_bytes"]["sent"] > 0, "the pods' packets crossed the links of the nodes"
    assert record["fleet"]["created"] == 4 * (record["publishers"] + 1)
    if record["discovery"] == "server":
        assert record["service_cpu_percent"] > 0
    else:
        assert record["fleet_rematched_s"] > 0
        assert record["fleet_bytes"] > record["fleet_packets"] > 0


@pytest.mark.parametrize("middleware", sampled([("fastdds",), ("zenoh",)], every_run=1))
def test_a_server_restarts_before_the_last_member_starts(
    k8sdds: Command, tmp_path: Path, middleware: str
) -> None:
    restarted = SERVER.replace("steady_s: 1", "steady_s: 1, change: restart-server, change_s: 12")
    text = f"  - networks: host\n{restarted}    middleware: {middleware}\n"
    (record,) = measured(k8sdds, tmp_path, experiment(text, baseline="host", duration_s=30, warmup_s=0))
    assert record["outage_s"] > 0 and record["fleet"]["expected"] == 32
    if middleware == "zenoh":
        assert record["broken_percent"] > 0 and record["fleet_returned_s"] > 0
        assert record["unmatched_percent"] == 0 and record["fleet_rematched_s"] > 0
    else:
        # Members of Fast DDS need no server for their matches. They do not always find the late one.
        assert record["broken_percent"] == 0
