"""Fast DDS discovery server: participants register with it and receive the matching endpoints from it.

Each participant gets the addresses of all servers, each with its id: the n-th pod of the StatefulSet has the
id n-1. A participant registers with the servers that respond, so one server is enough. Participants that
have discovered each other no longer need a server: losing all servers only keeps new participants out.
Servers ignore DDS domains, so the trials of a campaign run one after the other and never overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds import versions
from k8sdds.discovery.service import Service

PORT = 11811
"""UDP port of the Fast DDS discovery server: its default."""

FASTDDS = Service(
    name="k8sdds-discovery",
    title="Fast DDS discovery server",
    manifest="discovery/fastdds.yaml",
    port=PORT,
    image=versions.DISCOVERY_SERVER_IMAGE,
    program="fast-discovery-server",
    package="fastdds-tools",
)


def options(servers: Sequence[str]) -> list[str]:
    """Return the options of k8sdds-perftest for these servers, each `HOST:PORT`."""
    return ["-discovery", "server", *(part for server in servers for part in ("-discoveryServer", server))]


def command_line(address: str) -> list[str]:
    """Return the command line of a lab trial's single server, which listens on this address."""
    assert FASTDDS.program is not None
    return [FASTDDS.program, "-i", "0", "-l", address, "-p", str(FASTDDS.port)]
