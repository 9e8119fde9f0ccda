"""Tests of standard tools on a cluster: the image contains them, and servers start before their clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Command, User
from tests.measuring import experiment, measured

TOOLS = """\
  - networks: [host, flannel-vxlan]
    test: [tcp-stream, udp-stream, tcp-rr, udp-rr, tcp-crr, {name: http, object_bytes: 100000, concurrency: 8}]
  - networks: [flannel-vxlan]
    test: ping
  - networks: [flannel-vxlan]
    test: throughput
  - networks: [flannel-vxlan]
    test: [tcp-rr, {name: latency}]
    background: {flows: 150, kind: tcp, rate_mbit: 0.5}
"""


@pytest.mark.long
def test_all_tools_in_a_campaign(user: User, k8sdds: Command, tmp_path: Path) -> None:
    text = experiment(TOOLS, baseline="host", warmup_s=0.5, max_loss_percent=100)
    last = measured(k8sdds, tmp_path, text, *user.options)
    assert len(last) == 16
    for record in last:
        if record["test"] not in ("throughput", "latency"):
            assert record["link_bytes"]["delivered_bytes"]["pub0" if record["test"] == "http" else "sub0"] > 0
        assert record["subscriber_cpu_percent"] is not None
    loaded = [record["background_load"] for record in last if record.get("background_load")]
    assert [load["sent_percent"] > 0 and load["received_mbps"] > 0 for load in loaded] == [True, True]
