"""Test Fast DDS, alone and together with Cyclone DDS."""

import json

import pytest
from perftest_tools import sh

BOTH_WAYS = [("cyclonedds", "fastdds"), ("fastdds", "cyclonedds")]
A, B = "10.99.0.1", "10.99.0.2"


@pytest.mark.parametrize(("publishes", "subscribes"), BOTH_WAYS)
@pytest.mark.parametrize("test", [("-latencyTest",), ("-dataLen", 40000)])
def test_understands_cyclonedds(perftest, publishes, subscribes, test):
    subscriber = perftest.sub(middleware=subscribes)
    publisher = perftest.pub(*test, middleware=publishes)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    assert subscriber.k8sdds["lost"] == 0


@pytest.mark.parametrize(("publishes", "subscribes"), BOTH_WAYS)
def test_understands_cyclonedds_by_multicast(perftest, link, publishes, subscribes):
    for netns in link:
        sh(f"ip -n {netns} route add 224.0.0.0/4 dev eth0")
    subscriber = perftest.sub("-multicast", nic="eth0", netns=link[1], middleware=subscribes)
    publisher = perftest.pub("-multicast", nic="eth0", netns=link[0], middleware=publishes)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0


def test_pings_are_not_acknowledged_one_by_one(perftest, link):
    pings = ("-latencyTest", "-numIter", 10000)
    subscriber = perftest.sub("-peer", A, nic="eth0", netns=link[1], middleware="fastdds")
    publisher = perftest.pub(*pings, "-peer", B, nic="eth0", netns=link[0], middleware="fastdds", time=30)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    received = int(sh(f"ip netns exec {link[0]} cat /sys/class/net/eth0/statistics/rx_packets"))
    assert publisher.k8sdds["pongs_received"] == 10000 <= received < 16000  # pongs of the warm-up included


@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_shared_memory_carries_the_samples(perftest, link, test):
    """Both processes are in one namespace, whose loopback interface carries only the discovery."""
    both = ("-transport", "SHMEM", "-dataLen", 8192, "-peer", A)
    subscriber = perftest.sub(*both, nic="eth0", netns=link[0], middleware="fastdds")
    publisher = perftest.pub(*both, *test, nic="eth0", netns=link[0], middleware="fastdds")
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    delivered = subscriber.k8sdds["received"]
    assert delivered == publisher.k8sdds["sent"] > 10
    interfaces = json.loads(sh(f"ip -n {link[0]} -s -j link show"))
    carried = sum(interface["stats64"]["tx"]["bytes"] for interface in interfaces)
    assert carried < delivered * 8192 / 100 + 100_000


def test_asynchronous_publishing_with_a_flow_controller(perftest):
    """The flow controller lets 64 KiB pass every 20 ms, 3.3 MB/s: far less than the link does."""
    limit = ("-asynchronous", "-flowController", "65536:20")
    publisher, subscriber = perftest.pair("-dataLen", 4096, pub=limit, middleware="fastdds", time=1)
    qos = publisher.k8sdds["qos"]
    assert (qos["publish_mode"], qos["flow_bytes"], qos["flow_period_ms"]) == ("asynchronous", 65536, 20)
    assert subscriber.k8sdds["qos"]["publish_mode"] == "synchronous"
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    # An interval contains at most one more period than its length, at both ends.
    periods = subscriber.k8sdds["measured_s"] / 0.02 + 2
    assert subscriber.k8sdds["received"] * 4096 <= periods * 65536
