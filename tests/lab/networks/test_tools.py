"""Tests of standard tools in the lab, in one campaign: each is valid and has its main metric and CPU times."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.workloads import WORKLOADS
from tests.conftest import Command
from tests.measuring import experiment, measured

TOOLS = """\
  - networks: flannel-vxlan
    rate: 500
    test: [{name: tcp-stream, flows: 2}, udp-stream, ping]
  - networks: flannel-vxlan
    test: {name: http, concurrency: 2}
  - networks: flannel-vxlan
    payload_bytes: 1
    test: [{name: tcp-rr, connections: 4}, udp-rr, tcp-crr]
"""


@pytest.mark.usefixtures("nothing_left")
def test_all_tools_in_a_campaign(k8sdds: Command, tmp_path: Path) -> None:
    last = measured(k8sdds, tmp_path, experiment(TOOLS, baseline="flannel-vxlan", warmup_s=0))
    records = {record["test"]: record for record in last}
    assert len(last) == len(records) == 7
    for test, record in records.items():
        # On a busy machine, there may be too few pings for a percentile.
        metric = "round_trip_mean_us" if test == "ping" else WORKLOADS[test].metrics[0]
        assert record[metric] > 0, test
        receiver = "pub0" if test == "http" else "sub0"
        assert record["link_bytes"]["delivered_bytes"][receiver] > 0, test
        assert record["publisher_cpu_percent"] > 0, test
        # Kernels answer pings without the program in the pod.
        assert record["subscriber_cpu_percent"] > 0 or test == "ping", test
        assert record.get("middleware") is None, test
        control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
        assert record.get("tcp_congestion_control") == (control if WORKLOADS[test].tcp else None), test
    page = (tmp_path / "out" / "report" / "report.html").read_text()
    assert f"TCP congestion control {control}" in page
