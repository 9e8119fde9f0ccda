"""Capture packets on a node's link and count the IP fragments of samples.

As a program in a node's network namespace, `python capture.py INTERFACE FILE` writes a pcap file of IPv4
packets until its stdin is closed or the file has enough packets. It needs only Python, so that it runs in any
sandbox.
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
"""Enough for hundreds of samples; only fragments are counted, so the capture need not cover the trial."""

SNAP_BYTES = 64
_ETHERNET, _UDP, _IPV4 = 1, 17, 0x0800
_HEADER = struct.Struct("=IHHiIII")
_RECORD = struct.Struct("=IIII")
_MAGIC = 0xA1B2C3D4


def capture(interface: str, path: Path) -> None:
    """Write IPv4 packets of an interface to a pcap file; print `ready` when the capture has started."""
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003)) as link,
        open(path, "wb") as file,
    ):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        link.bind((interface, 0))
        file.write(_HEADER.pack(_MAGIC, 2, 4, 0, 0, SNAP_BYTES, _ETHERNET))
        print("ready", flush=True)
        remaining = PACKETS
        while remaining:
            ready, _, _ = select.select([link, sys.stdin], [], [])
            if sys.stdin in ready:
                break
            packet = link.recv(65535)
            if packet[12:14] == _IPV4.to_bytes(2, "big"):
                now = time.time()
                head = packet[:SNAP_BYTES]
                file.write(_RECORD.pack(int(now), int(now % 1 * 1e6), len(head), len(packet)) + head)
                remaining -= 1


@contextlib.contextmanager
def capturing(enter: list[str], interface: str, path: Path) -> Iterator[None]:
    """Capture packets while the context lasts.

    Args:
        enter: Command prefix that enters the network namespace.
        interface: The interface.
        path: The pcap file to write.

    Raises:
        PrerequisiteError: The capture did not start.
        PartFailed: It was killed.
    """
    # Imported here because the program part of this module runs without k8sdds.
    from k8sdds.system import processes
    from k8sdds.system.errors import PrerequisiteError

    process = subprocess.Popen(
        [*enter, sys.executable, str(Path(__file__).resolve()), interface, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        if process.stdout.readline().strip() != "ready":
            errors = process.stderr.read().strip().splitlines()
            processes.require_not_killed(process.wait(), "the packet capture")
            raise PrerequisiteError(
                f"cannot capture on {interface}: {errors[-1] if errors else 'no message'}"
            )
        yield
    finally:
        process.communicate()
    processes.require_not_killed(process.returncode, "the packet capture")


def fragments_per_sample(path: Path, payload_bytes: int) -> list[int]:
    """Return the distinct fragment counts of UDP datagrams of at least `payload_bytes` in a pcap file.

    Incomplete datagrams are left out, and an incomplete last record ends the file.
    """
    parts: dict[tuple[bytes, int], dict[int, tuple[int, bool]]] = defaultdict(dict)
    data = path.read_bytes()
    offset = _HEADER.size
    counts = set()
    while offset + _RECORD.size <= len(data):
        _, _, stored, _ = _RECORD.unpack_from(data, offset)
        ip = data[offset + _RECORD.size + 14 : offset + _RECORD.size + stored]
        offset += _RECORD.size + stored
        if len(ip) < 20 or ip[9] != _UDP:
            continue
        header = (ip[0] & 15) * 4
        total, identity, flags = struct.unpack_from(">HHH", ip, 2)
        key = (ip[12:20], identity)
        parts[key][(flags & 0x1FFF) * 8] = (total - header, bool(flags & 0x2000))
        size = _complete_bytes(parts[key])
        if size:
            fragments = parts.pop(key)
            if size - 8 >= payload_bytes:
                counts.add(len(fragments))
    return sorted(counts)


def _complete_bytes(parts: dict[int, tuple[int, bool]]) -> int:
    """Return the size of a datagram from its fragments, offset to (length, more follow); 0: incomplete."""
    end = 0
    while end in parts:
        length, more = parts[end]
        end += length
        if not more:
            return end
    return 0


if __name__ == "__main__":
    capture(sys.argv[1], Path(sys.argv[2]))
