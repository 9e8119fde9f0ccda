"""Detect whether a server listens on its socket, from the kernel's tables of sockets. Pure functions."""

from __future__ import annotations

from k8sdds.model.measurement import Listener

_LISTEN = "0A"
"""State of a TCP socket that accepts connections, in `/proc/net/tcp`."""


def tables(listener: Listener) -> list[str]:
    """Return the command that prints the tables of a protocol. It fails without IPv6, and prints the other table."""
    return ["cat", f"/proc/net/{listener.protocol}", f"/proc/net/{listener.protocol}6"]


def is_listening(listener: Listener, printed: str) -> bool:
    """Return whether a socket in the printed tables is that of a server, or none is necessary."""
    if listener.protocol == "icmp":
        return True
    rows = (line.split() for line in printed.splitlines())
    return any(
        fields[1].endswith(f":{listener.port:04X}") and (listener.protocol == "udp" or fields[3] == _LISTEN)
        for fields in rows
        if len(fields) > 3
    )
