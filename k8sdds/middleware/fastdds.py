"""eProsima Fast DDS."""

from __future__ import annotations

from k8sdds.discovery import server
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.model.security import NONE
from k8sdds.model.trial import Cell

HANDSHAKE_BYTES = 8192
"""A message that holds certificates and signed permissions."""


class FastDDS(K8sddsPerftest):
    """Fast DDS, with its discovery server."""

    shared_memory = True

    def __init__(self) -> None:
        super().__init__("fastdds", server.FASTDDS)

    def unsupported(self, cell: Cell) -> str | None:
        """Reject a length of fragments, which Fast DDS does not have, and messages too short for its handshake."""
        size = cell.message_bytes
        if cell.security != NONE and (size == "mtu" or (isinstance(size, int) and size < HANDSHAKE_BYTES)):
            return (
                f"fastdds does not fragment the handshake of DDS Security: message_bytes {size} is too short for it;"
                f" give at least {HANDSHAKE_BYTES}, or another middleware"
            )
        fills_message = cell.fragment_bytes in ("default", "max") or cell.fragment_bytes == size == "mtu"
        if not fills_message:
            return f"fragments of fastdds fill a message: fragment_bytes must be default, not {cell.fragment_bytes}"
        return None

    def service_command(self, address: str) -> list[str]:
        """Return the command line of the discovery server."""
        return server.command_line(address)
