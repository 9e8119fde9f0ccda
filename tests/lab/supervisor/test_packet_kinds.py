"""Count the packets that leave by an interface by kind, with packets of DDS and Zenoh that were recorded in the lab."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from k8sdds.model.packet_kinds import KindCounts
from k8sdds.networks import packets
from k8sdds.system import reading

RECORDED = Path(__file__).parents[2] / "unit/recorded/kinds"
REPLAY = Path(__file__).with_name("replay.py")
HEADER = packets.PCAP_HEADER.pack(packets.PCAP_MAGIC, 2, 4, 0, 0, 65535, packets.ETHERNET)
KINDS = {
    "cyclonedds": {"participants": 2, "endpoints": 11, "liveliness": 4, "other-discovery": 2, "data": 19}
    | {"fragments": 21, "other": 1},
    "fastdds": {"participants": 13, "endpoints": 28, "liveliness": 6, "data": 13},
    "fastdds-encrypted": {"participants": 34, "other-discovery": 2, "encrypted": 81, "fragments": 3},
    "zenoh": {"scouting": 2, "zenoh": 18},
}
"""Packets of each kind in a recording."""
SPDP, SEDP, USER = bytes.fromhex("000100c2"), bytes.fromhex("ff0003c2"), bytes.fromhex("00000103")


def frames(name: str) -> list[bytes]:
    return [stored for stored, _, _ in packets.frames((RECORDED / f"{name}.pcap").read_bytes())]


def udp(payload: bytes) -> bytes:
    return bytes.fromhex("1ce81cf2") + (8 + len(payload)).to_bytes(2, "big") + bytes(2) + payload


def rtps(*submessages: bytes) -> bytes:
    return udp(b"RTPS" + bytes(16) + b"".join(submessages))


def submessage(number: int, body: bytes, big_endian: bool = False) -> bytes:
    length = len(body).to_bytes(2, "big" if big_endian else "little")
    return bytes([number, not big_endian]) + length + body


def ipv4(content: bytes, options: bytes = b"", offset: int = 0, protocol: int = 17) -> bytes:
    head = bytes([0x45 + len(options) // 4, 0]) + (20 + len(options) + len(content)).to_bytes(2, "big")
    fragment = bytes(2) + (offset // 8).to_bytes(2, "big")
    return (
        head
        + fragment
        + bytes([64, protocol])
        + bytes(2)
        + bytes([10, 0, 0, 1, 10, 0, 0, 2])
        + options
        + content
    )


def ipv6(content: bytes, *headers: bytes, first: int = 17) -> bytes:
    content = b"".join(headers) + content
    return b"\x60\0\0\0" + len(content).to_bytes(2, "big") + bytes([first, 64]) + bytes(32) + content


def frame(packet: bytes, tags: bytes = b"") -> bytes:
    kind = 0x86DD if packet[0] >> 4 == 6 else 0x0800
    return bytes(12) + tags + kind.to_bytes(2, "big") + packet


@pytest.fixture
def count(supervisor, unshare, tmp_path):
    """Return a function that sends frames in a new network namespace and returns what was counted."""

    def replay(sent: list[bytes]) -> KindCounts:
        records = [packets.PCAP_RECORD.pack(0, 0, len(one), len(one)) + one for one in sent]
        (tmp_path / "sent.pcap").write_bytes(HEADER + b"".join(records))
        argv = [*unshare, "--net", sys.executable, REPLAY, supervisor.path, tmp_path / "sent.pcap"]
        done = subprocess.run(argv, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        counts = KindCounts.of(reading.json_object(done.stdout, "count-kinds"))
        assert counts is not None, done.stdout
        return counts

    return replay


def by_kind(counts: KindCounts) -> dict[str, int]:
    total: Counter[str] = Counter()
    for _, kind, number, _ in counts.rows:
        total[kind] += number
    return dict(total)


@pytest.mark.parametrize("name", KINDS)
def test_recorded_packets_have_their_kinds(count, name):
    sent = frames(name)
    counts = count(sent)
    assert by_kind(counts) == KINDS[name]
    # Of what is not IP, such as ARP, all after the Ethernet header counts.
    parsed = [(packets.parse_ip(one, len(one)), len(one) - 14) for one in sent]
    assert sum(row[3] for row in counts.rows) == sum(ip.size_bytes if ip else size for ip, size in parsed)


def test_intervals_are_whole_ones_since_the_start(count):
    counts = count(frames("zenoh"))
    assert counts.interval_ns == 100_000_000
    assert counts.start_monotonic_ns % counts.interval_ns == 0
    assert counts.dropped_packets == 0
    assert counts.rows == sorted(counts.rows)


WRITERS = [
    (submessage(0x15, bytes(8) + SPDP), "participants"),
    (submessage(0x15, bytes(8) + SPDP, big_endian=True), "participants"),
    (submessage(0x16, bytes(8) + SEDP), "endpoints"),
    (submessage(0x06, USER + SEDP), "endpoints"),
    (submessage(0x07, bytes(4) + bytes.fromhex("000200c2")), "liveliness"),
    (submessage(0x08, bytes(4) + USER), "data"),
    (submessage(0x12, bytes(4) + USER), "data"),
    (submessage(0x15, bytes(8) + bytes.fromhex("000300c3")), "other-discovery"),
    (submessage(0x15, bytes(8) + bytes.fromhex("00030073")), "other-discovery"),
    (
        submessage(0x0E, bytes(12)) + submessage(0x09, bytes(8)) + submessage(0x15, bytes(8) + SPDP),
        "participants",
    ),
    (submessage(0x09, b"") + submessage(0x15, bytes(8) + USER), "data"),
    (submessage(0x33, bytes(20)) + submessage(0x30, bytes(40)), "encrypted"),
    (submessage(0x31, bytes(20)) + submessage(0x15, bytes(8) + SEDP), "endpoints"),
    (submessage(0x0E, bytes(12)), "other"),
    (submessage(0x0E, b"") + submessage(0x15, bytes(8) + SPDP), "other"),
    (submessage(0x15, bytes(11)), "other"),
    (bytes([0x0E, 1, 255, 255]), "other"),
    (b"\x15", "other"),
]


def test_the_first_submessage_with_a_writer_decides(count):
    for kind in sorted({kind for _, kind in WRITERS}):
        sent = [frame(ipv4(rtps(content))) for content, expected in WRITERS if expected == kind]
        assert by_kind(count(sent)) == {kind: len(sent)}


def test_headers_before_a_message_change_nothing(count):
    message = rtps(submessage(0x15, bytes(8) + SPDP))
    fragment = bytes([17, 0, 0, 1]) + bytes(4)
    hop_by_hop = bytes([44, 1]) + bytes(14)
    counts = count([
        frame(ipv4(message), tags=bytes.fromhex("88a8000181000002")),
        frame(ipv4(message, options=bytes(8))),
        frame(ipv6(message)),
        frame(ipv6(message, hop_by_hop, fragment, first=0)),
    ])  # fmt: skip
    sizes = (20, 28, 40, 40 + 16 + 8)
    assert by_kind(counts) == {"participants": 4}
    assert sum(row[3] for row in counts.rows) == sum(size + len(message) for size in sizes)


def test_what_is_not_a_message_has_a_kind(count):
    message = rtps(submessage(0x15, bytes(8) + SPDP))
    later = bytes([17, 0, 0x10, 1]) + bytes(4)
    counts = count([
        frame(ipv4(message, offset=1480)),
        frame(ipv6(message, later, first=44)),
        frame(ipv4(bytes(20), protocol=6)),
        frame(ipv4(udp(b"RTPX" + bytes(40)))),
        frame(ipv4(bytes.fromhex("c0001d16") + bytes(4))),
        frame(ipv4(bytes(8), protocol=1)),
        frame(ipv4(bytes(3))),
        frame(b"\x4f" + ipv4(message)[1:20]),
        frame(b"\x45"),
        bytes(12) + b"\x81\0",
    ])  # fmt: skip
    assert by_kind(counts) == {"fragments": 2, "zenoh": 2, "scouting": 1, "other": 5}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--interface"),
        (["--interface", "none7"], "none7"),
        (["--interface", "lo", "--own-cpus", "4000"], "4000"),
    ],
)
def test_what_prevents_counting_is_reported(supervisor, options, message):
    argv = [supervisor.path, "count-kinds", *options]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert message in done.stderr
