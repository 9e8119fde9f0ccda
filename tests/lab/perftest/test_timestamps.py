"""Test the source timestamps of samples, as they are on the wire."""

from collections import Counter, defaultdict

import pytest
from perftest_tools import packet_socket, rtps_messages

LENGTH = 1000
INFO_TS, DATA = 0x09, 0x15


def timestamps(perftest, link, *pub: object) -> Counter:
    """Return how many samples of the throughput test have each source timestamp."""
    by_writer = defaultdict(dict)
    with packet_socket(link[0]) as packets:
        perftest.pair(pub=("-dataLen", LENGTH, "-numIter", 640, *pub), link=link, time=30)
        for prefix, messages in rtps_messages(packets):
            timestamp = None
            for message in messages:
                if message[0] == INFO_TS:
                    timestamp = message[4:12]
                if message[0] == DATA and len(message) >= LENGTH:
                    by_writer[prefix + message[12:16]][message[16:24]] = timestamp
    most = max(by_writer.values(), key=len)  # the others write pings and pongs
    assert len(most) >= 640
    return Counter(most.values())


@pytest.mark.parametrize("more", [(), ("-serialized",)])
def test_16_samples_of_a_throughput_test_share_a_timestamp(perftest, link, more):
    counts = Counter(timestamps(perftest, link, *more).values())
    assert counts.most_common(1)[0][0] == max(counts) == 16


def test_each_sample_at_a_rate_has_its_own_timestamp(perftest, link):
    assert set(timestamps(perftest, link, "-pubRate", "4000:spin").values()) == {1}
