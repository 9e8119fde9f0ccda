"""Connections to a Service in the lab: rules of the client's node translate each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.results.run_folder import RunFolder
from tests.conftest import Command

SERVICES = """\
name: services
baseline: flannel-vxlan
repetitions: 1
duration_s: 1
warmup_s: 0.2
sweeps:
  - networks: [flannel-vxlan, calico-vxlan, kube-router]
    payload_bytes: 1
    test: [service, {name: service, services: 1000}]
  - networks: flannel-vxlan
    payload_bytes: 1
    test: {name: service, services: 5000}
  - networks: flannel-vxlan
    payload_bytes: 1
    ip_families: [ipv6]
    test: service
"""


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_rules_translate_every_connection(k8sdds: Command, tmp_path: Path) -> None:
    (tmp_path / "services.yaml").write_text(SERVICES)
    done = k8sdds("run", "services.yaml", "-o", "out", timeout_s=300)
    assert done.returncode == 0, done.stderr
    last = {record["trial_id"]: record for record in RunFolder.open(tmp_path / "out").attempts()}.values()
    invalid = [
        (record["network"], record["services"], record["reason"]) for record in last if not record["valid"]
    ]
    assert invalid == [], done.stderr
    assert len(last) == 8
    for record in last:
        assert record["service_connections"] >= record["connections_per_s"] * record["measured_s"] > 0
        print(record["network"], record["services"], record["connections_per_s"], record["round_trip_p99_us"])
