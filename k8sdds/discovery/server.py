"""Fast DDS's discovery server: participants tell it what they have, and learn from it who matches.

A participant is told all servers, each with its id; the n-th of the StatefulSet's pods has the id n-1. It
joins those that answer, so that one is enough. Participants that have found each other need no server to go
on: losing all of them only keeps newcomers out. DDS domains mean nothing to a server, hence one campaign's
trials follow each other and never overlap.
"""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds import versions
from k8sdds.discovery.service import Service

FASTDDS = Service(
    "k8sdds-discovery", "Fast DDS discovery server", "discovery/fastdds.yaml", versions.FASTDDS_DISCOVERY_PORT,
    versions.DISCOVERY_SERVER_IMAGE,
)  # fmt: skip


def options(servers: Sequence[str]) -> list[str]:
    """k8sdds-perftest's options for these servers."""
    argv = ["-discovery", "server"]
    for one in servers:
        argv += ["-discoveryServer", one]
    return argv
