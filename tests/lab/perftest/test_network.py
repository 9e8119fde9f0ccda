"""Test the packets on the network, in network namespaces."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from perftest_tools import multicast_packets, sh

A, B = "10.99.0.1", "10.99.0.2"


def across(perftest, link, both, pub=(), middleware="cyclonedds", **times):
    """Start a publisher in the first namespace and a subscriber in the second."""
    subscriber = perftest.sub(*both, "-peer", A, nic="eth0", netns=link[1], middleware=middleware)
    publisher = perftest.pub(
        *both, *pub, "-peer", B, nic="eth0", netns=link[0], middleware=middleware, **times
    )
    return publisher, subscriber


@pytest.mark.parametrize(
    ("middleware", "both"),
    [("cyclonedds", ()), ("cyclonedds", ("-bestEffort",)), ("fastdds", ()), ("raw", ())],
)
def test_multicast_samples_are_sent_to_the_group(perftest, link, middleware, both):
    both = (*both, "-multicast")
    for netns in link:
        sh(f"ip -n {netns} route add 224.0.0.0/4 dev eth0")
    before = multicast_packets(link[0])
    subscriber = perftest.sub(*both, nic="eth0", netns=link[1], middleware=middleware)
    publisher = perftest.pub(*both, "-dataLen", 1000, nic="eth0", netns=link[0], middleware=middleware)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    # With a single reader, every sample still goes to the group.
    assert multicast_packets(link[0]) - before >= publisher.k8sdds["sent"]
    transport = publisher.k8sdds["transport"]
    assert transport["multicast"] is True and transport["interface"] == "eth0"


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw"])
def test_multicast_uses_the_given_address(perftest, link, middleware):
    for netns in link:
        sh(f"ip -n {netns} route add 224.0.0.0/4 dev eth0")
    sh(
        f"ip netns exec {link[0]} nft 'add table ip t; add chain ip t o {{ type filter hook output priority 0; }};"
        " add counter ip t group; add counter ip t other; add rule ip t o ip daddr 239.255.7.7 counter name group;"
        " add rule ip t o ip daddr 224.0.0.0/4 ip daddr != 239.255.7.7 ip protocol udp counter name other'"
    )
    both = ("-multicast", "-multicastAddr", "239.255.7.7")
    subscriber = perftest.sub(*both, nic="eth0", netns=link[1], middleware=middleware)
    publisher = perftest.pub(*both, nic="eth0", netns=link[0], middleware=middleware)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert publisher.k8sdds["transport"]["multicast_address"] == "239.255.7.7"
    counters = sh(f"ip netns exec {link[0]} nft list counters table ip t").split()
    packets = {counters[i + 1]: int(counters[i + 4]) for i, word in enumerate(counters) if word == "counter"}
    assert packets["group"] >= publisher.k8sdds["sent"]
    # Fast DDS announces its participants to the group of the standard.
    assert packets["other"] == 0 or middleware == "fastdds"


def test_several_multicast_subscribers_in_one_namespace(perftest, link):
    for netns in link:
        sh(f"ip -n {netns} route add 224.0.0.0/4 dev eth0")
    subscribers = [
        perftest.sub("-multicast", "-sidMultiSubTest", i, nic="eth0", netns=link[i % 2]) for i in range(3)
    ]
    publisher = perftest.pub("-multicast", "-numSubscribers", 3, nic="eth0", netns=link[0])
    assert [p.end() for p in (publisher, *subscribers)] == [0] * 4, publisher.err
    assert all(s.k8sdds["received"] == publisher.k8sdds["sent"] for s in subscribers)


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw"])
@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_unicast_sends_no_multicast(perftest, link, middleware, test):
    before = [multicast_packets(netns) for netns in link]
    publisher, subscriber = across(perftest, link, (), pub=test, middleware=middleware)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    # The kernel sends a few IGMP packets.
    assert all(multicast_packets(netns) - b < 10 for netns, b in zip(link, before, strict=True))
    assert publisher.k8sdds["options"]["discovery"] == "peers"


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
def test_fragment_length_is_reported_correctly(perftest, link, middleware):
    command = [sys.executable, str(Path(__file__).parent / "fragments.py"), "eth0"]
    with subprocess.Popen(
        ["ip", "netns", "exec", link[0], *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as capture:
        assert capture.stdout.readline() == "ready\n"
        publisher, subscriber = across(perftest, link, ("-dataLen", 65536), middleware=middleware)
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
        captured, _ = capture.communicate()
    reported = publisher.k8sdds["transport"]["fragment_bytes"]
    # A serialized sample has four more bytes for its encoding.
    assert captured.splitlines() == [f"{reported} {65536 + 4}"]


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
def test_reliable_delivery_over_a_lossy_link(perftest, link, middleware):
    sh(
        f"ip netns exec {link[1]} nft 'add table netdev imp; add chain netdev imp in {{ type filter hook ingress "
        "device eth0 priority 0; }; add rule netdev imp in ip protocol udp numgen random mod 1000 < 10 counter drop'"
    )
    publisher, subscriber = across(perftest, link, (), pub=("-dataLen", 1000), middleware=middleware)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    result = subscriber.k8sdds
    assert result["received"] == publisher.k8sdds["sent"] > 0
    assert (result["lost"], result["duplicates"], result["out_of_order"]) == (0, 0, 0)
    sent_again = publisher.k8sdds["retransmitted_bytes"]
    assert sent_again is None if middleware == "fastdds" else sent_again > 0


def drop_data(netns: str) -> None:
    sh(
        f"ip netns exec {netns} nft 'add table netdev imp; add chain netdev imp in {{ type filter hook ingress "
        "device eth0 priority 0; }; add rule netdev imp in ip protocol udp meta length > 900 counter drop'"
    )


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw"])
def test_lost_tail_counts_as_lost(perftest, link, middleware):
    both = ("-dataLen", 1000) + (("-bestEffort",) if middleware != "raw" else ())
    pub = ("-numIter", 400, "-pubRate", "1000:sleep")
    publisher, subscriber = across(perftest, link, both, pub=pub, middleware=middleware, time=20)
    subscriber.wait_for_phase("M")
    drop_data(link[1])
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    result = subscriber.k8sdds
    assert result["sent"] == 400 and result["lost"] > 0
    assert result["received"] + result["lost"] == 400
    assert publisher.k8sdds["lost"] == result["lost"]


@pytest.mark.parametrize("middleware", ["cyclonedds", "raw"])
@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_no_sample_arrives(perftest, link, middleware, test):
    both = ("-dataLen", 1000) + (("-bestEffort",) if middleware != "raw" else ())
    drop_data(link[1])
    publisher, subscriber = across(perftest, link, both, pub=test, middleware=middleware)
    assert (publisher.end(), subscriber.end()) == (5, 5), publisher.err + subscriber.err
    assert publisher.k8sdds["exit"]["code"] == 5 and subscriber.k8sdds["received"] == 0
    if test:
        assert publisher.k8sdds["pongs_timed_out"] == publisher.k8sdds["pings_sent"] > 0


def test_reliable_samples_never_arrive(perftest, link):
    drop_data(link[1])
    both = ("-dataLen", 1000, "-peerTimeout", 0.6)
    publisher, subscriber = across(perftest, link, both, pub=("-latencyTest",), time=20)
    assert publisher.end() == 4 and subscriber.end() == 4


def test_link_down(perftest, link):
    publisher, subscriber = across(perftest, link, ("-peerTimeout", 0.5), time=20)
    subscriber.wait_for_phase("M")
    sh(f"ip -n {link[0]} link set eth0 down")
    assert publisher.end() in (4, 6) and subscriber.end() == 4


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw"])
def test_packets_carry_the_code_point(perftest, link, middleware):
    """Count the packets of samples and their answers where they arrive."""
    for netns in link:
        sh(
            f"ip netns exec {netns} nft 'add table netdev t; add chain netdev t in {{ type filter hook ingress "
            "device eth0 priority 0; }; add rule netdev t in ip dscp ef counter; add rule netdev t in ip dscp != ef "
            "ip length > 900 counter'"
        )
    subscriber = perftest.sub(
        "-dscp", 46, "-peer", "10.99.0.1", nic="eth0", netns=link[1], middleware=middleware
    )
    publisher = perftest.pub(
        "-dscp", 46, "-dataLen", 1000, "-latencyTest", "-peer", "10.99.0.2",
        nic="eth0", netns=link[0], middleware=middleware,
    )  # fmt: skip
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
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
