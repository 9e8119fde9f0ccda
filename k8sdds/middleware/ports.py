"""The ports at which participants of an application are reached, for policies and firewalls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from k8sdds.discovery import MULTICAST, SERVER
from k8sdds.system.errors import InputError

GROUP = "239.255.0.1"
"""The multicast group of DDS, for discovery and samples, unless it is configured otherwise."""
RTPS_PORT, PER_DOMAIN, FIRST_UNICAST, PER_PARTICIPANT = 7400, 250, 10, 2
"""The defaults of RTPS (PB, DG, d1 and PG), which all implementations of DDS have."""
EPHEMERAL_PORT = 32768
"""The first port that Linux gives to sockets without a port of their own."""


@dataclass(frozen=True)
class Ports:
    """The ports of the participants in a pod, for packets that are no answer to what the pod has sent."""

    from_peers: tuple[int, ...] = ()
    """For packets from participants with which they share a flow."""
    from_service: tuple[int, ...] = ()
    """For packets from the discovery service."""
    at_group: tuple[int, ...] = ()
    """For packets to the multicast group of discovery and of samples; empty if discovery does not use it."""
    protocol: Literal["UDP", "TCP"] = "UDP"
    """Protocol of all of them and of the discovery service."""
    needs: str = ""
    """What their configuration must state so that they use these ports."""


def rtps(domain: int, processes: int, discovery: str, needs: str = "") -> Ports:
    """Return the ports of DDS: each process has one participant, and takes the first free index of its pod.

    Raises InputError if the ports can be ephemeral.
    """
    base = RTPS_PORT + PER_DOMAIN * domain
    discovering = tuple(base + FIRST_UNICAST + PER_PARTICIPANT * index for index in range(processes))
    receiving = tuple(port + 1 for port in discovering)
    if receiving[-1] >= EPHEMERAL_PORT:
        what = f"{processes} processes in domain {domain} have ports up to {receiving[-1]}, which can be ephemeral"
        raise InputError(what, f"give a lower --domain or --processes: ports must be below {EPHEMERAL_PORT}")
    return Ports(
        from_peers=tuple(sorted(discovering + receiving)),
        from_service=discovering if discovery == SERVER else (),
        at_group=(base, base + 1) if discovery == MULTICAST else (),
        needs=needs,
    )
