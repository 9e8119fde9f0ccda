"""Test the packets on the network, in network namespaces."""

import json
import struct

import pytest
from perftest_tools import (
    end_all,
    filter_received,
    multicast_packets,
    packet_socket,
    route_multicast,
    rtps_messages,
    sh,
)

DATA_FRAG = 0x16


@pytest.mark.parametrize(
    ("middleware", "both"),
    [("cyclonedds", ()), ("cyclonedds", ("-bestEffort",)), ("fastdds", ()), ("raw", ())],
)
def test_multicast_samples_are_sent_to_the_group(perftest, link, middleware, both):
    route_multicast(link)
    before = multicast_packets(link[0])
    both = (*both, "-multicast", "-dataLen", 1000)
    publisher, _ = perftest.pair(*both, link=link, peers=False, middleware=middleware)
    # With a single reader, every sample still goes to the group.
    assert multicast_packets(link[0]) - before >= publisher.k8sdds["sent"]
    transport = publisher.k8sdds["transport"]
    assert transport["multicast"] is True and transport["interface"] == "eth0"


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw"])
def test_multicast_uses_the_given_address(perftest, link, middleware):
    route_multicast(link)
    sh(
        f"ip netns exec {link[0]} nft 'add table ip t; add chain ip t o {{ type filter hook output priority 0; }};"
        " add counter ip t group; add counter ip t other; add rule ip t o ip daddr 239.255.7.7 counter name group;"
        " add rule ip t o ip daddr 224.0.0.0/4 ip daddr != 239.255.7.7 ip protocol udp counter name other'"
    )
    both = ("-multicast", "-multicastAddr", "239.255.7.7")
    publisher, _ = perftest.pair(*both, link=link, peers=False, middleware=middleware)
    assert publisher.k8sdds["transport"]["multicast_address"] == "239.255.7.7"
    counters = sh(f"ip netns exec {link[0]} nft list counters table ip t").split()
    packets = {counters[i + 1]: int(counters[i + 4]) for i, word in enumerate(counters) if word == "counter"}
    assert packets["group"] >= publisher.k8sdds["sent"]
    # Fast DDS announces its participants to the group of the standard.
    assert packets["other"] == 0 or middleware == "fastdds"


def test_several_multicast_subscribers_in_one_namespace(perftest, link):
    route_multicast(link)
    subscribers = [
        perftest.sub("-multicast", "-sidMultiSubTest", i, nic="eth0", netns=link[i % 2]) for i in range(3)
    ]
    publisher = perftest.pub("-multicast", "-numSubscribers", 3, nic="eth0", netns=link[0])
    end_all(publisher, *subscribers)
    assert all(s.k8sdds["received"] == publisher.k8sdds["sent"] for s in subscribers)


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw", "zenoh"])
@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_unicast_sends_no_multicast(perftest, link, middleware, test):
    before = [multicast_packets(netns) for netns in link]
    publisher, _ = perftest.pair(pub=test, link=link, middleware=middleware)
    # The kernel sends a few IGMP packets.
    assert all(multicast_packets(netns) - b < 10 for netns, b in zip(link, before, strict=True))
    assert publisher.k8sdds["options"]["discovery"] == "peers"


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
def test_fragment_length_is_reported_correctly(perftest, link, middleware):
    with packet_socket(link[0]) as packets:
        publisher, _ = perftest.pair("-dataLen", 65536, link=link, middleware=middleware)
        found = [message for _, messages in rtps_messages(packets) for message in messages]
    reported = publisher.k8sdds["transport"]["fragment_bytes"]
    # The sizes of a fragment and of the sample follow flags, QoS offset, reader, writer and numbers of fragments.
    # A serialized sample has four more bytes for its encoding.
    sizes = {
        struct.unpack_from("<HI" if message[1] & 1 else ">HI", message, 30)
        for message in found
        if message[0] == DATA_FRAG
    }
    assert sizes == {(reported, 65536 + 4)}


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "zenoh"])
def test_reliable_delivery_over_a_lossy_link(perftest, link, middleware):
    filter_received(link[1], "ip protocol { udp, tcp } numgen random mod 1000 < 10 counter drop")
    publisher, subscriber = perftest.pair(pub=("-dataLen", 1000), link=link, middleware=middleware)
    result = subscriber.k8sdds
    assert result["received"] == publisher.k8sdds["sent"] > 0
    assert (result["lost"], result["duplicates"], result["out_of_order"]) == (0, 0, 0)
    sent_again = publisher.k8sdds["retransmitted_bytes"]
    assert sent_again is None if middleware == "fastdds" else sent_again > 0


def drop_data(netns: str) -> None:
    filter_received(netns, "ip protocol udp meta length > 900 counter drop")


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw", "zenoh"])
def test_lost_tail_counts_as_lost(perftest, link, middleware):
    both = ("-dataLen", 1000) + (("-bestEffort",) if middleware != "raw" else ())
    pub = ("-numIter", 1000, "-pubRate", "500:sleep")
    publisher, subscriber = perftest.begin(*both, pub=pub, link=link, middleware=middleware, time=20)
    subscriber.wait_for_phase("M")
    drop_data(link[1])
    end_all(publisher, subscriber)
    result = subscriber.k8sdds
    assert result["sent"] == 1000 and result["lost"] > 0
    assert result["received"] + result["lost"] == 1000
    assert publisher.k8sdds["lost"] == result["lost"]


@pytest.mark.parametrize("middleware", ["cyclonedds", "raw", "zenoh"])
@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_no_sample_arrives(perftest, link, middleware, test):
    both = ("-dataLen", 1000) + (("-bestEffort",) if middleware != "raw" else ())
    drop_data(link[1])
    publisher, subscriber = perftest.begin(*both, pub=test, link=link, middleware=middleware)
    end_all(publisher, subscriber, codes=(5, 5))
    assert publisher.k8sdds["exit"]["code"] == 5 and subscriber.k8sdds["received"] == 0
    if test:
        assert publisher.k8sdds["pongs_timed_out"] == publisher.k8sdds["pings_sent"] > 0


def test_reliable_samples_never_arrive(perftest, link):
    drop_data(link[1])
    both = ("-dataLen", 1000, "-peerTimeout", 3)
    processes = perftest.begin(*both, pub=("-latencyTest",), link=link, time=20)
    end_all(*processes, codes=(4, 4))


def test_link_down(perftest, link):
    publisher, subscriber = perftest.begin("-peerTimeout", 3, link=link, time=20)
    subscriber.wait_for_phase("M")
    sh(f"ip -n {link[0]} link set eth0 down")
    assert publisher.end() in (4, 6) and subscriber.end() == 4


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw", "zenoh"])
def test_packets_carry_the_code_point(perftest, link, middleware):
    """Count the packets of samples and their answers where they arrive."""
    for netns in link:
        filter_received(netns, "ip dscp ef counter", "ip dscp != ef ip length > 900 counter")
    publisher, subscriber = perftest.pair(
        "-dscp",
        46,
        pub=("-dataLen", 1000, "-latencyTest", "-numIter", 200),
        time=20,
        link=link,
        middleware=middleware,
    )
    assert publisher.k8sdds["transport"]["dscp"] == subscriber.k8sdds["transport"]["dscp"] == [46]
    for netns in link:
        rules = json.loads(sh(f"ip netns exec {netns} nft -j list table netdev t"))["nftables"]
        marked, unmarked = [
            expression["counter"]["packets"]
            for rule in rules if "rule" in rule
            for expression in rule["rule"]["expr"] if "counter" in expression
        ]  # fmt: skip
        assert marked >= publisher.k8sdds["pongs_received"] > 100
        # A participant can announce all its endpoints in one large packet before its sockets are marked.
        assert unmarked <= 2
