"""Take the fingerprint of each network in the lab: what is observed must be what the network is described as."""

from __future__ import annotations

import pytest

from k8sdds.networks import NETWORKS, find
from k8sdds.system.kernel_features import TC_BPF
from k8sdds.testbeds import fingerprint
from k8sdds.testbeds.lab import places
from k8sdds.testbeds.lab.lab_network import LabNetwork

OUTER = {
    "VXLAN": ("VXLAN", 50),
    "WireGuard": ("WireGuard", 60),
    "IP in IP": ("IP-in-IP", 20),
    "": ("none", 0),
}
"""Encapsulation as a network describes it, to the protocol and the bytes that must be observed."""


@pytest.mark.parametrize("network", NETWORKS)
def test_what_is_observed_is_what_the_network_describes(
    lab_networks: dict[str, LabNetwork], network: str
) -> None:
    lab_network, described = lab_networks[network], find(network)
    found = fingerprint.observe(places.probed(lab_network))
    if described.encapsulation in OUTER:
        assert (found.outer_protocol, found.added_bytes) == OUTER[described.encapsulation]
    else:
        assert found.outer_protocol in ("ESP", "ESP in UDP")
        assert found.added_bytes is not None and found.added_bytes >= 34
    assert found.cleartext == (not described.encryption)
    assert found.multicast == bool(described.multicast)
    assert found.path_mtu_bytes == lab_network.plan.datapath.mtu
    assert found.masqueraded is False
    by_programs = TC_BPF in described.requires
    # Also with `host`: its nodes have the rules of kube-proxy.
    filtered = network == "host" or (described.layer in ("L2 overlay", "L3 routes") and not by_programs)
    assert found.conntrack == filtered
    assert found.rules_matched is not None and found.rules is not None
    assert (0 < found.rules_matched < found.rules) == filtered
    assert bool(found.programs) == by_programs
    assert (found.uplink, found.not_observed) == ("eth0", {})
