"""Verify that a network encrypts: count packets on the links and bytes that the tunnels decrypted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from k8sdds.networks.datapath import EncryptionProof, Topology
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.lab.topology import SWITCH

TABLE = "netdev wire"


def _rules(topology: Topology, proof: EncryptionProof) -> str:
    """Return an nftables table for the switch that classifies and counts every packet of the nodes."""
    devices = ", ".join(f'"to-{node.name}"' for node in topology.nodes)
    allowed = "\n".join(f'    {expression} counter accept comment "allowed"' for expression in proof.allowed)
    return f"""
table {TABLE} {{
  chain sent {{
    type filter hook ingress devices = {{ {devices} }} priority 0; policy accept;
    ether type arp counter accept comment "allowed"
{allowed}
    {proof.encrypted} counter accept comment "encrypted"
    counter comment "plain"
  }}
}}
"""


@contextmanager
def only_encrypted(sandbox: Sandbox, topology: Topology, proof: EncryptionProof) -> Iterator[None]:
    """Verify that packets cross the nodes' links while the context lasts, and that all are encrypted."""
    sandbox.run(["nft", "-f", "-"], _rules(topology, proof), netns=SWITCH)
    try:
        yield
        table = sandbox.run(["nft", "--json", "list", "table", *TABLE.split()], netns=SWITCH)
    finally:
        sandbox.run(["nft", "delete", "table", *TABLE.split()], netns=SWITCH)
    rules = [item["rule"] for item in json.loads(table)["nftables"] if "rule" in item]
    packets = {
        rule["comment"]: expression["counter"]["packets"]
        for rule in rules
        for expression in rule["expr"]
        if "counter" in expression
    }
    if packets["plain"]:
        raise PrerequisiteError(
            f"{sandbox.name}: {packets['plain']} packets between nodes were not encrypted"
        )
    if not packets["encrypted"]:
        raise PrerequisiteError(f"{sandbox.name}: no encrypted packet was seen between nodes")


def decrypted_bytes(sandbox: Sandbox, proof: EncryptionProof, node: str) -> int:
    """Return the bytes that the tunnels of a node have received and decrypted so far."""
    output = sandbox.run(proof.counters[node], netns=node)
    return sum(int(number) for number in re.findall(proof.received_bytes, output))
