"""Test Fast DDS, alone and together with Cyclone DDS."""

import json

import pytest
from perftest_tools import sh

BOTH_WAYS = [("cyclonedds", "fastdds"), ("fastdds", "cyclonedds")]
A, B = "10.99.0.1", "10.99.0.2"


@pytest.mark.parametrize("receive", ["listener", "waitset", "spin"])
@pytest.mark.parametrize("test", [(), ("-latencyTest",)])
def test_receive_modes(perftest, receive, test):
    publisher, subscriber = perftest.pair("-receive", receive, pub=test, middleware="fastdds")
    sent, result = publisher.k8sdds, subscriber.k8sdds
    assert result["received"] == sent["sent"] > 0
    assert (result["lost"], result["duplicates"], result["out_of_order"]) == (0, 0, 0)
    if test:
        assert sent["pongs_received"] == sent["pings_sent"] == sent["latency_ns"]["count"]


# Lengths around one message (14720 bytes), and many fragments.
@pytest.mark.parametrize("length", [28, 14500, 14720, 300_000])
@pytest.mark.parametrize("reliability", [(), ("-bestEffort",)])
def test_lengths(perftest, length, reliability):
    publisher, subscriber = perftest.pair("-dataLen", length, *reliability, middleware="fastdds")
    assert subscriber.json["perftest"][0]["length"] == length
    assert subscriber.k8sdds["received"] > 0
    if not reliability:
        assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"]
    assert publisher.k8sdds["transport"]["max_message_bytes"] == 14720


@pytest.mark.parametrize(("publishes", "subscribes"), BOTH_WAYS)
@pytest.mark.parametrize("test", [(), ("-latencyTest",), ("-dataLen", 40000)])
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


def test_several_subscribers(perftest):
    subscribers = [perftest.sub("-sidMultiSubTest", i, middleware="fastdds") for i in range(3)]
    publisher = perftest.pub("-numSubscribers", 3, middleware="fastdds")
    assert [p.end() for p in (publisher, *subscribers)] == [0] * 4, publisher.err
    assert all(s.k8sdds["received"] == publisher.k8sdds["sent"] for s in subscribers)


def test_reliable_delivery_over_a_lossy_link(perftest, link):
    sh(
        f"ip netns exec {link[1]} nft 'add table netdev imp; add chain netdev imp in {{ type filter hook ingress "
        "device eth0 priority 0; }; add rule netdev imp in ip protocol udp numgen random mod 1000 < 10 counter drop'"
    )
    subscriber = perftest.sub("-peer", A, nic="eth0", netns=link[1], middleware="fastdds")
    publisher = perftest.pub("-dataLen", 1000, "-peer", B, nic="eth0", netns=link[0], middleware="fastdds")
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    result = subscriber.k8sdds
    assert result["received"] == publisher.k8sdds["sent"] > 0
    assert (result["lost"], result["duplicates"], result["out_of_order"]) == (0, 0, 0)


def test_pings_are_not_acknowledged_one_by_one(perftest, link):
    pings = ("-latencyTest", "-numIter", 10000)
    subscriber = perftest.sub("-peer", A, nic="eth0", netns=link[1], middleware="fastdds")
    publisher = perftest.pub(*pings, "-peer", B, nic="eth0", netns=link[0], middleware="fastdds", time=30)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    received = int(sh(f"ip netns exec {link[0]} cat /sys/class/net/eth0/statistics/rx_packets"))
    assert publisher.k8sdds["pongs_received"] == 10000 <= received < 16000  # pongs of the warm-up included


def test_environment_is_ignored(perftest, tmp_path):
    broken = tmp_path / "profiles.xml"
    broken.write_text("<dds>")
    foreign = {"FASTRTPS_DEFAULT_PROFILES_FILE": str(broken), "ROS_DISCOVERY_SERVER": "192.0.2.1:11811"}
    publisher, subscriber = perftest.pair(middleware="fastdds", env=foreign)
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("-batchSize", 8192), "-batchSize"),
        (("-qosFile", "qos/batched.xml"), "qos/batched.xml"),
        (("-nic", "nowhere0"), "-nic"),
        (("-peer", "no.such.host.invalid"), "-peer"),
    ],
)
def test_unsupported_options(perftest, args, expected):
    completed = perftest.run("-pub", "-check", "-middleware", "fastdds", *args)
    assert (
        completed.returncode == 2 and expected in completed.stderr and len(completed.stderr.splitlines()) == 1
    )


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


@pytest.mark.parametrize("middleware", ["cyclonedds", "raw"])
@pytest.mark.parametrize("option", [("-asynchronous",), ("-transport", "SHMEM")])
def test_only_fastdds_has_asynchronous_publishing_and_shared_memory(perftest, middleware, option):
    reliability = ["-bestEffort"] if middleware == "raw" else []
    done = perftest.run("-pub", "-check", "-nic", "lo", "-middleware", middleware, *reliability, *option)
    assert (done.returncode, f"{option[0]}: {middleware}" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("value", ["1024", "100:10", "65536:0", "65536:10x", "99999999999:10"])
def test_invalid_flow_controllers(perftest, value):
    arguments = ("-pub", "-check", "-middleware", "fastdds", "-nic", "lo")
    done = perftest.run(*arguments, "-asynchronous", "-flowController", value)
    assert (done.returncode, "give BYTES:MS" in done.stderr) == (2, True), done.stderr
