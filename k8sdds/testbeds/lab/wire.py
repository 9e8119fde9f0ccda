"""Proof that a network encrypts: what is on the wire meanwhile, and what the tunnels carried."""

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
    """Counters on the switch for every packet that any node sends."""
    devices = ", ".join(f'"to-{node.name}"' for node in topology.nodes)
    beside = "\n".join(f'    {expression} counter accept comment "beside"' for expression in proof.allowed)
    return f"""
table {TABLE} {{
  chain sent {{
    type filter hook ingress devices = {{ {devices} }} priority 0; policy accept;
    ether type arp counter accept comment "beside"
{beside}
    {proof.encrypted} counter accept comment "encrypted"
    counter comment "plain"
  }}
}}
"""


@contextmanager
def only_encrypted(sandbox: Sandbox, topology: Topology, proof: EncryptionProof) -> Iterator[None]:
    """While in it, every packet between nodes must be encrypted, and some must be there; else a PrerequisiteError."""
    sandbox.run(["nft", "-f", "-"], _rules(topology, proof), netns=SWITCH)
    try:
        yield
        said = sandbox.run(["nft", "--json", "list", "table", *TABLE.split()], netns=SWITCH)
    finally:
        sandbox.run(["nft", "delete", "table", *TABLE.split()], netns=SWITCH)
    rules = [item["rule"] for item in json.loads(said)["nftables"] if "rule" in item]
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
    """Bytes that the tunnels of a node have received and decrypted so far."""
    said = sandbox.run(proof.counters[node], netns=node)
    return sum(int(number) for number in re.findall(proof.received_bytes, said))
