"""The kinds of discovery: multicast, peers, and Fast DDS's discovery server."""

import subprocess

import pytest
from perftest_tools import multicast_packets, sh

A, B = "10.99.0.1", "10.99.0.2"


def server(netns, number, port):
    """One of Fast DDS's discovery servers, with the id that participants expect of the n-th."""
    command = ["ip", "netns", "exec", netns, "fast-discovery-server", "-i", str(number), "-l", A, "-p", str(port)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def end(servers):
    for one in servers:
        one.kill()
        one.wait(10)


def test_the_discovery_server(perftest, link):
    servers = [server(link[0], 0, 11900)]
    try:
        both = ("-discoveryTimeout", 8, "-discovery", "server", "-discoveryServer", f"{A}:11900")
        subscriber = perftest.sub(*both, nic="eth0", netns=link[1], middleware="fastdds")
        publisher = perftest.pub(*both, nic="eth0", netns=link[0], middleware="fastdds")
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
        assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    finally:
        end(servers)


@pytest.mark.parametrize("lost", ["first", "a name", "both, while it measures"])
def test_one_of_two_discovery_servers_is_enough(perftest, link, lost):
    names = [f"{A}:11900" if lost != "a name" else "no-such-name.invalid:11900", f"{A}:11901"]
    servers = [
        server(link[0], number, port)
        for number, port in enumerate((11900, 11901))
        if number or lost.startswith("both")
    ]
    try:
        both = ["-discoveryTimeout", 15, "-discovery", "server"]
        both += [word for name in names for word in ("-discoveryServer", name)]
        subscriber = perftest.sub(*both, nic="eth0", netns=link[1], middleware="fastdds")
        publisher = perftest.pub(*both, time=2, nic="eth0", netns=link[0], middleware="fastdds")
        if lost.startswith("both"):
            publisher.wait_for_phase("M")
            end(servers)
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
        assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
        assert publisher.k8sdds["options"]["discoveryServer"] == names
    finally:
        end(servers)


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
def test_found_by_multicast_and_sent_by_unicast(perftest, link, middleware):
    for netns in link:
        sh(f"ip -n {netns} route add 224.0.0.0/4 dev eth0")
    before = multicast_packets(link[0])
    both = ("-discovery", "multicast")
    subscriber = perftest.sub(*both, nic="eth0", netns=link[1], middleware=middleware)
    publisher = perftest.pub(*both, nic="eth0", netns=link[0], middleware=middleware)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert multicast_packets(link[0]) - before < 100 < publisher.k8sdds["sent"]


@pytest.mark.parametrize(
    ("middleware", "words", "told"),
    [
        ("fastdds", ("-discovery", "server"), "-discoveryServer"),
        ("fastdds", ("-discoveryServer", A), "-discovery server"),
        ("fastdds", ("-discovery", "server", "-discoveryServer", "10.0.0.1:x"), "ADDRESS:PORT"),
        ("fastdds", ("-discovery", "server", "-discoveryServer", A, "-peer", B), "-peer"),
        ("cyclonedds", ("-discovery", "server", "-discoveryServer", A), "fastdds"),
    ],
)
def test_refusals(perftest, middleware, words, told):
    done = perftest.run("-pub", "-check", "-middleware", middleware, *words)
    assert done.returncode == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1
