"""Detect whether a server listens on its socket, from the kernel's tables of sockets. Pure functions."""

from __future__ import annotations

from k8sdds.model.measurement import Listener

_LISTEN, _ESTABLISHED = "0A", "01"
"""States of TCP sockets in `/proc/net/tcp`: accepts connections, is connected."""


def tables(listener: Listener) -> list[str]:
    """Return the command that prints the tables of a protocol. It fails without IPv6, and prints the other table."""
    return ["cat", f"/proc/net/{listener.protocol}", f"/proc/net/{listener.protocol}6"]


def is_listening(listener: Listener, printed: str) -> bool:
    """Return whether a socket in the printed tables is that of a server or of a connected client, or none is needed."""
    if listener.protocol == "icmp" or not listener.port:
        return True
    address, state = (2, _ESTABLISHED) if listener.connects else (1, _LISTEN)
    rows = (line.split() for line in printed.splitlines())
    return any(
        fields[address].endswith(f":{listener.port:04X}")
        and (listener.protocol == "udp" or fields[3] == state)
        for fields in rows
        if len(fields) > 3
    )
