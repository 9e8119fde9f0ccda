"""NetworkPolicies in the lab: the rules that kube-router creates for them, on packets that they allow and deny."""

from __future__ import annotations

from k8sdds.testbeds.lab.testbed import Lab
from tests.lab.conftest import cell, output_of

COUNT = 20


def test_packets_pass_the_chains_of_all_policies(lab: Lab) -> None:
    """`up` fails unless the policies deny what another node sends, and allow what a participant sends."""
    lab.up([cell("kube-router", policies=COUNT)])
    (lab_network,) = lab.networks.values()
    before = _matched(output_of(lab_network, "node1", "iptables-nft-save", "-c", "-t", "filter"))
    assert len(before) == COUNT
    target = lab_network.plan.datapath.attachments["sub0"].address
    send = f"import socket; s=socket.socket(2,2); [s.sendto(b'x', ('{target}', 9)) for _ in range(10)]"
    output_of(lab_network, "pub0", "python3", "-c", send)
    after = _matched(output_of(lab_network, "node1", "iptables-nft-save", "-c", "-t", "filter"))
    # A flow of UDP without answers stays new, so that no packet takes the shortcut of known connections.
    assert [after[name] - before[name] for name in before] == [10] * COUNT
    refused = output_of(lab_network, "node1", "iptables-nft-save", "-c", "-t", "filter")
    (reject,) = [line for line in refused.splitlines() if "SUB0 reject" in line]
    assert int(reject[1:].partition(":")[0]) > 0


def _matched(rules: str) -> dict[str, int]:
    """Return how many packets the first rule of each policy's chain has marked."""
    lines = [line for line in rules.splitlines() if "ingress pods" in line and "-j MARK" in line]
    return {line.partition("-A ")[2].split()[0]: int(line[1:].partition(":")[0]) for line in lines}
