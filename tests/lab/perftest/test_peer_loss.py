"""Test the loss of a peer at every step: the other processes exit with the right code and do not hang."""

import signal

import pytest
from fake_peer import ABORT, ALIVE, BYE, END, PUBLISHER, READY, REPORT, START, SUBSCRIBER, FakePeer
from perftest_tools import SLOWNESS, end_all


def timeouts(code: int) -> tuple[object, ...]:
    """Return a short timeout for the loss that ends a run with a code, and a long one for the other."""
    discovery_s = 1 * SLOWNESS if code == 3 else 30
    # Longer than a busy machine keeps a process from running.
    peer_s = max(3, 0.5 * SLOWNESS) if code == 4 else 30
    return ("-discoveryTimeout", discovery_s, "-peerTimeout", peer_s)


LATENCY = ("-latencyTest",)


@pytest.mark.parametrize(
    ("steps", "code", "test"),
    [
        (set(), 3, ()),  # before READY
        ({ALIVE}, 3, ()),
        ({READY}, 4, ()),  # after READY: START is not answered
        ({READY, ALIVE}, 4, ()),
        ({READY, START}, 4, ()),  # silent after the start of the warm-up
        ({READY, START}, 4, LATENCY),
        ({READY, START, ALIVE}, 4, ()),  # alive, but never reports
        ({READY, START, ALIVE}, 4, LATENCY),
        ({READY, START, ALIVE, REPORT}, 0, ()),  # lost after its report
        ({READY, START, ALIVE, REPORT}, 0, LATENCY),
        ({READY, START, ALIVE, REPORT, BYE}, 0, ()),
        ({READY, START, REPORT, BYE}, 0, ()),
    ],
)
def test_subscriber_stops_answering(perftest, steps, code, test):
    # An unanswered ping takes 0.2 s. With one in the warm-up too, a peer that only reports would be silent for most of
    # the timeout.
    warm_up = 0 if test else 0.05
    with FakePeer(perftest.domain, SUBSCRIBER, steps):
        publisher = perftest.pub(*timeouts(code), *test, middleware="raw", time=0.2, warm_up=warm_up)
        ended = publisher.end()
    if test and code == 0:
        code = 5  # the fake peer never answers a ping
    assert ended == code, publisher.err
    exit_ = publisher.k8sdds["exit"]
    assert exit_["code"] == code
    if code == 4:
        assert "peer lost" in exit_["reason"]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        (set(), 3),  # before START
        ({ALIVE}, 3),
        ({START}, 4),  # silent after START
        ({START, ALIVE, ABORT}, 4),  # aborts
        ({START, END}, 4),  # silent after END
    ],
)
def test_publisher_stops_answering(perftest, steps, code):
    with FakePeer(perftest.domain, PUBLISHER, steps) as peer:
        subscriber = perftest.sub(*timeouts(code), middleware="raw")
        if code == 4 and ABORT not in steps:
            assert peer.started.wait(60)
            peer.steps = set()  # stops announcing
        ended = subscriber.end()
    assert ended == code, subscriber.err
    assert subscriber.k8sdds["exit"]["code"] == code


@pytest.mark.parametrize("length", [-1, 5, 1 << 40])
def test_a_subscriber_ignores_a_length_that_no_sample_has(perftest, length):
    with FakePeer(perftest.domain, PUBLISHER, {ALIVE, START}, length=length):
        subscriber = perftest.sub("-discoveryTimeout", 5 * SLOWNESS, middleware="raw")
        assert subscriber.end() == 3, subscriber.err
    assert "messages of another run" in subscriber.k8sdds["exit"]["reason"]
    assert subscriber.k8sdds["foreign_messages"] > 0


def test_a_publisher_waits_until_all_publishers_have_started(perftest):
    with FakePeer(perftest.domain, PUBLISHER, {ALIVE}):  # never starts
        subscriber = perftest.sub("-numPublishers", 2, middleware="raw")
        publisher = perftest.pub("-pidMultiPubTest", 1, *timeouts(4), middleware="raw")
        end_all(publisher, subscriber, codes=(4, 4))
    assert "no answer to START" in publisher.k8sdds["exit"]["reason"]
    assert publisher.k8sdds["sent"] == 0


KILLERS = pytest.mark.parametrize("killer", [signal.SIGKILL, signal.SIGSTOP])
PROCESSES = pytest.mark.parametrize("victim", [0, 1], ids=["publisher", "subscriber"])
SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
MIDDLEWARES = pytest.mark.parametrize("middleware", ["cyclonedds", "raw", "zenoh"])


@PROCESSES
@pytest.mark.parametrize(
    ("middleware", "killer", "test"),
    [
        ("cyclonedds", signal.SIGKILL, ()),
        ("cyclonedds", signal.SIGSTOP, LATENCY),
        ("raw", signal.SIGKILL, LATENCY),
        ("raw", signal.SIGSTOP, ()),
        # Connections of TCP end with a killed process.
        ("zenoh", signal.SIGKILL, ()),
        ("zenoh", signal.SIGKILL, LATENCY),
        ("zenoh", signal.SIGSTOP, ()),
    ],
)
def test_peer_dies_in_the_measured_interval(perftest, middleware, killer, victim, test):
    processes = perftest.begin(*timeouts(4), pub=test, middleware=middleware, time=30)
    processes[1].wait_for_phase("M")
    processes[victim].signal(killer)
    survivor = processes[1 - victim]
    assert survivor.end() == 4, survivor.err
    assert survivor.k8sdds["exit"]["reason"].startswith("peer lost")
    if victim == 0:
        assert survivor.k8sdds["received"] > 0


@KILLERS
@PROCESSES
def test_peer_dies_in_the_warm_up(perftest, killer, victim):
    processes = perftest.begin(*timeouts(4), time=30, warm_up=20)
    while "started" not in (line := processes[0].popen.stderr.readline()):
        assert line
    processes[victim].signal(killer)
    assert processes[1 - victim].end() == 4, processes[1 - victim].err


@pytest.mark.parametrize(
    ("middleware", "number", "code"),
    [
        ("cyclonedds", signal.SIGINT, 130),
        ("raw", signal.SIGINT, 130),
        ("raw", signal.SIGTERM, 143),
        ("zenoh", signal.SIGTERM, 143),
    ],
)
@PROCESSES
def test_signal_prints_the_summary_so_far(perftest, middleware, number, code, victim):
    processes = perftest.begin(middleware=middleware, time=30)
    processes[1].wait_for_phase("M")
    ended, other = processes[victim], processes[1 - victim]
    ended.signal(number)
    assert ended.end() == code, ended.err
    assert ended.k8sdds["exit"]["code"] == code
    if victim == 1:
        assert ended.k8sdds["received"] > 0
    else:
        assert ended.k8sdds["sent"] is not None
    assert other.end() == 4, other.err


@SIGNALS
@pytest.mark.parametrize("role", ["-pub", "-sub"])
def test_signal_while_waiting_for_peers(perftest, number, code, role):
    process = perftest.start(role, "-verbosity", 2)
    assert "socket receive buffer" in process.popen.stderr.readline()
    process.signal(number)
    assert process.end() == code
    assert process.k8sdds["exit"]["code"] == code


@pytest.mark.parametrize("role", ["-pub", "-sub"])
@MIDDLEWARES
def test_no_peer(perftest, role, middleware):
    process = perftest.start(role, "-discoveryTimeout", 0.3, middleware=middleware)
    assert process.end() == 3
    assert "-discoveryTimeout" in process.k8sdds["exit"]["reason"]


def test_one_of_two_subscribers(perftest):
    subscriber = perftest.sub("-discoveryTimeout", 8 * SLOWNESS)
    publisher = perftest.pub("-numSubscribers", 2, "-discoveryTimeout", 5 * SLOWNESS)
    assert publisher.end() == 3
    assert "1 of 2" in publisher.k8sdds["exit"]["reason"]
    assert subscriber.end() in (3, 4)


def test_two_subscribers_with_one_id(perftest):
    publisher = perftest.pub("-numSubscribers", 2, time=20)
    subscribers = [perftest.sub() for _ in range(2)]
    assert publisher.end() == 2 and "-sidMultiSubTest" in publisher.err
    assert {process.end() for process in subscribers} <= {2, 4}


def test_two_publishers_with_one_id(perftest):
    subscriber = perftest.sub("-numPublishers", 2)
    publishers = [perftest.pub(time=20) for _ in range(2)]
    assert subscriber.end() == 2 and "-pidMultiPubTest" in subscriber.err
    assert {process.end() for process in publishers} <= {2, 4}


def test_subscriber_id_out_of_range(perftest):
    subscriber = perftest.sub("-sidMultiSubTest", 3, "-discoveryTimeout", 5)
    publisher = perftest.pub()
    assert publisher.end() == 2 and "-numSubscribers" in publisher.err
    assert subscriber.end() in (2, 3, 4)
