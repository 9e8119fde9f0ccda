"""Plain UDP without DDS: the physical limit that middlewares are compared with."""

from __future__ import annotations

from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.model.experiment import LONGEST_MESSAGE_BYTES
from k8sdds.model.security import NONE
from k8sdds.model.trial import Cell

MAX_PAYLOAD_BYTES = 65507
"""Largest payload of a UDP datagram over IPv4."""


class Raw(K8sddsPerftest):
    """One UDP datagram per sample, to a fixed list of addresses."""

    def __init__(self) -> None:
        super().__init__("raw")

    def unsupported(self, cell: Cell) -> str | None:
        """Reject what only DDS has: security, reliability, batching, QoS profiles and discovery."""
        if cell.security != NONE:
            return "raw has no DDS Security: security must be none"
        if cell.reliability == "reliable":
            return "raw sends plain UDP: reliability must be best-effort"
        if cell.payload_bytes > MAX_PAYLOAD_BYTES:
            return f"raw sends one datagram per sample: at most {MAX_PAYLOAD_BYTES} bytes"
        if cell.batch_bytes:
            return "raw does not batch: batch_bytes must be 0"
        if cell.fragment_bytes != "default":
            return f"raw does not fragment samples: fragment_bytes must be default, not {cell.fragment_bytes}"
        longest = LONGEST_MESSAGE_BYTES if cell.message_bytes == "max" else cell.message_bytes
        if isinstance(longest, int) and cell.payload_bytes > longest:
            return f"raw sends one datagram per sample: message_bytes {cell.message_bytes} does not hold one"
        if cell.qos:
            return "raw has no QoS"
        if cell.discovery != "auto":
            return "raw has no discovery: leave it out"
        return None

    def takes_qos(self, cell: Cell) -> bool:
        """Return False: plain UDP has no QoS."""
        return False

    def _needs_peers(self, cell: Cell) -> bool:
        # Also with multicast: the publisher announces itself to known addresses.
        return True
