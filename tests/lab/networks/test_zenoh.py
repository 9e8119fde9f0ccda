"""Zenoh on networks of the lab: each transport, between peers and through a router, which is a part of the cost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.model.trial import DISCOVERY_SERVER
from k8sdds.results.run_folder import RunFolder
from tests.conftest import Command
from tests.lab.conftest import skip_if_unavailable
from tests.measuring import experiment, measured, measured_over_links

NETWORKS = ("host", "flannel-vxlan", "calico-vxlan")
KINDS = """\
  - &peers
    networks: [{networks}]
    middleware: zenoh
    subscribers: 2
  - <<: *peers
    discovery: server
    test: [throughput, latency]
    subscribers: 1
  - <<: *peers
    discovery: server
  - <<: *peers
    middleware: zenoh-udp
    reliability: best-effort
    discovery: [peers, server]
    test: {{name: paced}}
    rate: 2000
  - networks: flannel-vxlan
    middleware: [zenoh, zenoh-quic]
    security: EncryptRTPS
    test: latency
"""


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_all_transports_and_topologies_in_a_campaign(k8sdds: Command, tmp_path: Path) -> None:
    for network in NETWORKS:
        skip_if_unavailable(network)
    kinds = KINDS.format(networks=", ".join(NETWORKS))
    last = measured(k8sdds, tmp_path, experiment(kinds, baseline="host"))
    run = RunFolder.open(tmp_path / "out")
    assert len(last) == len(NETWORKS) * 6 + 2
    for record in last:
        folder = run.raw(record["trial_id"], record["attempt"])
        options = json.loads((folder / "sub0" / "stdout").read_text())["k8sdds"]["options"]
        through_router = record["discovery"] == "server"
        assert (options["discovery"], bool(options["peer"])) == (
            ("server", False) if through_router else ("peers", True)
        )
        assert (folder / DISCOVERY_SERVER.name).exists() == through_router
        used = record["service_cpu_percent"]
        assert (used is not None and used > 0.5) == through_router
        spun = record["pacer_cpu_percent"] or 0
        participants = record["publisher_cpu_percent"] - spun
        participants += record["subscriber_cpu_percent"] * record["subscribers"]
        assert record["total_cpu_percent"] > 0.99 * (participants + (used or 0))
        if through_router:
            # Each sample enters the router and leaves it for each subscriber: on the host network, by loopback.
            copies = 0 if record["network"] == "host" else record["subscribers"]
            sent = record["sent"] * record["payload_bytes"]
            assert record["service_network_bytes"] > sent * (1 + copies) * 0.9
            assert record["service_rss_bytes"] > 1_000_000


OUTAGE = """\
  - networks: host
    middleware: zenoh
    discovery: server
    test: {name: outage, what: server, after_s: 1, for_s: 1}
    rate: 500
"""


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_nothing_arrives_while_the_router_is_away(k8sdds: Command, tmp_path: Path) -> None:
    (record,) = measured_over_links(k8sdds, tmp_path, experiment(OUTAGE, duration_s=6))
    assert record["outage_blind_ms"] >= 1000
    assert record["recovery_first_ms"] > 0
