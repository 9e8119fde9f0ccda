"""Test the system calls of `-middleware raw` in every mode, and that each sample is accounted for."""

import re
import shutil
import socket
import subprocess

import pytest
from perftest_tools import TIMEOUT_S, end_all, filter_received, preload, route_multicast, tool

MODES = ("datagram", "single", "connected", "mmsg", "gso")
TRACE = ("strace", "-f", "-e", "trace=sendmsg,sendmmsg,recvmmsg,setsockopt")
COLLECTING = ("mmsg", "gso")


def across(perftest, mode, *both, **options):
    """Run a publisher and a subscriber to their end, and return their results."""
    publisher, subscriber = perftest.pair("-rawMode", mode, *both, middleware="raw", **options)
    return publisher.k8sdds, subscriber.k8sdds


def accounted(publisher: dict, subscriber: dict) -> bool:
    return (
        publisher["sent"] == subscriber["sent"] > 0
        and subscriber["received"] + subscriber["lost"] == subscriber["sent"]
        and publisher["received"] == subscriber["received"] > 0
        and subscriber["duplicates"] == subscriber["out_of_order"] == 0
    )


@pytest.mark.parametrize("receive", ["listener", "waitset", "spin"])
@pytest.mark.parametrize("mode", MODES)
def test_every_sample_is_accounted_for(perftest, link, mode, receive):
    pub = ("-dataLen", 200, "-loadedLatency")
    publisher, subscriber = across(perftest, mode, "-receive", receive, pub=pub, link=link)
    assert accounted(publisher, subscriber)
    assert publisher["options"]["rawMode"] == mode
    # Pings of a throughput test, if it sends any, return in every mode.
    assert publisher["pongs_received"] > 0


@pytest.mark.parametrize("mode", COLLECTING)
def test_the_last_incomplete_batch_is_sent(perftest, link, mode):
    # No warm-up: its samples would fill the socket of a subscriber that a busy machine stops.
    pub = ("-dataLen", 1000, "-numIter", 1001)
    publisher, subscriber = across(perftest, mode, pub=pub, link=link, time=20, warm_up=0)
    assert publisher["sent"] == 1001 and accounted(publisher, subscriber)
    assert subscriber["lost"] == 0
    assert publisher["qos"]["samples_per_send"] > 1


@pytest.mark.parametrize("mode", MODES)
def test_samples_larger_than_the_mtu(perftest, link, mode):
    pub = ("-dataLen", 60000, "-numIter", 2000)
    publisher, subscriber = across(perftest, mode, pub=pub, link=link, time=20)
    assert accounted(publisher, subscriber)
    # With GSO a sample is several packets of the MTU; the other modes leave it to IP fragments.
    parts = -(-(60000 - 28) // (1500 - 28 - 28)) if mode == "gso" else 1
    assert publisher["qos"]["datagrams_per_sample"] == parts


@pytest.mark.parametrize("mode", ["single", "connected"])
@pytest.mark.parametrize("receive", ["listener", "spin"])
def test_ping_pong(perftest, link, mode, receive):
    pub = ("-latencyTest",)
    publisher, subscriber = across(perftest, mode, "-receive", receive, pub=pub, link=link)
    assert publisher["latency_ns"]["count"] == publisher["pongs_received"] > 0
    assert subscriber["received"] <= publisher["sent"]
    polls = mode == "connected" and receive == "spin"
    assert (publisher["qos"]["busy_poll_us"] > 0) == polls


@pytest.mark.parametrize("mode", MODES)
def test_several_subscribers(perftest, mode):
    both = ("-rawMode", mode)
    subscribers = [perftest.sub(*both, "-sidMultiSubTest", i, middleware="raw") for i in range(3)]
    publisher = perftest.pub(*both, "-numSubscribers", 3, middleware="raw")
    end_all(publisher, *subscribers)
    for i, subscriber in enumerate(subscribers):
        result = subscriber.k8sdds
        assert result["received"] == publisher.k8sdds["subscribers"][i]["received"] > 0
        assert result["received"] + result["lost"] == publisher.k8sdds["sent"]


def test_a_subscriber_whose_port_is_taken_leaves_the_others_without_it(perftest):
    """The socket of another program, as with DDS ports that the kernel also gives to sockets that ask for any port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        port = 7400 + 250 * perftest.domain + 10 + 2 * 1 + 1
        other.bind(("127.0.0.1", port))
        both = ("-discoveryTimeout", 1)
        subscribers = [perftest.sub(*both, "-sidMultiSubTest", i, middleware="raw") for i in range(2)]
        publisher = perftest.pub(*both, "-numSubscribers", 2, middleware="raw")
        end_all(publisher, *subscribers, codes=(3, 3, 6))
    assert f"127.0.0.1:{port} is in use" in subscribers[1].err
    assert "of 2 subscribers ready" in publisher.err


@pytest.mark.parametrize("mode", COLLECTING)
def test_a_lossy_link(perftest, link, mode):
    filter_received(link[1], "udp length > 900 numgen random mod 100 < 20 counter drop")
    pub = ("-dataLen", 1000, "-numIter", 20000)
    publisher, subscriber = across(perftest, mode, pub=pub, link=link, time=20)
    assert accounted(publisher, subscriber) and subscriber["lost"] > 0


@pytest.mark.parametrize("mode", MODES)
def test_multicast(perftest, link, mode):
    route_multicast(link)
    pub = ("-dataLen", 1000)
    publisher, subscriber = across(perftest, mode, "-multicast", pub=pub, link=link, peers=False)
    assert accounted(publisher, subscriber)


@pytest.mark.skipif(shutil.which("strace") is None, reason="requires strace")
@pytest.mark.parametrize(
    ("mode", "sends", "receives"),
    [("single", "sendmsg", 1), ("mmsg", "sendmmsg", 32), ("gso", "sendmsg", 32)],
)
def test_system_calls(perftest, tmp_path, mode, sends, receives):
    both = ("-bestEffort", "-middleware", "raw", "-rawMode", mode, "-nic", "lo", "-peer", "127.0.0.1")
    both += ("-domain", perftest.domain)
    pub = ("-numIter", 3000, "-warmUp", 0, "-executionTime", 20)
    traces = {role: tmp_path / role[1:] for role in ("-sub", "-pub")}
    commands = [
        [*TRACE, "-o", trace, tool("k8sdds-perftest"), role, *both, *(pub if role == "-pub" else ())]
        for role, trace in traces.items()
    ]
    processes = [subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL) for command in commands]
    assert [process.wait(TIMEOUT_S) for process in processes] == [0, 0]
    sent, received = traces["-pub"].read_text(), traces["-sub"].read_text()
    calls = [line.split(maxsplit=1)[-1] for line in sent.splitlines()]
    data = [call for call in calls if call.startswith(f"{sends}(")]
    assert data
    # Several samples per call, or one.
    assert len(data) < 1500 if mode in COLLECTING else len(data) >= 3000
    assert (mode == "gso") == any("UDP_SEGMENT" in call or "SOL_UDP, 0x67" in call for call in calls)
    assert re.search(rf"recvmmsg\(.*, {receives}, ", received)


def test_a_kernel_without_gso_is_refused(perftest, tmp_path):
    """A preloaded function rejects the socket option, as older kernels do."""
    source = (
        "#include <errno.h>\n#include <sys/socket.h>\n"
        "int setsockopt(int fd, int level, int name, const void *value, socklen_t length) {\n"
        '  int (*real)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");\n'
        "  if (level == 17 && name == 103) { errno = ENOPROTOOPT; return -1; }\n"
        "  return real(fd, level, name, value, length);\n}\n"
    )
    publisher = perftest.pub("-rawMode", "gso", middleware="raw", env=preload(tmp_path, source))
    assert publisher.end() == 2
    assert "-rawMode gso: this kernel does not have UDP GSO" in publisher.err and "use mmsg" in publisher.err
