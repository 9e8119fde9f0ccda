"""Test how the members of a fleet find each other, in several processes that each have several participants."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from perftest_tools import A, B, end_all, packet_socket, rtps_messages, sh

from k8sdds.system.paths import native_program
from tests.sampling import sampled

MIDDLEWARES = ("cyclonedds", "fastdds", "zenoh")
SAMPLED = sampled([(name,) for name in MIDDLEWARES], every_run=1)
REST = ("-steady", 1)
"""The last second is not the discovery."""
INFO_DESTINATION, INFO_SOURCE, ACKNACK, BUILTIN = 0x0E, 0x0C, 0x06, 0xC0
"""Numbers of RTPS: kinds of submessages, and the bits of an entity ID that endpoints of user data do not have."""
ROUTER_PORT = 7447
CYCLONEDDS_LEASE = """<CycloneDDS><Domain>
<Discovery><LeaseDuration>3 s</LeaseDuration></Discovery>
</Domain></CycloneDDS>"""


def started(perftest, link, *both, middleware="cyclonedds", seconds=15, peers=True):
    """Start publishing and subscribing members; return both programs."""
    both = ("-discoveryTest", seconds, *both)
    both += ("-transport", "TCPv4") if middleware == "zenoh" else ()
    places = [{"nic": "eth0", "netns": netns, "middleware": middleware} for netns in link]
    publisher = perftest.start("-pub", *both, *(("-peer", "10.99.0.2") if peers else ()), **places[0])
    subscriber = perftest.start("-sub", *both, *(("-peer", "10.99.0.1") if peers else ()), **places[1])
    return publisher, subscriber


def ended(*programs):
    """Return what the processes of each program report at their end."""
    end_all(*programs)
    return [program.k8sdds["fleet"]["processes"] for program in programs]


def fleet(perftest, link, *both, **settings):
    """Return what the processes of publishing and of subscribing members report."""
    return ended(*started(perftest, link, *both, **settings))


def pairs(processes, kind="found"):
    """Return how many pairs there are, and how many have matched."""
    return sum(one[kind]["pairs"] for one in processes), sum(one[kind]["matched"] for one in processes)


def wait_until(done, *programs, message):
    """Poll until this is done, while all programs run."""
    while not done():
        assert all(program.poll() is None for program in programs), message
        time.sleep(0.1)


def acknowledged(messages):
    """Yield the participants of each reader of user data that acknowledges, and of the writer."""
    for source, submessages in messages:
        destination = b""
        for one in submessages:
            if one[0] == INFO_SOURCE:
                source = one[12:24]
            elif one[0] == INFO_DESTINATION:
                destination = one[4:16]
            elif one[0] == ACKNACK and not one[7] & BUILTIN:
                yield source, destination


def wait_until_matched(packets, pairs, programs):
    """Poll the packets of the link until subscribing members have acknowledged to publishing ones in all pairs."""
    found = set()

    def done():
        found.update(acknowledged(rtps_messages(packets)))
        return len(found) >= pairs

    popens = [program.popen for program in programs]
    wait_until(done, *popens, message=f"{pairs} pairs have not matched")
    time.sleep(1)  # A reader acknowledges when it has matched, which its writer does some milliseconds later.


@pytest.mark.parametrize("middleware", MIDDLEWARES)
def test_all_members_find_each_other_on_all_topics(perftest, link, middleware):
    both = ("-processes", 2, "-members", 3, "-topics", 2, *REST)
    for processes in fleet(perftest, link, *both, middleware=middleware):
        assert [one["first"] for one in processes] == [0, 3]
        assert pairs(processes) == (36, 36)
        for one in processes:
            assert one["missing"] == {} and one["failures"] == []
            assert 0 < one["found"]["first_ns"] <= one["found"]["last_ns"] < 15e9
            assert one["changed"]["pairs"] == 0


@pytest.mark.parametrize("middleware", SAMPLED)
def test_restarted_members_are_found_again(perftest, link, middleware):
    """Their successors have the same numbers, and the others still know the endpoints that were killed."""
    both = ("-processes", 2, "-members", 2, "-change", "restart:2:2:6", *REST)
    publishing, subscribing = fleet(perftest, link, *both, middleware=middleware, seconds=16)
    assert [(one["first"], one["killed"]) for one in publishing] == [(0, False), (2, True), (2, False)]
    assert pairs(publishing) == pairs(subscribing) == (16, 16)
    assert pairs(publishing, "changed") == pairs(subscribing, "changed") == (8, 8)


@pytest.mark.parametrize("middleware", SAMPLED)
def test_the_members_of_several_programs_find_each_other(perftest, link, middleware):
    """Two programs of each role share an address, by their numbers."""
    both = ["-discoveryTest", 15, "-processes", 2, "-members", 2, *REST]
    both += ["-transport", "TCPv4"] if middleware == "zenoh" else []
    place = {"nic": "eth0", "middleware": middleware}
    processes = []
    for number in range(2):
        pub = ("-pidMultiPubTest", number, "-numSubscribers", 2, "-peer", "10.99.0.2", "-peer", "10.99.0.2")
        sub = ("-sidMultiSubTest", number, "-numPublishers", 2, "-peer", "10.99.0.1", "-peer", "10.99.0.1")
        processes.append(perftest.start("-pub", *both, *pub, netns=link[0], **place))
        processes.append(perftest.start("-sub", *both, *sub, netns=link[1], **place))
    end_all(*processes)
    for process in processes:
        assert pairs(process.k8sdds["fleet"]["processes"]) == (32, 32)


@pytest.mark.parametrize("middleware", sampled([("cyclonedds",), ("fastdds",)], every_run=1))
def test_fleets_find_each_other_by_multicast(perftest, link, middleware):
    both = ("-processes", 2, "-members", 3, "-discovery", "multicast", *REST)
    for processes in fleet(perftest, link, *both, middleware=middleware, peers=False):
        assert pairs(processes) == (36, 36)


@pytest.mark.parametrize(
    ("middleware", "lease_s", "seconds"),
    [
        ("cyclonedds", 3, 18),
        # This lease has no option.
        pytest.param("fastdds", 20, 45, marks=pytest.mark.long),
    ],
)
def test_members_match_again_when_their_link_returns(perftest, link, tmp_path, middleware, lease_s, seconds):
    both = ("-processes", 2, "-members", 2, *REST)
    if middleware == "cyclonedds":
        config = tmp_path / "config.xml"
        config.write_text(CYCLONEDDS_LEASE)
        both += ("-middlewareConfig", config)
    with packet_socket(link[0]) as packets:
        programs = started(perftest, link, *both, middleware=middleware, seconds=seconds)
        wait_until_matched(packets, 16, programs)
    sh(f"ip -n {link[1]} link set eth0 down")
    time.sleep(lease_s + 4)
    sh(f"ip -n {link[1]} link set eth0 up")
    for reports in ended(*programs):
        assert pairs(reports) == (16, 16)
        assert pairs(reports, "broken") == (16, 16), "the cut outlasted the lease, and all matched again"
        # A participant is forgotten at most one lease after the cut.
        assert all(3e9 < one["broken"]["first_ns"] <= one["broken"]["last_ns"] for one in reports)


def test_a_process_that_ends_without_a_report_fails_the_test(perftest):
    publisher = perftest.start("-pub", "-discoveryTest", 4, "-processes", 2, *REST)
    publisher.wait_for_phase("M")
    children = Path(f"/proc/{publisher.popen.pid}/task/{publisher.popen.pid}/children")
    while len(pids := children.read_text().split()) < 2:
        time.sleep(0.01)
    os.kill(int(pids[1]), signal.SIGKILL)
    assert publisher.end() == 6
    assert publisher.k8sdds["exit"]["reason"].endswith("from 1 on was ended by signal 9 without a report")


def test_a_late_member_counts_from_its_start(perftest, link):
    both = ("-processes", 1, "-members", 3, "-change", "late:2:1:5", *REST)
    for processes in fleet(perftest, link, *both):
        assert pairs(processes) == (6, 6) and pairs(processes, "changed") == (3, 3)
        assert processes[0]["changed"]["first_ns"] < 10e9
    assert processes[0]["created_ns"] < 5e9, "subscribing members start at once"


def test_members_that_never_appear_are_named(perftest, link):
    """Cyclone DDS has no more participants at an address than indexes."""
    both = ("-processes", 6, "-members", 1, "-indexLimit", 3, *REST)
    publishing, subscribing = fleet(perftest, link, *both, seconds=8)
    failed = {one["first"] for one in publishing if one["failures"]}
    assert failed, "there are more processes than indexes"
    for one in subscribing:
        if one["created"]:
            (missed,) = one["missing"].values()
            assert {number for first, last in missed for number in range(first, last + 1)} == failed
    for one in publishing:
        assert all("participant" in failure["error"] for failure in one["failures"])


def test_a_higher_index_limit_admits_more_processes(perftest, link):
    created = []
    for limit in (2, 4, 8):
        both = ("-processes", 6, "-members", 1, "-indexLimit", limit, *REST)
        publishing, _ = fleet(perftest, link, *both, seconds=6)
        created.append(sum(one["created"] for one in publishing))
    assert created[0] < created[1] < created[2] == 6


def sockets(link, *selected):
    """Return what ss lists of the sockets on the first node, a line for each one."""
    argv = ["ip", "netns", "exec", link[0], "ss", "-Hn", *selected]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()


@contextmanager
def serving(link, middleware, number=0):
    """Run the discovery server of this number, or a router, on the first node; yield when it listens."""
    program = {
        "fastdds": ["fast-discovery-server", "-i", str(number), "-l", A, "-p", str(11811 + number)],
        "zenoh": [native_program("zenohd"), "--listen", f"tcp/{A}:{ROUTER_PORT}", "--no-multicast-scouting"],
    }[middleware]
    port = {"fastdds": 11811 + number, "zenoh": ROUTER_PORT}[middleware]
    server = subprocess.Popen(
        ["ip", "netns", "exec", link[0], *program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        listening = ("-tul", f"sport = :{port}")
        wait_until(lambda: sockets(link, *listening), server, message="the server has ended")
        yield
    finally:
        server.kill()
        server.wait(60)


@pytest.mark.parametrize("middleware", sampled([("fastdds",), ("zenoh",)], every_run=1))
def test_members_find_each_other_by_a_server(perftest, link, middleware):
    with serving(link, middleware):
        both = ("-discovery", "server", "-discoveryServer", A, "-processes", 2, "-members", 2, *REST)
        for processes in fleet(perftest, link, *both, middleware=middleware, peers=False):
            assert pairs(processes) == (16, 16) and pairs(processes, "broken") == (0, 0)


@pytest.mark.long
def test_super_clients_get_more_than_they_match(perftest, link):
    both = ("-discovery", "server", "-discoveryServer", A, "-processes", 1, "-members", 8, *REST)
    received = {}
    for kind in ((), ("-superClient",)):
        with serving(link, "fastdds"):
            programs = started(perftest, link, *both, *kind, middleware="fastdds", seconds=15, peers=False)
            every = ended(*programs)
        assert all(pairs(reports) == (64, 64) for reports in every)
        received[kind] = programs[1].k8sdds["fleet"]["traffic"]["received_bytes"]
    assert received["-superClient",] > received[()], "from the server, about the members of their own role"


@pytest.mark.long
def test_one_of_two_servers_is_enough(perftest, link):
    both = ("-discovery", "server", "-discoveryServer", A, "-discoveryServer", f"{A}:11812")
    both += ("-processes", 2, "-members", 2, "-change", "late:3:1:14", *REST)
    with serving(link, "fastdds", 1):
        with serving(link, "fastdds"), packet_socket(link[0]) as packets:
            programs = started(perftest, link, *both, middleware="fastdds", seconds=30, peers=False)
            wait_until_matched(packets, 12, programs)
        every = ended(*programs)
    for reports in every:
        assert pairs(reports) == (12, 12) and pairs(reports, "changed") == (4, 4)
        assert pairs(reports, "broken") == (0, 0)


def test_members_that_lost_their_router_find_each_other_again(perftest, link):
    both = ("-discovery", "server", "-discoveryServer", A, "-processes", 2, "-members", 2, *REST)
    both += ("-change", "late:3:1:14")
    with serving(link, "zenoh"):
        programs = started(perftest, link, *both, middleware="zenoh", seconds=30, peers=False)
        popens = [program.popen for program in programs]
        to_router = ("-t", "state", "established", f"sport = :{ROUTER_PORT}")
        wait_until(lambda: len(sockets(link, *to_router)) >= 7, *popens, message="not all have connected")
        time.sleep(3)  # The router forwards what members declare some milliseconds after they have connected.
    with serving(link, "zenoh"):
        every = ended(*programs)
    for reports in every:
        assert pairs(reports) == (12, 12) and pairs(reports, "changed") == (4, 4)
        assert pairs(reports, "broken") == (12, 12), "each match was by the router"
        assert all(0 < one["broken"]["last_ns"] < 20e9 for one in reports)


def connections(link):
    """Return how many connections the first node has to the second one."""
    listed = sockets(link, "-t", "state", "established", "dst", B)
    return sum(f"{A}:{ROUTER_PORT}" not in line for line in listed)


@pytest.mark.long
def test_peers_that_a_router_introduced_do_not_need_it(perftest, link):
    both = ("-discovery", "server", "-discoveryServer", A, "-processes", 2, "-members", 2, *REST)
    with serving(link, "zenoh"):
        programs = started(perftest, link, *both, "-gossip", middleware="zenoh", seconds=30, peers=False)
        popens = [program.popen for program in programs]
        wait_until(lambda: connections(link) >= 16, *popens, message="not all connected to each other")
    for reports in ended(*programs):
        assert pairs(reports) == (16, 16) and pairs(reports, "broken") == (0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-members", 2), "-members: has an effect only with -discoveryTest"),
        (("-discoveryTest", 3, "-steady", 3), "-steady: is a part of -discoveryTest"),
        (("-discoveryTest", 3, "-members", 1000, "-processes", 2), "a role has at most 1000, not 2000"),
        (("-discoveryTest", 3, "-members", 4, "-change", "restart:2:4:1"), "have 4 -members each"),
        (("-discoveryTest", 3, "-change", "late:0:1:nan"), "is not late:FIRST:COUNT:S"),
        (("-discoveryTest", 3, "-change", "late:0:1:4"), "with a time before -steady begins"),
        (("-discoveryTest", 3, "-pacedTest"), "-pacedTest: has no effect in a discovery test"),
        (("-discoveryTest", 3, "-dscp", 46), "-dscp: has no effect in a discovery test"),
        (("-discoveryTest", 9, "-steady", 5, "-change", "late:0:1:6"), "with a time before -steady begins"),
        (("-discoveryTest", 9, "-startInterval", 1, "-change", "restart:4:1:3"), "these members start later"),
        (("-discoveryTest", 3, "-members", 9, "-numSubscribers", 200), "a role has at most 1000, not 1800"),
        (
            ("-discoveryTest", 3, "-members", 101, "-middleware", "zenoh", "-transport", "TCPv4"),
            "has a port for 100",
        ),
        (("-discoveryTest", 3, "-gossip"), "add -middleware zenoh and -discovery server"),
        (("-discoveryTest", 3, "-superClient"), "add -middleware fastdds and -discovery server"),
        (("-discoveryTest", 3, "-middleware", "raw"), "raw does not have it"),
    ],
)
def test_wrong_options_are_refused(perftest, options, message):
    done = perftest.run("-pub", "-check", "-outputFormat", "json", "-nic", "lo", *options)
    assert done.returncode == 2 and message in done.stderr, done.stderr
