"""Test that messages have the requested size: counts IP fragments in network namespaces."""

import re

import pytest
from perftest_tools import sh
from security_files import Files

MTU = 1400  # shorter than the libraries' messages and retransmits
HEADERS = 28  # of IP and UDP


def fragments_created(netns: str) -> int:
    names, values = re.findall(r"^Ip: (.*)$", sh(f"ip netns exec {netns} cat /proc/net/snmp"), re.MULTILINE)
    return int(dict(zip(names.split(), values.split(), strict=True))["FragCreates"])


def run(perftest, link, middleware, both, pub=(), security=None):
    """Return the publisher's transport and the number of IP fragments that both sides created."""
    for netns in link:
        sh(f"ip -n {netns} link set eth0 mtu {MTU}")
    secured = [security.options(role) if security else () for role in ("sub", "pub")]
    # Samples of a warm-up could fill the socket of a subscriber that a busy machine stops, so that no measured one arrives.
    publisher, subscriber = perftest.pair(
        *both, pub=(*pub, *secured[1]), sub=secured[0], link=link, middleware=middleware, warm_up=0
    )
    if middleware != "raw":
        assert subscriber.k8sdds["received"] == publisher.k8sdds["sent"] > 0
    return publisher.k8sdds["transport"], sum(map(fragments_created, link))


@pytest.fixture(scope="module")
def protected(tmp_path_factory):
    """Protect messages, submessages and payloads, with the longest protection of each."""
    strongest = "ENCRYPT_WITH_ORIGIN_AUTHENTICATION"
    folder = tmp_path_factory.mktemp("security")
    return Files(folder, rtps=strongest, metadata=strongest, data="ENCRYPT", discovery="ENCRYPT")


@pytest.mark.parametrize("length", [1300, 65536])
@pytest.mark.parametrize(
    ("middleware", "secure"), [("cyclonedds", False), ("cyclonedds", True), ("fastdds", False)]
)
def test_messages_that_fit_the_mtu_are_not_fragmented(perftest, link, protected, middleware, length, secure):
    both = ("-dataLen", length, "-messageSizeMax", "mtu")
    transport, created = run(perftest, link, middleware, both, security=protected if secure else None)
    assert transport["max_message_bytes"] == MTU - HEADERS
    assert created == 0


@pytest.mark.parametrize(
    ("more", "pub"),
    [
        # Two fragments without their headers, and a message of batched samples, are about as long as the MTU.
        (("-dataLen", 65536, "-fragmentSize", 680), ()),
        (("-dataLen", 65536, "-fragmentSize", "mtu"), ()),
        (("-dataLen", 100), ("-batchSize", 8192)),
    ],
)
def test_several_parts_of_a_message_fit_the_mtu(perftest, link, more, pub):
    transport, created = run(perftest, link, "cyclonedds", (*more, "-messageSizeMax", "mtu"), pub)
    assert created == 0
    if "-fragmentSize" in more:
        assert transport["fragment_bytes"] == (680 if 680 in more else MTU - HEADERS - 84)


def test_the_handshake_of_fastdds_fits_in_the_shortest_message(perftest, link, protected):
    both = ("-dataLen", 65536, "-messageSizeMax", 8192)
    transport, _ = run(perftest, link, "fastdds", both, security=protected)
    assert transport["max_message_bytes"] == 8192
    check = ("-pub", "-check", "-middleware", "fastdds", *protected.options("pub"))
    rejected = perftest.run(*check, "-messageSizeMax", 8191)
    assert rejected.returncode == 2 and "give at least 8192" in rejected.stderr


@pytest.mark.parametrize(
    ("middleware", "size", "expected"),
    [
        ("cyclonedds", "max", 65500), ("cyclonedds", "default", 14720), ("cyclonedds", 2000, 2000),
        ("fastdds", "max", 65500), ("fastdds", "default", 65500), ("fastdds", "auto", 14720),
        ("raw", "max", 65500), ("raw", "auto", 65507),
    ],
)  # fmt: skip
def test_larger_messages_are_fragmented(perftest, link, middleware, size, expected):
    both = ("-dataLen", 60000, "-messageSizeMax", size)
    transport, created = run(perftest, link, middleware, both)
    assert transport["max_message_bytes"] == expected
    assert created > 0


def test_short_samples_of_fastdds_in_the_longest_messages(perftest, link):
    # The send buffer for short samples is shorter than the longest message.
    transport, created = run(perftest, link, "fastdds", ("-dataLen", 100, "-messageSizeMax", "max"))
    assert (transport["max_message_bytes"], created) == (65500, 0)
