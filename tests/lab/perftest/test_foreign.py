"""Test that messages and samples of other programs on the network neither end a run nor count in it."""

import contextlib
import time

import pytest
from fake_peer import ABORT, HELLO, LAYOUT, PUBLISHER, READY, SAMPLE, START, SUBSCRIBER, VERSION, Announcer
from perftest_tools import SLOWNESS, TIMEOUT_S, BackendTool, end_all

NONCE = "0123456789abcdef"
OTHER = "fedcba9876543210"
RUN = {"K8SDDS_NONCE": NONCE}


@pytest.fixture
def spoofer(perftest):
    spoofers = []

    def create(role: int, nonce: int = 0, version: int = VERSION) -> Announcer:
        """Return a program that does not know the nonce of the run, or another version of the protocol."""
        spoofers.append(Announcer(perftest.domain, role, nonce, version))
        return spoofers[-1]

    yield create
    for created in spoofers:
        created.close()


def hello(spoofer: Announcer) -> None:
    port = spoofer.socket.getsockname()[1]
    spoofer.send(HELLO, port, port)


def _port_for_samples(listener: Announcer) -> int:
    listener.socket.settimeout(0.1)
    own = listener.socket.getsockname()[1]
    for _ in range(100):  # until the subscriber has opened its socket
        listener.send(HELLO, own, own, 1)
        try:
            message = LAYOUT.unpack(listener.socket.recv(2000))
        except TimeoutError:
            continue
        if message[1] == HELLO:
            return int(message[9])
    raise AssertionError("the subscriber did not answer")


def _wait_until_started(listener: Announcer, run: int) -> None:
    """Wait for the READY by which the subscriber answers START."""
    listener.socket.settimeout(TIMEOUT_S)
    kind = started = 0
    while (kind, started) != (READY, run):
        _, kind, _, _, _, _, _, started, *_ = LAYOUT.unpack(listener.socket.recv(2000))


@pytest.mark.parametrize("nonce", [0, int(OTHER, 16)])
def test_spoofed_messages_do_not_end_a_run(perftest, spoofer, nonce):
    subscriber = perftest.sub("-verbosity", 2, middleware="raw", env=RUN)
    assert "socket receive buffer" in subscriber.popen.stderr.readline()  # it has opened its sockets
    as_publisher, as_subscriber = spoofer(PUBLISHER, nonce), spoofer(SUBSCRIBER, nonce)
    for _ in range(50):  # before the true publisher exists
        hello(as_publisher)
        as_publisher.send(START, 0, 0, 0, 1 << 31, run=5)
        as_publisher.send(START, 0, 0, 0, 1 << 20, run=5)
        as_publisher.send(ABORT, 2, to=0)
        time.sleep(0.005)
    publisher = perftest.pub("-pubRate", "1000:sleep", middleware="raw", env=RUN, time=3)
    subscriber.wait_for_phase("M")
    for _ in range(50):
        as_publisher.send(START, 0, 0, 0, 100, run=6)
        as_publisher.send(ABORT, 2, to=0)
        as_subscriber.send(READY)
        as_subscriber.send(ABORT, 2)
        time.sleep(0.002)
    end_all(publisher, subscriber)
    assert subscriber.k8sdds["received"] > 0
    assert subscriber.k8sdds["foreign_messages"] >= 200
    assert publisher.k8sdds["foreign_messages"] > 0
    assert "messages that no peer of this run sent" in subscriber.err


def test_announcements_of_another_version_are_ignored(perftest, spoofer):
    subscriber = perftest.sub("-verbosity", 2, middleware="raw", env=RUN)
    assert "socket receive buffer" in subscriber.popen.stderr.readline()  # it has opened its sockets
    newer = spoofer(PUBLISHER, int(NONCE, 16), version=VERSION + 1)
    for _ in range(20):
        hello(newer)
        newer.send(START, 0, 0, 0, 1 << 20, run=5)
        time.sleep(0.005)
    publisher = perftest.pub(middleware="raw", env=RUN)
    end_all(publisher, subscriber)
    assert subscriber.k8sdds["foreign_messages"] >= 20


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
def test_announcements_of_another_version_are_ignored_with_dds(perftest, middleware):
    subscriber = perftest.sub(middleware=middleware, env=RUN)
    with contextlib.closing(BackendTool(perftest.domain, "-pub", middleware, env=RUN)) as newer:
        for _ in range(20):
            assert newer.request("announce", VERSION + 1)
            time.sleep(0.005)
        # The writer of the announcements keeps the last ones for a subscriber that finds it late.
        publisher = perftest.pub(middleware=middleware, env=RUN)
        end_all(publisher, subscriber)
    assert subscriber.k8sdds["foreign_messages"] > 0


def test_an_abort_without_the_number_of_the_process_is_ignored(perftest, spoofer):
    # Without a nonce, as in manual runs.
    subscriber = perftest.sub(middleware="raw")
    as_publisher = spoofer(PUBLISHER)
    for _ in range(20):
        as_publisher.send(ABORT, 2, to=0)
        time.sleep(0.01)
    publisher = perftest.pub(middleware="raw")
    end_all(publisher, subscriber)


def test_samples_that_were_not_announced_do_not_count(perftest, spoofer):
    """Samples of run 0 before START, of another run, and of another length are ignored and counted."""
    subscriber = perftest.sub(middleware="raw", env=RUN)
    listener = spoofer(PUBLISHER, int(NONCE, 16))
    port = _port_for_samples(listener)
    for sequence in range(10):
        listener.socket.sendto(SAMPLE.pack(0, sequence, 0, -1, 0, 1, 0, 72) + bytes(72), ("127.0.0.1", port))
    listener.send(START, 0, 0, 0, 100, 0, 0, 0, run=7)
    _wait_until_started(listener, run=7)
    for sequence in range(10):
        listener.socket.sendto(SAMPLE.pack(8, sequence, 0, -1, 0, 1, 0, 72) + bytes(72), ("127.0.0.1", port))
        listener.socket.sendto(SAMPLE.pack(7, sequence, 0, -1, 0, 1, 0, 5) + bytes(5), ("127.0.0.1", port))
    listener.socket.sendto(SAMPLE.pack(7, 0, 0, -1, 0, 1, 0, 72) + bytes(72), ("127.0.0.1", port))
    subscriber.wait_for_phase("M")
    subscriber.signal(15)
    assert subscriber.end() == 143, subscriber.err
    assert subscriber.k8sdds["received"] == 1
    assert subscriber.k8sdds["foreign_samples"] == 30


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds"])
def test_samples_of_a_foreign_dds_writer_do_not_count(perftest, middleware):
    """A publisher of another run writes on the same topics, as one that the user forgot does."""
    other = {"K8SDDS_NONCE": OTHER}
    strangers = [
        perftest.pub("-pubRate", "1000:sleep", middleware=middleware, env=other, time=60),  # until the end
        perftest.sub(middleware=middleware, env=other),
    ]
    strangers[1].wait_for_phase("M")
    subscriber = perftest.sub(middleware=middleware, env=RUN)
    publisher = perftest.pub("-pubRate", "500:sleep", middleware=middleware, env=RUN, time=2 * SLOWNESS)
    end_all(publisher, subscriber)
    result = subscriber.k8sdds
    assert result["received"] == publisher.k8sdds["sent"] and result["lost"] == 0
    assert result["foreign_samples"] > 0 and result["foreign_messages"] > 0


def test_peers_with_different_nonces_report_why_they_do_not_meet(perftest):
    subscriber = perftest.sub("-discoveryTimeout", 5 * SLOWNESS, env=RUN)
    publisher = perftest.pub("-discoveryTimeout", 5 * SLOWNESS)
    end_all(publisher, subscriber, codes=(3, 3))
    assert "messages of another run (K8SDDS_NONCE)" in publisher.k8sdds["exit"]["reason"]


@pytest.mark.parametrize("nonce", ["5", "0123456789ABCDEF", "0123456789abcdeg"])
def test_a_wrong_nonce_is_an_error_of_usage(perftest, nonce):
    process = perftest.sub(env={"K8SDDS_NONCE": nonce})
    assert process.end() == 2
    assert "K8SDDS_NONCE" in process.err and nonce not in process.err
