"""Measure with IPv6 and with both IP families in the lab, as a user runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command
from tests.measuring import experiment, measured

pytestmark = pytest.mark.usefixtures("nothing_left")

SWEEPS = """\
  - networks: [{networks}]
    test: latency
    payload_bytes: 8192
    message_bytes: mtu
    middleware: [cyclonedds, fastdds]
  - networks: [{multicast}]
    test: throughput
    payload_bytes: 1024
    transport: multicast
    subscribers: 2
  - networks: host
    test: latency
    payload_bytes: 8872
    middleware: raw
    reliability: best-effort
    capture: true
"""
MTU = {"flannel-vxlan": 1430, "calico-vxlan": 1430}
"""MTU of pods where nodes exchange packets by IPv6, if it is not that of the link."""


def measured_with(
    k8sdds: Command, folder: Path, families: str, networks: str, multicast: str = "host"
) -> list[dict[str, Any]]:
    sweeps = SWEEPS.format(networks=networks, multicast=multicast)
    text = experiment(sweeps, baseline="host", duration_s=0.3, ip_families=f"[{families}]")
    records = measured(k8sdds, folder, text)
    assert len(records) == 2 * len(networks.split(",")) + len(multicast.split(",")) + 1
    return records


def test_networks_carry_ipv6_alone(k8sdds: Command, tmp_path: Path) -> None:
    for record in measured_with(k8sdds, tmp_path, "ipv6", "host, flannel-vxlan"):
        network, found = record["network"], record["fingerprint"]
        assert record["ip_families"] == "ipv6"
        # Outer headers of IPv6 (40), UDP (8) and VXLAN (8), and the inner Ethernet header (14).
        expected = {"host": ("none", 0), "flannel-vxlan": ("VXLAN", 70)}[network]
        assert (found["outer_protocol"], found["added_bytes"]) == expected
        assert record["mtu_bytes"] == found["path_mtu_bytes"] == MTU.get(network, 1500)
        assert (found["not_observed"], found["masqueraded"]) == ({}, False)
        assert found["multicast"] == (network == "host")
        if record["middleware"] == "raw":
            # A datagram of 8872 bytes and its UDP header: 1448 bytes fit in a fragment. With IPv4, it would be 6.
            assert record["ip_fragments_per_sample"] == 7


@pytest.mark.long
@pytest.mark.parametrize("families", ["ipv6", "ipv6, ipv4", "ipv4, ipv6"])
def test_all_networks_with_ipv6(k8sdds: Command, tmp_path: Path, families: str) -> None:
    networks = (
        "host, baremetal, flannel-hostgw, flannel-vxlan, kube-router, macvlan, calico-bgp, calico-vxlan"
    )
    for record in measured_with(k8sdds, tmp_path, families, networks, multicast="host, macvlan"):
        network, found = record["network"], record["fingerprint"]
        assert record["ip_families"] == families.replace(", ", "+")
        outer = 70 if families.startswith("ipv6") else 50
        assert (found["outer_protocol"], found["added_bytes"]) == (
            ("VXLAN", outer) if network.endswith("vxlan") else ("none", 0)
        )
        assert record["mtu_bytes"] == found["path_mtu_bytes"] == MTU.get(network, 1500)
        assert found["multicast"] == (network in ("host", "baremetal", "macvlan"))
