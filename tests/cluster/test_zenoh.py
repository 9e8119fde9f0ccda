"""Measure Zenoh on a real cluster: between peers and through its router, whose CPU time is a part of the cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Command, User
from tests.clusters import Deployed
from tests.measuring import experiment, measured

SWEEPS = """\
  - networks: flannel-vxlan
    middleware: zenoh
    discovery: [peers, server]
    rate: 1000
"""


def test_samples_take_the_network_between_peers_and_through_the_router(
    one_machine: Deployed, tmp_path: Path
) -> None:
    text = experiment(SWEEPS, baseline="flannel-vxlan")
    attempts = measured(one_machine.k8sdds, tmp_path, text, "--testbed", one_machine.name)
    assert sorted(attempt["discovery"] == "server" for attempt in attempts) == [False, True]
    for attempt in attempts:
        assert attempt["received"] == attempt["sent"] > 0
        assert "carried by flannel.1" in attempt["network_proof"]
        through_router = attempt["discovery"] == "server"
        assert (attempt["service_cpu_percent"] is not None) == through_router


PLACED = """\
  - networks: flannel-vxlan
    middleware: zenoh-udp
    reliability: best-effort
    test: paced
    rate: 1000
    discovery: server
  - networks: flannel-vxlan
    middleware: zenoh
    discovery: server
    test: latency
    placement: {pub: 0, sub: 1, discovery: 0}
"""


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_the_router_is_a_part_of_the_cost_wherever_it_is(k8sdds: Command, user: User, tmp_path: Path) -> None:
    for record in measured(k8sdds, tmp_path, experiment(PLACED, baseline="flannel-vxlan"), *user.options):
        participants = sum(parts["participants"] for parts in record["nodes_cpu"].values())
        assert record["service_cpu_percent"] > 1
        assert record["total_cpu_percent"] > 0.99 * (participants + record["service_cpu_percent"])
