"""Connections to a Service in the lab: rules of the client's node translate each of them, or none if it is headless."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.measuring import experiment, measured

EACH_KIND = """\
  - networks: flannel-vxlan
    payload_bytes: 1
    test:
      - {name: service, services: 20}
      - {name: service, services: 20, via: node-port}
      - {name: service, services: 20, via: headless}
      - {name: service, services: 20, proxy: nftables}
      - {name: service, services: 20, via: node-port, proxy: nftables}
      - {name: service, services: 20, via: headless, proxy: nftables}
"""
NETWORKS = """\
  - networks: [flannel-vxlan, calico-vxlan, kube-router]
    payload_bytes: 1
    test:
      - service
      - {name: service, services: 1000}
      - {name: service, via: node-port}
      - {name: service, via: node-port, proxy: nftables}
  - networks: flannel-vxlan
    payload_bytes: 1
    test:
      - {name: service, services: 5000}
      - {name: service, services: 5000, via: headless}
      - {name: service, services: 5000, proxy: nftables}
      - {name: service, services: 5000, via: headless, proxy: nftables}
  - networks: flannel-vxlan
    payload_bytes: 1
    ip_families: [ipv6]
    test:
      - service
      - {name: service, via: node-port}
      - {name: service, proxy: nftables}
      - {name: service, via: node-port, proxy: nftables}
      - {name: service, via: headless, proxy: nftables}
"""


def check(record: dict[str, Any]) -> None:
    """Check the evidence of a valid record, which is independent of what made it valid."""
    opened = record["connections_per_s"] * record["measured_s"]
    print(record["network"], record["via"], record.get("proxy"), record["services"], round(opened))
    if record["via"] == "headless":
        assert record["service_connections"] == 0 < opened
    else:
        assert record["service_connections"] >= opened > 0


@pytest.mark.usefixtures("nothing_left")
def test_each_kind_of_address_with_each_kind_of_rules(k8sdds: Command, tmp_path: Path) -> None:
    last = measured(k8sdds, tmp_path, experiment(EACH_KIND, baseline="flannel-vxlan"))
    assert len(last) == 6
    for record in last:
        check(record)


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_networks_families_and_many_services(k8sdds: Command, tmp_path: Path) -> None:
    last = measured(k8sdds, tmp_path, experiment(NETWORKS, baseline="flannel-vxlan"))
    assert len(last) == 21
    for record in last:
        check(record)
