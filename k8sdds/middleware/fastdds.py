"""eProsima Fast DDS."""

from __future__ import annotations

from k8sdds.discovery import server
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest


class FastDDS(K8sddsPerftest):
    """Fast DDS, with its discovery server."""

    def __init__(self) -> None:
        super().__init__("fastdds", server.FASTDDS)

    def service_command(self, address: str) -> list[str]:
        """Return the command line of the discovery server."""
        return server.command_line(address)
