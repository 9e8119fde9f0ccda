"""Test that every network of the lab carries TCP, whose packets are longer than the MTU until a link segments them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.measuring import experiment, measured

NETWORKS = (
    "host", "baremetal", "flannel-vxlan", "flannel-hostgw", "kube-router", "weavenet", "macvlan", "calico-bgp",
    "calico-vxlan", "cilium-native", "cilium-vxlan",
)  # fmt: skip

MOST_RETRANSMITTED = 0.5
"""Share of the segments that were retransmitted. If each packet that is longer than the MTU is dropped, only retransmitted
segments arrive, whatever the rate."""
SEGMENT_BYTES = 1500
"""More than the payload of a segment."""


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="the BPF programs of cilium-* need root")
def test_every_network_carries_packets_that_are_not_segmented_yet(k8sdds: Command, tmp_path: Path) -> None:
    sweep = f"  - {{networks: [{', '.join(NETWORKS)}], test: tcp-stream, payload_bytes: 131072}}\n"
    last = measured(k8sdds, tmp_path, experiment(sweep, baseline="host", warmup_s=0))
    shares = {
        record["network"]: record["retransmits"] / (record["throughput_mbps"] * 1e6 / 8 / SEGMENT_BYTES)
        for record in last
    }
    assert shares.keys() == set(NETWORKS)
    assert {network: share for network, share in shares.items() if share > MOST_RETRANSMITTED} == {}
