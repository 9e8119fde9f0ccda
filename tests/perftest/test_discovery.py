"""The kinds of discovery: multicast, peers, and Fast DDS's discovery server."""

import subprocess

import pytest
from perftest_tools import multicast_packets, sh

A, B = "10.99.0.1", "10.99.0.2"


def test_the_discovery_server(perftest, link):
    command = ["ip", "netns", "exec", link[0], "fast-discovery-server", "-i", "0", "-l", A, "-p", "11900"]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        both = ("-discoveryTimeout", 8, "-discovery", "server", "-discoveryServer", f"{A}:11900")
        subscriber = perftest.sub(*both, nic="eth0", netns=link[1], middleware="fastdds")
        publisher = perftest.pub(*both, nic="eth0", netns=link[0], middleware="fastdds")
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
        assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    finally:
        server.terminate()
        server.wait(10)


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
