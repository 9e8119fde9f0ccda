"""Test k8sdds-link with real packets between network namespaces. No verdict depends on how fast the machine is."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from link_tools import (
    LINK,
    PROTOCOL,
    REPOSITORY,
    TIMEOUT_S,
    Values,
    Wire,
    config,
    decide,
    evenly,
    frame,
    is_root,
    is_silent,
    number_of,
    received,
)

from k8sdds.model.impairments import Delay, Direction
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import native_program
from k8sdds.testbeds.lab import netem
from k8sdds.testbeds.lab.emulator import ALL_LINKS, LinkEmulator
from tests.commands import open_for_all
from tests.conftest import NOBODY

pytestmark = pytest.mark.skipif(not is_root(), reason="opens sockets in other namespaces")

FRAME = 60
STATES = "'off', a loss in percent, or 'rate' and Mbit/s are required"
AUXDATA, CHECKSUM_NOT_READY, VLAN_VALID = 8, 1 << 3, 1 << 4
"""PACKET_AUXDATA and two bits of its status."""


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    wire = Wire(tmp_path)
    yield wire
    wire.close()


def send(sender: socket.socket, numbers: range, size: int = FRAME) -> None:
    for number in numbers:
        sender.send(frame(number, size))


def begin(wire: Wire, values: Values | None = None) -> tuple[socket.socket, socket.socket]:
    """Start the program and its decisions; return sockets at both ends of the link."""
    wire.start(values or config())
    sockets = wire.raw("a"), wire.raw("b")
    wire.ask("start")
    return sockets


def program(wire: Wire) -> int:
    """Return the process of k8sdds-link, which is a child of the one that entered the namespace."""
    pid = wire.process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text() or pid)


def planned(folder: Path, values: Values, count: int, direction: str = "up") -> list[int]:
    """Return the numbers of the frames that pass, twice if they are duplicated, by the decisions without sockets."""
    fates, _ = decide(folder, values, evenly(count, size=FRAME, kind="other"), direction)
    return [number for number, fate in enumerate(fates) if isinstance(fate, list) for _ in fate]


def balance(counted: Values) -> int:
    """Return how many packets more arrived and were made than left, were dropped, or are on their way."""
    gone = sum(number for reason, number in counted["dropped"].items() if reason != "missed")
    return (
        counted["packets_in"] + counted["duplicated"] - counted["packets_out"] - gone - counted["in_flight"]
    )


def test_the_same_packets_as_without_sockets(wire: Wire, tmp_path: Path) -> None:
    values = config(
        {"loss": {"p_percent": 5, "r_percent": 30}, "duplicate_percent": 5, "delay": {"mean_us": 1000}},
        {"loss": {"percent": 20}},
    )
    wire.start(values)
    a, b = wire.raw("a"), wire.raw("b")
    for _ in range(2):  # `start` begins the decisions again
        wire.ask("start")
        for sender, receiver, direction in ((a, b, "up"), (b, a, "down")):
            expected = planned(tmp_path, values, 2000, direction)
            send(sender, range(2000))
            assert received(receiver, len(expected)) == expected and is_silent(receiver)
        statistics = json.loads(wire.ask("stop"))["links"][LINK]
        for direction in ("up", "down"):
            counted = statistics[direction]
            expected = planned(tmp_path, values, 2000, direction)
            assert counted["packets_in"] == 2000 and counted["bytes_in"] == 2000 * FRAME
            assert counted["packets_out"] == len(expected) and counted["bytes_out"] == FRAME * len(expected)
            assert counted["dropped"]["loss"] == 2000 - len(set(expected)) > 0
            assert counted["duplicated"] == len(expected) - len(set(expected))
            assert balance(counted) == counted["in_flight"] == 0
            series = counted["series"]
            assert sum(series["packets_in"]) == 2000 and sum(series["lost"]) == counted["dropped"]["loss"]
            assert sum(series["bytes_out"]) == counted["bytes_out"]


def test_delays_reorder_and_are_never_too_short(wire: Wire) -> None:
    values = [20_000, 1000, 1000, 5000]
    a, b = begin(wire, config({"delay": {"values_us": values}}))
    send(a, range(4000))
    numbers = received(b, 4000)
    assert sorted(numbers) == list(range(4000)) and numbers != sorted(numbers)
    counted = wire.stop()
    delay, error = counted["delay_us"], counted["error_us"]
    assert delay["count"] == error["count"] == sum(count for _, count in delay["buckets"]) == 4000
    # None leaves early: at most 2000 packets may take less than 5 ms, 1000 more less than 20 ms.
    below = [sum(count for us, count in delay["buckets"] if us < limit) for limit in (1000, 5000, 20_000)]
    assert below[0] == 0 and below[1] <= 2000 and below[2] <= 3000
    assert delay["mean"] == pytest.approx(sum(values) / 4 + error["mean"], abs=0.01)
    assert counted["reordered"] > 0 and balance(counted) == 0


@pytest.mark.parametrize("name", [LINK, "*"])
def test_outages_by_command(wire: Wire, name: str) -> None:
    wire.start(config())
    a, b = wire.raw("a"), wire.raw("b")
    before_us = time.monotonic_ns() // 1000
    times = [int(wire.ask("start")), int(wire.ask(f"outage {name} 100"))]
    send(a, range(5))
    send(b, range(5))
    assert is_silent(a) and is_silent(b)
    times.append(int(wire.ask(f"outage {name} off")))
    moments = [before_us, *times, time.monotonic_ns() // 1000]
    assert moments == sorted(moments)
    send(a, range(5, 10))
    assert received(b, 5) == list(range(5, 10))
    statistics = json.loads(wire.ask("stop"))
    assert statistics["started_us"] == times[0]
    for direction in ("up", "down"):
        counted = statistics["links"][LINK][direction]
        assert counted["dropped"]["outage"] == sum(counted["series"]["outage"]) == 5
    wire.ask(f"outage {name} 100")
    wire.ask("start")  # ends it
    send(a, range(3))
    assert received(b, 3) == list(range(3))


def test_packets_belong_to_the_state_in_which_they_arrived(wire: Wire) -> None:
    """A machine that is busy stops the program for a while."""
    a, b = begin(wire)
    for state, passes in (("100", True), ("off", False)):
        os.kill(program(wire), signal.SIGSTOP)
        send(a, range(1500))
        wire.write(f"outage {LINK} {state}")
        os.kill(program(wire), signal.SIGCONT)
        wire.answer()
        assert (received(b, 1500) == list(range(1500))) if passes else is_silent(b)
    counted = wire.stop()
    assert counted["dropped"]["outage"] == counted["packets_out"] == 1500 and balance(counted) == 0


def test_outages_at_a_time_do_not_depend_on_when_the_program_runs(wire: Wire) -> None:
    a, b = begin(wire)
    asked_us = time.monotonic_ns() // 1000 + 200_000
    failed_us = int(wire.ask(f"outage {LINK} 100 at {asked_us}"))
    repaired_us = int(wire.ask(f"outage {LINK} off at {asked_us + 200_000}"))
    assert failed_us >= asked_us and repaired_us - failed_us == 200_000
    os.kill(program(wire), signal.SIGSTOP)
    sent: list[tuple[float, float]] = []
    while time.monotonic() < repaired_us / 1e6 + 0.1:
        before = time.monotonic()
        send(a, range(len(sent), len(sent) + 1))
        sent.append((before, time.monotonic()))
        time.sleep(0.001)
    os.kill(program(wire), signal.SIGCONT)
    arrived = set(received(b, wire.stop()["packets_out"]))
    failed, repaired = failed_us / 1e6, repaired_us / 1e6
    # A packet at the border belongs to either side.
    for number, (before, after) in enumerate(sent):
        if after < failed - 0.01 or before > repaired + 0.01:
            assert number in arrived
        if failed + 0.01 < before and after < repaired - 0.01:
            assert number not in arrived


def test_states_whose_time_has_passed_delay_those_that_follow(wire: Wire) -> None:
    wire.start(config())
    a, b = wire.raw("a"), wire.raw("b")
    started_us = int(wire.ask("start"))
    failed_us = int(wire.ask(f"outage {LINK} 100 at 1"))
    assert failed_us >= started_us
    assert int(wire.ask(f"outage {LINK} off at 60000001")) == failed_us + 60_000_000
    send(a, range(5))
    assert is_silent(b)
    wire.ask(f"outage {LINK} off")  # cancels what was to follow
    send(a, range(5))
    assert received(b, 5) == list(range(5))


def test_a_full_queue_is_counted(wire: Wire) -> None:
    a, b = begin(wire, config({"rate": {"mbit": 2}, "queue": {"packets": 10}}))
    send(a, range(300), size=1500)
    first = received(b, 5)
    counted = wire.stop()
    rest = received(b, counted["packets_out"] + counted["in_flight"] - 5)
    assert first + rest == sorted({*first, *rest}) and is_silent(b)
    assert counted["packets_in"] == 300 and balance(counted) == 0
    assert counted["dropped"]["queue"] == 300 - len(first + rest) > 0
    # What is late makes the rate smaller, and nothing makes it larger.
    assert 0 < counted["rate"]["mbit"] <= 2.001 and counted["rate"]["bytes"] == counted["bytes_out"]


def test_more_packets_than_it_has_memory_for_are_counted(wire: Wire) -> None:
    a, _ = begin(wire, config({"delay": {"mean_us": 60_000_000}}, packets=50))
    send(a, range(60))
    counted = wire.stop()
    assert counted["dropped"]["overflow"] == 10 and counted["in_flight"] == 50 and balance(counted) == 0


def test_packets_that_it_missed_are_counted(wire: Wire) -> None:
    a, b = begin(wire)
    os.kill(program(wire), signal.SIGSTOP)
    send(a, range(5000))
    os.kill(program(wire), signal.SIGCONT)
    counted = wire.stop()
    assert counted["dropped"]["missed"] > 0
    assert counted["packets_in"] + counted["dropped"]["missed"] == 5000
    assert received(b, counted["packets_in"]) == list(range(counted["packets_in"])) and is_silent(b)


def transfer(wire: Wire, count: int) -> tuple[bytes, bytes]:
    """Send random bytes from `a` to `b` by TCP; return them, and what arrived."""
    server = wire.within("b", lambda: socket.create_server(("10.9.0.2", 7000)))
    client = wire.within("a", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    server.settimeout(TIMEOUT_S)
    client.settimeout(TIMEOUT_S)
    data, arrived = random.Random(1).randbytes(count), bytearray()

    def receive() -> None:
        connection, _ = server.accept()
        while part := connection.recv(1 << 16):
            arrived.extend(part)

    thread = threading.Thread(target=receive)
    thread.start()
    client.connect(("10.9.0.2", 7000))
    client.sendall(data)
    client.close()
    thread.join(TIMEOUT_S)
    server.close()
    return data, bytes(arrived)


def captured(capture: socket.socket) -> tuple[bytes, int, int]:
    """Return the next packet that a socket has captured, its status and its VLAN tag."""
    packet, [(level, kind, data)], _, _ = capture.recvmsg(1 << 17, 256)
    assert (level, kind) == (263, AUXDATA)
    return packet, int.from_bytes(data[:4], sys.byteorder), int.from_bytes(data[16:18], sys.byteorder)


def statuses(capture: socket.socket) -> Iterator[int]:
    """Yield the status of all packets that a socket has captured."""
    capture.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            yield captured(capture)[1]


def test_tcp_with_partial_checksums(wire: Wire) -> None:
    wire.start(config({"delay": {"mean_us": 500}}, {"delay": {"mean_us": 500}}))
    capture = wire.raw("b", 0x0800)
    capture.setsockopt(263, AUXDATA, 1)
    wire.ask("start")
    sent, arrived = transfer(wire, 1 << 20)
    assert hashlib.sha256(sent).digest() == hashlib.sha256(arrived).digest()
    # The kernel has left the checksums to the next device, and the receiver has taken the packets as valid.
    assert sum(bool(status & CHECKSUM_NOT_READY) for status in statuses(capture)) > 700
    counted = wire.stop()
    assert counted["oversized"] == 0 and counted["bytes_in"] > 1 << 20


def test_only_udp_is_lost(wire: Wire) -> None:
    wire.start(config({"loss": {"pattern": "1", "udp_only": True}}))
    wire.ask("start")
    sender = wire.within("a", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    for number in range(10):
        sender.sendto(
            bytes(3000 if number < 2 else 10), ("10.9.0.2", 7)
        )  # the first two have three fragments each
    sent, arrived = transfer(wire, 1 << 16)
    assert sent == arrived
    counted = wire.stop()
    assert counted["dropped"]["loss"] == counted["loss_decisions"] == 8 + 2 * 3


def test_packets_larger_than_the_mtu_pass_and_are_counted(tmp_path: Path) -> None:
    wire = Wire(tmp_path, offloads=True)
    try:
        wire.start(config())
        wire.ask("start")
        sent, arrived = transfer(wire, 4 << 20)
        assert sent == arrived
        counted = wire.stop()
        assert 0 < counted["oversized"] <= counted["packets_in"] < (4 << 20) / 1448
        assert counted["dropped"]["overflow"] == 0 and balance(counted) == 0
    finally:
        wire.close()


def test_the_kernel_splits_large_packets_before_they_are_lost_or_delayed(tmp_path: Path) -> None:
    """A slow queue takes the place of netem, because most of what it gets waits in it and can be counted."""
    wire = Wire(tmp_path, offloads=True)
    try:
        split, impaired = netem.queues("eth0", Direction(delay=Delay(mean_us=1)), 1500)
        slow = f"{impaired.partition('netem')[0]}tbf rate 8kbit burst 70000 limit 1000000"
        wire.sandbox.run(["tc", "-batch", "-"], f"{split}\n{slow}\n", netns="a")
        wire.start(config())
        server = wire.within("b", lambda: socket.create_server(("10.9.0.2", 7000)))
        client = wire.within("a", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
        client.connect(("10.9.0.2", 7000))
        sender = wire.within("a", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sender.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT
        for _ in range(4):
            sender.sendto(bytes(40_000), ("10.9.0.2", 7))
        of_udp = waiting(wire)
        assert of_udp[0] >= 80 and of_udp[1] / of_udp[0] == 1042
        client.setblocking(False)
        assert client.send(bytes(100_000)) > 10 * 1448
        count, size = (after - before for after, before in zip(waiting(wire), of_udp, strict=True))
        # On a busy machine, TCP gives the kernel as few as two segments at once.
        assert count >= 2 and size / count <= 1514
        for each in (server, client, sender):
            each.close()
    finally:
        wire.close()


def waiting(wire: Wire) -> tuple[int, int]:
    """Return how many packets wait in the queue of `a`, and their bytes."""
    shown = wire.sandbox.run(["tc", "-s", "-j", "qdisc", "show", "dev", "eth0"], netns="a")
    [queue] = [each for each in json.loads(shown) if each["handle"] == "1:"]
    return queue["qlen"], queue["backlog"]


def test_a_vlan_tag_passes(wire: Wire) -> None:
    wire.start(config())
    a, b = wire.raw("a"), wire.raw("b", 3)  # ETH_P_ALL: before the kernel removes the tag
    b.setsockopt(263, AUXDATA, 1)
    tagged = frame(1)[:12] + b"\x81\0" + b"\x20\x2a" + PROTOCOL.to_bytes(2, "big") + frame(1)[14:]
    a.send(tagged)
    data, status, tag = captured(b)
    assert number_of(data) == 1 and status & VLAN_VALID and tag == 0x202A


def test_an_interface_that_is_down_and_one_that_is_deleted(wire: Wire) -> None:
    a, b = begin(wire)
    wire.sandbox.run(["ip", "-n", "switch", "link", "set", "far", "down"])
    send(a, range(5))
    counted = wire.stop()
    assert counted["dropped"]["unsent"] == 5 and balance(counted) == 0
    wire.sandbox.run(["ip", "-n", "switch", "link", "set", "far", "up"])
    send(a, range(5))
    assert received(b, 5) == list(range(5))
    wire.sandbox.run(["ip", "-n", "switch", "link", "del", "far"])
    assert wire.process is not None and wire.process.wait(TIMEOUT_S) == 4
    assert wire.end() == (4, "k8sdds-link: far: the interface was deleted\n")


@pytest.mark.parametrize(
    ("text", "code", "error"),
    [
        ("", 0, ""),
        ("start\n", 0, ""),
        ("go\n", 2, 'standard input: "go" is not start, stop, or outage NAME STATE [at TIME]'),
        ("outage node0\n", 2, f"outage: {STATES}"),
        ("outage node0 101\n", 2, f"outage: {STATES}"),
        ("outage node0 off at 0\n", 2, "outage: after 'at', microseconds of CLOCK_MONOTONIC are required"),
        ("outage node0 rate 0\n", 2, f"outage: {STATES}"),
        ("outage node9 100\n", 2, 'standard input: outage: no link has the name "node9"'),
        ("x" * 10_000, 2, "standard input: a line is longer than 4096 bytes"),
    ],
)
def test_standard_input(wire: Wire, text: str, code: int, error: str) -> None:
    wire.start(config())
    assert wire.end(input=text) == (code, f"k8sdds-link: {error}\n" if error else "")


def test_an_emulator_leaves_nothing_open(wire: Wire) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(
        PrerequisiteError, match=r'did not start: k8sdds-link: .*"mangle": is not a known key'
    ):
        LinkEmulator(wire.sandbox, "switch", config({"mangle": 1}, cpu=-1))
    assert len(os.listdir("/proc/self/fd")) == before
    emulator = LinkEmulator(wire.sandbox, "switch", config(cpu=-1))
    emulator.start()
    assert emulator.interrupt(ALL_LINKS, "100") >= emulator.started_us > 0
    assert [each["state"] for each in emulator.stop()["outages"]] == ["100"]
    os.kill(emulator.pid, signal.SIGSTOP)
    emulator.close(0.1)  # does not wait for a program that does not end
    wire.sandbox.close()
    # The thread that reads its messages ends when the program does.
    for thread in threading.enumerate():
        if thread.name.endswith("k8sdds-link"):
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()
    assert len(os.listdir("/proc/self/fd")) < before


def refused(path: Path, document: Any) -> str:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    done = subprocess.run(
        [native_program("k8sdds-link"), path], capture_output=True, text=True, input="", timeout=30
    )
    assert done.returncode == 2 and done.stdout == ""
    [line] = done.stderr.splitlines()
    return line.removeprefix(f"k8sdds-link: {path}: ")


@pytest.mark.parametrize(
    ("up", "error"),
    [
        ({"delay": {"mean_us": -1}}, "up.delay.mean_us: must be from 0 to 120000000"),
        ({"delay": {"mean_us": "1"}}, "up.delay.mean_us: must be a number"),
        ({"delay": {"distribution": "gamma"}}, "up.delay.distribution: must be normal, uniform or pareto"),
        (
            {"delay": {"mean_us": 1, "values_us": [1]}},
            "up.delay.values_us: excludes mean_us, jitter_us and correlation_percent",
        ),
        (
            {"delay": {"reorder_percent": 1}},
            "up.delay.reorder_percent: needs a delay: packets that are sent at once overtake delayed ones",
        ),
        ({"loss": {"percent": 101}}, "up.loss.percent: must be from 0 to 100"),
        (
            {"loss": {"p_percent": 1, "r_percent": 0}},
            "up.loss.r_percent: must be above 0: the bad state would never end",
        ),
        ({"loss": {"pattern": "012"}}, "up.loss.pattern: must consist of 0 (passes) and 1 (lost)"),
        ({"rate": {"trace_ms": [3, 2]}}, "up.rate.trace_ms[1]: is before the item in front of it"),
        (
            {"rate": {"trace_ms": [0]}},
            "up.rate.trace_ms: must end after 0 ms: the trace is repeated with the length of its last item",
        ),
        ({"queue": {"ms": 5}}, "up.queue.ms: needs a rate"),
        ({"queue": {"discipline": "red"}}, "up.queue.discipline: must be drop-tail or codel"),
        ({"mangle": 1}, 'up."mangle": is not a known key'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_key_is_named(tmp_path: Path, up: Values, error: str) -> None:
    assert refused(tmp_path / "config.json", config(up)) == f"links[0].{error}"


def test_other_wrong_configurations(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    assert refused(path, "{") == "is not a JSON document"
    assert refused(path, "[]") == "the document: must be an object"
    assert refused(path, {}) == "links: at least one link is required"
    twice = config()
    twice["links"] *= 2
    assert refused(path, twice) == "links[1].name: is the name of another link"
    path.write_text(json.dumps(config()))
    done = subprocess.run([native_program("k8sdds-link"), path], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (2, "k8sdds-link: near: No such device\n")


def test_an_ordinary_user(tmp_path: Path) -> None:
    open_for_all(tmp_path)
    argv = [sys.executable, Path(__file__).with_name("ordinary_user.py"), tmp_path]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, env=env, user=NOBODY, group=NOBODY, extra_groups=[]
    )
    assert done.returncode == 0, done.stderr
    counted = json.loads(done.stdout)
    assert counted["packets_in"] == 200 and counted["dropped"]["loss"] == 100
    assert counted["packets_out"] + counted["in_flight"] == 100
