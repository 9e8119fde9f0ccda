"""How participants find each other on a cluster: by multicast, by a list of peers, or at a server.

One small module each; multicast needs none, it is proven where pods stand. The words are those of perftest's
`-discovery`; `server` is Fast DDS's discovery server for `fastdds` and RTI's Cloud Discovery Service for
`connext`. Pure data: nothing is contacted here.
"""

from __future__ import annotations

from k8sdds.discovery import cloud, server
from k8sdds.discovery.service import Service

MULTICAST, PEERS, SERVER = "multicast", "peers", "server"
KINDS = (MULTICAST, PEERS, SERVER)

SERVICES = {"fastdds": server.FASTDDS, "connext": cloud.CONNEXT}
"""Middleware to the service that its participants can be found at."""

__all__ = ["KINDS", "MULTICAST", "PEERS", "SERVER", "SERVICES", "Service", "service"]


def service(middleware: str) -> Service | None:
    """What to run for discovery by `server`, or None where the middleware has no such service."""
    return SERVICES.get(middleware)
