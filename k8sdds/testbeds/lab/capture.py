"""A short capture on a node's link, and how many IP fragments a sample became in it.

Run as a program in a node's network namespace: `python capture.py INTERFACE FILE` writes a pcap file of IPv4
packets until its input ends or it has enough. It needs nothing but Python, so that it works in any sandbox.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

FILE = "capture.pcap"
PACKETS = 3000
"""Enough for hundreds of samples; a capture is no measurement of time."""

SNAP_BYTES = 64
_ETHERNET, _UDP, _IPV4 = 1, 17, 0x0800
_HEADER = struct.Struct("=IHHiIII")
_RECORD = struct.Struct("=IIII")
_MAGIC = 0xA1B2C3D4


def capture(interface: str, path: Path) -> None:
    """Write IPv4 packets of an interface to a pcap file; says `ready` on stdout when it listens."""
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as link,
        open(path, "wb") as file,
    ):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        link.bind((interface, 0))
        file.write(_HEADER.pack(_MAGIC, 2, 4, 0, 0, SNAP_BYTES, _ETHERNET))
        print("ready", flush=True)
        left = PACKETS
        while left:
            ready, _, _ = select.select([link, sys.stdin], [], [])
            if sys.stdin in ready:
                break
            packet = link.recv(65535)
            if packet[12:14] == _IPV4.to_bytes(2, "big"):
                now = time.time()
                head = packet[:SNAP_BYTES]
                file.write(_RECORD.pack(int(now), int(now % 1 * 1e6), len(head), len(packet)) + head)
                left -= 1


@contextlib.contextmanager
def running(enter: list[str], interface: str, path: Path) -> Iterator[None]:
    """Capture meanwhile, in the namespace that the words `enter`. PrerequisiteError where it does not start."""
    from k8sdds.system.errors import PrerequisiteError

    process = subprocess.Popen(
        [*enter, sys.executable, str(Path(__file__).resolve()), interface, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        if process.stdout.readline().strip() != "ready":
            said = process.stderr.read().strip().splitlines()
            raise PrerequisiteError(
                f"cannot capture on {interface}: {said[-1] if said else 'no reason given'}"
            )
        yield
    finally:
        process.communicate()


def fragments(path: Path, payload_bytes: int) -> list[int]:
    """The distinct numbers of IP fragments of whole UDP datagrams that hold at least `payload_bytes`.

    Datagrams whose fragments are not all in the capture are left out, and a torn last record ends it.
    """
    parts: dict[tuple[bytes, int], dict[int, tuple[int, bool]]] = defaultdict(dict)
    data = path.read_bytes()
    at = _HEADER.size
    counts = set()
    while at + _RECORD.size <= len(data):
        _, _, stored, _ = _RECORD.unpack_from(data, at)
        ip = data[at + _RECORD.size + 14 : at + _RECORD.size + stored]
        at += _RECORD.size + stored
        if len(ip) < 20 or ip[9] != _UDP:
            continue
        header = (ip[0] & 15) * 4
        total, identity, flags = struct.unpack_from(">HHH", ip, 2)
        key = (ip[12:20], identity)
        parts[key][(flags & 0x1FFF) * 8] = (total - header, bool(flags & 0x2000))
        size = _whole(parts[key])
        if size:
            found = parts.pop(key)
            if size - 8 >= payload_bytes:
                counts.add(len(found))
    return sorted(counts)


def _whole(parts: dict[int, tuple[int, bool]]) -> int:
    """Bytes of a datagram whose fragments are all there, 0 where some are missing."""
    end = 0
    while end in parts:
        length, more = parts[end]
        end += length
        if not more:
            return end
    return 0


if __name__ == "__main__":
    capture(sys.argv[1], Path(sys.argv[2]))
