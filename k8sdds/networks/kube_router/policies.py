"""Plan the ipsets and chains that kube-router creates for NetworkPolicies which select all pods.

Each policy allows what the pods send to each other, on all ports. Its chain has two rules: the first marks packets
whose source and destination are in the policy's ipsets, the second returns marked ones. A pod's chain has a jump to
the chain of every policy. Before the jumps, kube-router accepts packets of known connections. All other packets pass
all policies, although one that marks them is enough.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from k8sdds.model.ip_families import IpFamily
from k8sdds.networks.common.iptables import comment
from k8sdds.networks.datapath import Batch, LabNode, Topology
from k8sdds.networks.policies import NAMESPACE, policy_name

_ALLOWED = "0x10000/0x10000"
"""Mark of packets that a policy allows."""
_SET = "hash:ip family {family} hashsize 1024 maxelem 65536 timeout 0"
_FAMILIES: dict[IpFamily, str] = {"ipv4": "inet", "ipv6": "inet6"}

Rules = tuple[str, ...]


def chains(count: int, family: IpFamily) -> dict[str, Rules]:
    """Return the chains of all policies."""
    return {_chain(number): _rules(number, family) for number in range(count)}


def jumps(count: int, address: str) -> Rules:
    """Return the rules that lead packets for a pod to the chains of all policies."""
    return tuple(
        f"-d {address} {comment(f'{NAMESPACE}/{policy_name(number)} policy')} -j {_chain(number)}"
        for number in range(count)
    )


def sets(topology: Topology, node: LabNode, addresses: Sequence[str]) -> list[Batch]:
    """Return the batch that creates the ipsets of all policies on a node: their sources and their destinations."""
    lines = [
        line
        for number in range(topology.policies)
        for name in _sets(number, node.family)
        for line in (
            f"create {name} {_SET.format(family=_FAMILIES[node.family])}",
            *(f"add {name} {address} timeout 0" for address in addresses),
        )
    ]
    return [Batch(node.name, "ipset", tuple(lines))] if lines else []


def _rules(number: int, family: IpFamily) -> Rules:
    source, destination = _sets(number, family)
    match = (
        f"{comment(f'{NAMESPACE}/{policy_name(number)} ingress pods')}"
        f" -m set --match-set {source} src -m set --match-set {destination} dst"
    )
    return f"{match} -j MARK --set-xmark {_ALLOWED}", f"{match} -m mark --mark {_ALLOWED} -j RETURN"


def _chain(number: int) -> str:
    return f"KUBE-NWPLCY-{_hash(policy_name(number))}"


def _sets(number: int, family: IpFamily) -> tuple[str, str]:
    prefix = "inet6:" if family == "ipv6" else ""
    return tuple(f"{prefix}KUBE-{kind}-{_hash(policy_name(number) + kind)}" for kind in ("SRC", "DST"))  # type: ignore[return-value]


def _hash(text: str) -> str:
    """Return 16 characters for a name: kube-router uses the same characters of the same hash."""
    return base64.b32encode(hashlib.sha256(f"{NAMESPACE}{text}".encode()).digest()).decode()[:16]
