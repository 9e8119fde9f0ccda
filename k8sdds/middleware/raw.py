"""Plain UDP without DDS: the limit of the machine and its networks, which middlewares are compared with."""

from __future__ import annotations

from typing_extensions import override

from k8sdds import workloads
from k8sdds.middleware.k8sdds_perftest import K8sddsPerftest
from k8sdds.model.ip_families import IP_AND_UDP_HEADERS_BYTES
from k8sdds.model.message_size import LONGEST_MESSAGE_BYTES
from k8sdds.model.trial import Cell

BACKEND = "raw"

MODES = {
    "single": "one datagram per system call in both directions",
    "connected": "like raw, with connected sockets",
    "mmsg": "connected sockets; sendmmsg and recvmmsg pass several datagrams",
    "gso": "connected sockets; several datagrams pass the network stack as one packet (UDP GSO and GRO)",
}
"""The values of `-rawMode`, each of which is the middleware `raw-MODE`. The middleware `raw` sends one datagram per
system call and receives several."""

COLLECTING = ("mmsg", "gso")
"""Modes that collect samples before they send them."""

MAX_PAYLOAD_BYTES = 65507
"""Largest payload of a UDP datagram over IPv4, which is 20 bytes less than over IPv6."""


class Raw(K8sddsPerftest):
    """UDP datagrams to a fixed list of addresses, without DDS."""

    settings = frozenset({"reliability", "message_bytes", "receive_mode", "lock_memory", "dscp"})
    reports_match = False
    runs_graphs = starts_fleets = False

    def __init__(self, mode: str = "") -> None:
        super().__init__(BACKEND, mode=mode)

    @override
    def unsupported(self, cell: Cell) -> str | None:
        if cell.reliability == "reliable":
            return f"{self.name} sends plain UDP: reliability must be best-effort"
        if cell.payload_bytes > MAX_PAYLOAD_BYTES:
            return f"{self.name} sends UDP datagrams: at most {MAX_PAYLOAD_BYTES} bytes"
        longest = LONGEST_MESSAGE_BYTES if cell.message_bytes == "max" else cell.message_bytes
        if isinstance(longest, int) and cell.payload_bytes > longest:
            return (
                f"{self.name} sends a sample as one datagram: message_bytes {cell.message_bytes} is too short"
            )
        load = workloads.find(cell.test).load(cell)
        if self._mode in COLLECTING and (load.round_trips or load.rate):
            return f"{self.name} collects samples, which delays them: only in throughput tests without a rate"
        return super().unsupported(cell)

    @override
    def unsupported_mtu(self, cell: Cell, mtu: int) -> tuple[str, str] | None:
        longest = mtu - IP_AND_UDP_HEADERS_BYTES[cell.ip_family]
        if cell.message_bytes != "mtu" or cell.payload_bytes <= longest:
            return None
        what = f"{self.name} sends a sample as one datagram, and message_bytes mtu is {longest} here"
        return what, "give a smaller payload_bytes, or another message_bytes"

    @override
    def _options(self) -> list[str]:
        return ["-rawMode", self._mode] if self._mode else []

    @override
    def _needs_peers(self, cell: Cell) -> bool:
        # Also with multicast: the publisher announces itself to known addresses.
        return True
