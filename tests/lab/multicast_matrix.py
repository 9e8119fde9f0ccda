"""Measure which lab networks carry multicast, to whom and at what cost.

`python -m tests.lab.multicast_matrix` (as root) writes the table in docs/reference/networks.md; a test measures again
and compares. Networks that this machine cannot build keep their row.

Node 0 has a publisher, node 1 a subscriber that joins the group, and node 2 a subscriber that does not. All counts are
those of the kernel's interface counters for PACKETS packets.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from k8sdds.networks import NETWORKS, find
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.testbed import Lab
from k8sdds.testbeds.lab.topology import SWITCH
from tests.lab.conftest import cell, enter, missing_feature, output_of
from tests.lab.multicast import GROUP

PAGE = Path(__file__).parents[2] / "docs/reference/networks.md"
BEGIN, END = "<!-- measured: multicast -->\n\n", "\n<!-- end of measured text -->"
PACKETS = 100
ARRIVAL_S = 2
"""How long packets may be on their way; they take microseconds, unless a busy machine stops a daemon that encrypts them."""
QUERY_CENTISECONDS = 100
"""Maximum response time of the switch's IGMP queries; the kernel's own value is 1000."""

MEMBER = f"""
import select, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
s.bind(("", 7777))
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton("{GROUP}") + socket.inet_aton(sys.argv[1]))
print("ready", flush=True)
received = 0
while True:
    ready, _, _ = select.select([s, sys.stdin], [], [])
    if s in ready:
        received += len(s.recv(2048)) == 1000
    elif not sys.stdin.readline():
        break
    else:
        print(received, flush=True)
        received = 0
"""
SENDER = f"""
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 32)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
for _ in range({PACKETS}):
    s.sendto(bytes(1000), ("{GROUP}", 7777))
    time.sleep(0.001)
"""
REPORTS = r"""
import re, select, socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((sys.argv[1], 0))
print("ready", flush=True)
found = False
# An IGMPv3 report is an IPv4 packet with the option Router Alert; it may be inside of another packet.
report = re.compile(rb"\x94\x04\x00\x00\x22\x00")
while sys.stdin not in (ready := select.select([s, sys.stdin], [], [])[0]):
    data, source = s.recvfrom(2048)
    found = found or (source[2] == socket.PACKET_OUTGOING and bool(report.search(data)))
print(found, flush=True)
"""


@dataclass(frozen=True)
class Delivery:
    """Where the packets of one publisher arrived, in copies of each packet."""

    member: int
    """At the socket of the subscriber that has joined."""
    uplink: int
    """That left the publisher's node."""
    other_node: int
    """That arrived at the node without a member."""
    other_pod: int
    """That arrived at the interface of the pod that has not joined."""


@dataclass(frozen=True)
class Row:
    """What was measured on one network."""

    network: str
    flooding: Delivery
    """With a switch that floods multicast."""
    snooping: Delivery
    """With a switch that sends IGMP queries and forwards multicast to members only."""
    reports_leave: bool
    """Whether the member's IGMP reports were seen on the link of its node."""

    def cells(self) -> tuple[str, ...]:
        if not self.flooding.member:
            return f"`{self.network}`", "no", *(["–"] * 4), _yes(self.reports_leave)
        hidden = "encrypted" if find(self.network).encryption else _yes(self.reports_leave)
        return (
            f"`{self.network}`",
            "yes",
            str(self.flooding.uplink),
            _yes(self.flooding.other_node),
            _yes(self.flooding.other_pod),
            _yes(self.snooping.other_node),
            hidden,
        )


HEADER = (
    "network", "carried between nodes", "copies on the sender's uplink", "reaches a node without members",
    "reaches a pod that has not joined", "reaches a node without members if the switch uses IGMP",
    "IGMP reports leave the node",
)  # fmt: skip


def _yes(value: object) -> str:
    return "yes" if value else "no"


class _Probe:
    """The processes and counters of one lab network."""

    def __init__(self, lab_network: LabNetwork) -> None:
        self._lab = lab_network
        self._attachments = lab_network.plan.datapath.attachments
        self._reports = self._start("node1", REPORTS, "eth0")
        self._member = self._start("sub0", MEMBER, self._attachments["sub0"].address)

    def _start(self, place: str, program: str, argument: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*enter(self._lab, place), sys.executable, "-c", program, argument],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def _counters(self) -> tuple[int, int, int]:
        def of_node(node: str, name: str) -> int:
            path = f"/run/sys/{node}/class/net/eth0/statistics/{name}"
            return int(self._lab.sandbox.path(path).read_text())

        devices = output_of(self._lab, "sub1", "cat", "/proc/net/dev")
        interface = self._attachments["sub1"].interface
        match = re.search(rf"^\s*{interface}:\s*\d+\s+(\d+)", devices, re.MULTILINE)
        assert match
        return of_node("node0", "tx_packets"), of_node("node2", "rx_packets"), int(match[1])

    def begin(self) -> None:
        self._before = self._counters()
        self._sender = subprocess.Popen(
            [*enter(self._lab, "pub0"), sys.executable, "-c", SENDER, self._attachments["pub0"].address]
        )

    def await_sent(self) -> None:
        assert self._sender.wait(timeout=30) == 0

    def arrived(self) -> Delivery:
        counted = (after - before for before, after in zip(self._before, self._counters(), strict=True))
        assert self._member.stdin and self._member.stdout
        self._member.stdin.write("\n")
        self._member.stdin.flush()
        received = int(self._member.stdout.readline())
        return Delivery(*(round(count / PACKETS) for count in (received, *counted)))

    def set_snooping(self, on: bool) -> None:
        """Make the switch send IGMP queries and forward multicast to members only, or flood it."""
        # The response time first: the switch floods for so long after it has become the querier.
        for options in (
            f"mcast_query_response_interval {QUERY_CENTISECONDS}",
            f"mcast_snooping {int(on)} mcast_querier {int(on)}",
        ):
            argv = ["ip", "link", "set", "br0", "type", "bridge", *options.split()]
            self._lab.sandbox.run(argv, netns=SWITCH)

    def close(self) -> bool:
        """End the processes; return whether IGMP reports of the member left its node."""
        assert self._member.stdin and self._reports.stdin
        self._member.communicate(timeout=30)
        return self._reports.communicate("\n", timeout=30)[0] == "True\n"


def measure(lab_networks: Iterable[LabNetwork]) -> list[Row]:
    """Measure all lab networks at the same time; each must have a publisher and two subscribers on three nodes."""
    probes = {lab_network.plan.cell.network: _Probe(lab_network) for lab_network in lab_networks}

    def deliveries() -> dict[str, Delivery]:
        for probe in probes.values():
            probe.begin()
        for probe in probes.values():
            probe.await_sent()
        time.sleep(ARRIVAL_S)
        return {name: probe.arrived() for name, probe in probes.items()}

    flooding = deliveries()
    try:
        for probe in probes.values():
            probe.set_snooping(True)
        # Members answer the first query within its response time; until then the switch floods.
        time.sleep(2.5 * QUERY_CENTISECONDS / 100)
        snooping = deliveries()
    finally:
        for probe in probes.values():
            probe.set_snooping(False)
    return [Row(name, flooding[name], snooping[name], probe.close()) for name, probe in probes.items()]


def table(rows: Sequence[Row], page: str) -> str:
    """Return the table; the rows of networks that were not measured are those of the page, if it has them."""
    measured = {row.network: row.cells() for row in rows}
    lines = [HEADER, ("---",) * len(HEADER)]
    text = ["| " + " | ".join(line) + " |" for line in lines]
    for network in NETWORKS:
        if network in measured:
            text.append("| " + " | ".join(measured[network]) + " |")
        else:
            old = re.search(rf"^\| `{network}` .*$", page.partition(BEGIN)[2].partition(END)[0], re.MULTILINE)
            text.append(old[0] if old else f"| `{network}` |" + " not measured |" * (len(HEADER) - 1))
    return "\n".join(text) + "\n"


def main() -> None:
    with Lab(f"multicast-{os.getpid()}") as lab:
        lab.up(cell(name) for name in NETWORKS if not missing_feature(name))
        rows = measure(lab.networks.values())
    page = PAGE.read_text()
    head, begin, rest = page.partition(BEGIN)
    assert begin, f"{PAGE} has no {BEGIN.strip()}"
    PAGE.write_text(head + BEGIN + table(rows, page) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
