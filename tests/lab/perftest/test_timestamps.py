"""Test the source timestamps of samples, as they are on the wire."""

import ctypes
import socket
import struct
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest

LENGTH = 1000
ALL_PROTOCOLS, SO_RCVBUFFORCE = 3, 33
CLONE_NEWNET = 0x40000000
INFO_TS, DATA = 0x09, 0x15


@pytest.fixture
def capture(link):
    """Capture the packets that leave the publisher's network namespace: other tests use the loopback interface too."""
    with ThreadPoolExecutor(1) as thread:  # setns moves only the calling thread
        packets = thread.submit(packet_socket, link[0]).result()
    with packets:
        yield packets


def packet_socket(netns: str) -> socket.socket:
    """Enter a network namespace and return a socket that receives what eth0 carries there."""
    with open(f"/run/netns/{netns}") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    packets.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
    packets.bind(("eth0", 0))
    packets.setblocking(False)
    return packets


def samples(packet: bytes):
    """Yield (writer, sequence number, timestamp) of each sample of the test in a packet."""
    start = packet.find(b"RTPS")
    if start < 0:
        return
    at, timestamp = start + 20, None
    while at + 4 <= len(packet):
        kind, _flags, length = struct.unpack_from("<BBH", packet, at)
        if kind == INFO_TS:
            timestamp = packet[at + 4 : at + 12]
        if kind == DATA and len(packet) - at >= LENGTH:
            yield (
                packet[start + 8 : start + 20] + packet[at + 12 : at + 16],
                packet[at + 16 : at + 24],
                timestamp,
            )
        if not length:
            return
        at += 4 + length


def timestamps(perftest, link, capture, *pub: object) -> Counter:
    """Return how many samples of the throughput test have each source timestamp."""
    subscriber = perftest.sub("-peer", "10.99.0.1", nic="eth0", netns=link[1])
    publisher = perftest.pub(
        "-peer", "10.99.0.2", "-dataLen", LENGTH, "-numIter", 640, *pub, nic="eth0", netns=link[0]
    )
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    by_writer = defaultdict(dict)
    while True:
        try:
            for writer, number, timestamp in samples(capture.recv(65535)):
                by_writer[writer][number] = timestamp
        except BlockingIOError:
            break
    most = max(by_writer.values(), key=len)  # the others write pings and pongs
    assert len(most) >= 640
    return Counter(most.values())


@pytest.mark.parametrize("more", [(), ("-serialized",)])
def test_16_samples_of_a_throughput_test_share_a_timestamp(perftest, link, capture, more):
    counts = Counter(timestamps(perftest, link, capture, *more).values())
    assert counts.most_common(1)[0][0] == max(counts) == 16


def test_each_sample_at_a_rate_has_its_own_timestamp(perftest, link, capture):
    assert set(timestamps(perftest, link, capture, "-pubRate", "4000:spin").values()) == {1}
