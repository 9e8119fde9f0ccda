"""Test Fast DDS, alone and together with Cyclone DDS."""

import json

import pytest
from perftest_tools import A, end_all, route_multicast, sh
from security_files import Files

BOTH_WAYS = pytest.mark.parametrize("middleware", [("cyclonedds", "fastdds"), ("fastdds", "cyclonedds")])


@BOTH_WAYS
@pytest.mark.parametrize("test", [("-latencyTest",), ("-dataLen", 40000)])
def test_understands_cyclonedds(perftest, middleware, test):
    publisher, subscriber = perftest.pair(pub=test, middleware=middleware)
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    assert subscriber.k8sdds["lost"] == 0


@BOTH_WAYS
def test_understands_cyclonedds_by_multicast(perftest, link, middleware):
    route_multicast(link)
    publisher, subscriber = perftest.pair("-multicast", link=link, peers=False, middleware=middleware)
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0


def test_pings_are_not_acknowledged_one_by_one(perftest, link):
    pings = ("-latencyTest", "-numIter", 10000)
    publisher, _ = perftest.pair(pub=pings, link=link, middleware="fastdds", time=100)
    received = int(sh(f"ip netns exec {link[0]} cat /sys/class/net/eth0/statistics/rx_packets"))
    assert publisher.k8sdds["pongs_received"] == 10000 <= received < 16000  # pongs of the warm-up included


@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_shared_memory_carries_the_samples(perftest, link, test):
    """Both processes are in one namespace, whose loopback interface carries only the discovery."""
    both = ("-transport", "SHMEM", "-dataLen", 8192, "-peer", A)
    options = {"link": (link[0], link[0]), "peers": False, "middleware": "fastdds", "time": 60}
    publisher, subscriber = perftest.pair(*both, pub=(*test, "-numIter", 1000), **options)
    delivered = subscriber.k8sdds["received"]
    assert delivered == publisher.k8sdds["sent"] >= 1000
    interfaces = json.loads(sh(f"ip -n {link[0]} -s -j link show"))
    carried = sum(interface["stats64"]["tx"]["bytes"] for interface in interfaces)
    assert carried < delivered * 8192 / 10


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


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Encrypt the payload and discovery, and sign the metadata."""
    return Files(tmp_path_factory.mktemp("security"), data="ENCRYPT", metadata="SIGN", discovery="ENCRYPT")


@pytest.mark.parametrize("algorithm", ["aes-128-gcm", "aes-256-gcm"])
def test_protected_samples_arrive(perftest, files, algorithm):
    roles = {"pub": files.options("pub"), "sub": files.options("sub")}
    aes = ("-secureEncryptionAlgorithm", algorithm)
    publisher, subscriber = perftest.pair(*aes, **roles, middleware="fastdds")
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    assert publisher.k8sdds["handshake_s"] > 0 and subscriber.k8sdds["handshake_s"] > 0
    assert "PRIVATE KEY" not in publisher.out + publisher.err + subscriber.out + subscriber.err


def test_unprotected_peer_is_rejected(perftest, files):
    processes = perftest.begin("-discoveryTimeout", 2, pub=files.options("pub"), middleware="fastdds")
    end_all(*processes, codes=(3, 3))
    assert processes[0].k8sdds["handshake_s"] is None
