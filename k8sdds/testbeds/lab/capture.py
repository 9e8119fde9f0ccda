"""Count the IP fragments of samples among captured packets."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from k8sdds.networks import packets

FILE = "capture.pcap"
OPTIONS = ("--interface", "eth0", "--count", "3000", "--snap", "64", "--deadline", str(24 * 3600))
"""Options of the capture. It need not cover the trial: so many packets are enough for hundreds of samples."""
_UDP = 17


def fragments_per_sample(path: Path, payload_bytes: int) -> list[int]:
    """Return the distinct fragment counts of UDP datagrams of at least `payload_bytes` in a pcap file.

    Incomplete datagrams are left out, and an incomplete last record ends the file.
    """
    parts: dict[bytes, dict[int, tuple[int, bool]]] = defaultdict(dict)
    counts = set()
    try:
        captured = list(packets.read_pcap(path.read_bytes()))
    except ValueError:
        return []
    for packet in captured:
        fragment = packets.fragment_of(packet)
        if fragment.protocol != _UDP:
            continue
        key = fragment.datagram
        parts[key][fragment.offset_bytes] = (fragment.size_bytes, fragment.more_follow)
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
