"""Test discovery by multicast, by peers, and by the Fast DDS discovery server."""

import subprocess

import pytest
from perftest_tools import A, end_all, filter_received, multicast_packets, sh


def server(netns, number, port):
    """Start a discovery server with the id that participants expect for the n-th server."""
    command = f"ip netns exec {netns} fast-discovery-server -i {number} -l {A} -p {port}"
    return subprocess.Popen(command.split(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def stop(servers):
    for process in servers:
        process.kill()
        process.wait(60)


@pytest.mark.parametrize("missing", ["none", "first", "a name", "both, in the measured interval"])
def test_two_discovery_servers(perftest, link, missing):
    names = [f"{A}:11900" if missing != "a name" else "no-such-name.invalid:11900", f"{A}:11901"]
    servers = [
        server(link[0], number, port)
        for number, port in enumerate((11900, 11901))
        if number or missing.startswith(("none", "both"))
    ]
    try:
        both = ["-discoveryTimeout", 60, "-discovery", "server"]
        both += [argument for name in names for argument in ("-discoveryServer", name)]
        publisher, subscriber = perftest.begin(*both, link=link, peers=False, middleware="fastdds", time=2)
        if missing.startswith("both"):
            publisher.wait_for_phase("M")
            stop(servers)
        end_all(publisher, subscriber)
        assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
        assert publisher.k8sdds["options"]["discoveryServer"] == names
    finally:
        stop(servers)


@pytest.mark.parametrize("pub", ["cyclonedds", "fastdds"])
@pytest.mark.parametrize("sub", ["cyclonedds", "fastdds"])
def test_peers_are_discovered_without_an_address(perftest, link, pub, sub):
    """By the default, and by the option that names it."""
    both = ("-discovery", "multicast") if pub == sub else ()
    before = multicast_packets(link[0])
    options = {"link": link, "peers": False, "middleware": (pub, sub), "time": 30}
    publisher, subscriber = perftest.pair(*both, pub=("-numIter", 1000), **options)
    assert publisher.k8sdds["options"]["discovery"] == "multicast"
    assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] == 1000
    assert multicast_packets(link[0]) - before < 100, "samples use unicast"


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
def test_a_network_that_drops_multicast_needs_an_address(perftest, link, middleware):
    for netns in link:
        filter_received(netns, "ip daddr 224.0.0.0/4 drop")
    processes = perftest.begin("-discoveryTimeout", 2, link=link, peers=False, middleware=middleware)
    end_all(*processes, codes=(3, 3))
    for process in processes:
        assert "searched by multicast" in process.err and "add -peer ADDR" in process.err


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
def test_an_interface_without_multicast_reaches_this_host_only(perftest, link, middleware):
    for netns in link:
        sh(f"ip -n {netns} link set eth0 multicast off")
    alone = perftest.pub("-discoveryTimeout", 1, nic="eth0", netns=link[0], middleware=middleware)
    assert alone.end() == 3
    assert "searched on this host only" in alone.err and "add -peer ADDR" in alone.err
    perftest.pair(link=(link[0], link[0]), peers=False, middleware=middleware)
