"""Proof that a network encrypts: what is on the wire meanwhile, and what the tunnels carried."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from k8sdds.errors import LackError
from k8sdds.model.network import Topology, WireProof
from k8sdds.testbeds.lab.sandbox import Sandbox
from k8sdds.testbeds.lab.topology import SWITCH

TABLE = "netdev wire"


def _rules(topology: Topology, proof: WireProof) -> str:
    """Counters on the switch for every packet that any node sends."""
    devices = ", ".join(f'"to-{node.name}"' for node in topology.nodes)
    beside = "\n".join(f"    {expression} counter name beside accept" for expression in proof.beside)
    return f"""
table {TABLE} {{
  counter encrypted {{ }}
  counter beside {{ }}
  counter plain {{ }}
  chain sent {{
    type filter hook ingress devices = {{ {devices} }} priority 0; policy accept;
    ether type arp counter name beside accept
{beside}
    {proof.encrypted} counter name encrypted accept
    counter name plain
  }}
}}
"""


@contextmanager
def only_encrypted(sandbox: Sandbox, topology: Topology, proof: WireProof) -> Iterator[None]:
    """While in it, every packet between nodes must be encrypted, and some must be there; else a LackError."""
    sandbox.run(["nft", "-f", "-"], _rules(topology, proof), netns=SWITCH)
    try:
        yield
        said = sandbox.run(["nft", "--json", "list", "counters", "table", *TABLE.split()], netns=SWITCH)
    finally:
        sandbox.run(["nft", "delete", "table", *TABLE.split()], netns=SWITCH)
    found = [item["counter"] for item in json.loads(said)["nftables"] if "counter" in item]
    packets = {counter["name"]: counter["packets"] for counter in found}
    if packets["plain"]:
        raise LackError(f"{sandbox.name}: {packets['plain']} packets between nodes were not encrypted")
    if not packets["encrypted"]:
        raise LackError(f"{sandbox.name}: no encrypted packet was seen between nodes")


def decrypted_bytes(sandbox: Sandbox, proof: WireProof, node: str) -> int:
    """Bytes that the tunnels of a node have received and decrypted so far."""
    said = sandbox.run(proof.tally[node], netns=node)
    return sum(int(number) for number in re.findall(proof.received, said))
