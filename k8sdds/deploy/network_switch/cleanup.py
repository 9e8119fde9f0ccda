"""A node rid of all that networks made on it, whatever the networks were called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from k8sdds.deploy.network_switch import footprint
from k8sdds.deploy.network_switch.footprint import NetworkLeftover
from k8sdds.system.ssh import Host

ROUNDS = 4
"""How often traces are looked for and removed: an agent's last words may come after the first look."""
TIMEOUT_S = 90


@dataclass(frozen=True)
class Swept:
    """What was on a node, and what could not be removed."""

    found: tuple[NetworkLeftover, ...]
    left: tuple[NetworkLeftover, ...]
    said: tuple[str, ...]
    """By the tools that failed last."""


def sweep(host: Host, addresses: Sequence[str], pod_cidr: IPv4Network) -> Swept:
    """Remove all traces of networks from a node on which no agent runs any more.

    `addresses` are those of the cluster's nodes. Raises HostError where the node is not reached.
    """
    found: dict[NetworkLeftover, None] = {}
    left: list[NetworkLeftover] = []
    said: list[str] = []
    for _ in range(ROUNDS):
        left = footprint.left(footprint.parse(host.run(footprint.probe()).out), addresses, pod_cidr)
        if not left:
            break
        found |= dict.fromkeys(left)
        said = host.run(footprint.removal(left), timeout_s=TIMEOUT_S).err.strip().splitlines()[-5:]
    else:
        left = footprint.left(footprint.parse(host.run(footprint.probe()).out), addresses, pod_cidr)
    return Swept(tuple(found), tuple(left), tuple(said))
