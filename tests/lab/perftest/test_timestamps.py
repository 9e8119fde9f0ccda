"""Test the source timestamps of samples, as they are on the wire."""

import os
import socket
import struct
from collections import Counter

import pytest

LENGTH = 1000
ALL_PROTOCOLS, SO_RCVBUFFORCE = 3, 33
INFO_TS, DATA = 0x09, 0x15


@pytest.fixture
def capture():
    """Capture the packets on the loopback interface."""
    if os.geteuid() != 0:
        pytest.skip("requires root for a packet socket")
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS)) as packets:
        packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        packets.bind(("lo", 0))
        packets.setblocking(False)
        yield packets


def samples(packet: bytes):
    """Yield (writer and sequence number, timestamp) of each sample of the test in a packet."""
    start = packet.find(b"RTPS")
    if start < 0:
        return
    at, timestamp = start + 20, None
    while at + 4 <= len(packet):
        kind, _flags, length = struct.unpack_from("<BBH", packet, at)
        if kind == INFO_TS:
            timestamp = packet[at + 4 : at + 12]
        if kind == DATA and len(packet) - at >= LENGTH:
            yield packet[at + 12 : at + 24], timestamp
        if not length:
            return
        at += 4 + length


def timestamps(perftest, capture, *pub: object) -> Counter:
    """Return how many samples have each source timestamp."""
    perftest.pair(pub=("-dataLen", LENGTH, "-numIter", 640, *pub))
    found = {}
    while True:
        try:
            found.update(samples(capture.recv(65535)))
        except BlockingIOError:
            break
    assert len(found) >= 640
    return Counter(found.values())


@pytest.mark.parametrize("more", [(), ("-serialized",)])
def test_16_samples_of_a_throughput_test_share_a_timestamp(perftest, capture, more):
    counts = Counter(timestamps(perftest, capture, *more).values())
    assert counts.most_common(1)[0][0] == max(counts) == 16


def test_each_sample_at_a_rate_has_its_own_timestamp(perftest, capture):
    assert set(timestamps(perftest, capture, "-pubRate", "4000:spin").values()) == {1}
