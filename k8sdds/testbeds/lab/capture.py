"""Capture packets on a node's link and count the IP fragments of samples."""

from __future__ import annotations

import contextlib
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from k8sdds.networks import packets
from k8sdds.system import processes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program

FILE = "capture.pcap"
PACKETS = 3000
"""Enough for hundreds of samples; only fragments are counted, so the capture need not cover the trial."""

SNAP_BYTES = 64
DEADLINE_S = 24 * 3600
"""The capture ends by itself then; it ends earlier with the context."""
_UDP = 17


@contextlib.contextmanager
def capturing(enter: list[str], interface: str, path: Path) -> Iterator[None]:
    """Capture the packets that leave by an interface while the context lasts.

    Args:
        enter: Command prefix that enters the network namespace.
        interface: The interface.
        path: The pcap file to write.

    Raises:
        PrerequisiteError: The capture did not start.
        PartFailed: It was killed.
    """
    options = ["--interface", interface, "--count", str(PACKETS), "--snap", str(SNAP_BYTES)]
    with open(path, "wb") as file:
        process = subprocess.Popen(
            [*enter, native_program("k8sdds-supervisor"), "capture", *options, "--deadline", str(DEADLINE_S)],
            stdin=subprocess.PIPE, stdout=file, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert process.stderr is not None
    try:
        first = process.stderr.readline()
        if first.strip() != "ready":
            errors = (first + process.stderr.read()).strip().splitlines()
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
