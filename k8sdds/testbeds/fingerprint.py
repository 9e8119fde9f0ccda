"""Observe what a network does with packets between two pods on different nodes: its fingerprint.

Known datagrams are sent from one pod to another, and what leaves the sender's node is captured. Nothing is taken from
the network's documentation, so that the fingerprint is the same for known and unknown networks. It is taken once per
network and campaign, before anything is measured. The testbed provides the places where the commands run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from k8sdds.networks import packets
from k8sdds.networks.packets import Wrapping
from k8sdds.results.fingerprint import PACKET_BYTES, Fingerprint
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds import packet_handling, probing
from k8sdds.testbeds.packet_handling import PROGRAMS, RULES, PacketHandling
from k8sdds.testbeds.probing import Place

GROUP, GROUP_IPV6 = "239.255.77.2", "ff15::77:2"
PACKETS = 64
"""Known packets of one connection, and connections of one packet: enough to stand out from other traffic."""
CAPTURED_PACKETS = 20_000
MULTICAST_PACKETS = 3
MULTICAST_TIMEOUT_S = 0.5
ANSWER_TIMEOUT_S = 2.0

_WIRE = ("outer_protocol", "added_bytes", "cleartext")
_ON_NODE = ("uplink", *_WIRE, "conntrack", RULES, "rules_matched", PROGRAMS)


@dataclass(frozen=True)
class Probed:
    """The two pods between which packets are observed."""

    sender: Place
    sender_address: str
    sender_interface: str
    mtu_bytes: int
    """MTU of the sender's interface."""
    receiver: Place
    receiver_address: str
    receiver_interface: str
    peer: str
    """Address of the receiver's node."""
    node: Place | None
    """The sender's node; None if it cannot be observed."""
    node_unavailable: str = ""
    """Why not."""
    slack_s: float = 0
    """How long a packet takes at most, if the link delays packets."""
    loses_packets: bool = False
    """Whether the link drops packets on purpose, so that a missing answer shows nothing."""

    @property
    def group(self) -> str:
        """The multicast group of the observation."""
        return GROUP_IPV6 if ":" in self.receiver_address else GROUP


def observe(probed: Probed) -> Fingerprint:
    """Take the fingerprint of the network between two pods. Raises PrerequisiteError if they exchange no datagrams."""
    found, token = Fingerprint(), probing.new_token()
    listen = ("--group", probed.group, "--interface", probed.receiver_interface)
    with probing.answering(probed.receiver, token, *listen):
        _observe_pods(found, probed, token)
        if probed.node is None:
            found.not_observed |= dict.fromkeys(_ON_NODE, probed.node_unavailable)
        else:
            with _noting(found, _ON_NODE):
                _observe_node(found, probed, probed.node, token)
    return found


def _observe_pods(found: Fingerprint, probed: Probed, token: str) -> None:
    search = (
        ["--count", str(PACKETS)] if probed.loses_packets else ["--whole", "--bytes", str(probed.mtu_bytes)]
    )
    answers = _ask(probed, token, *search)
    if not answers.answered:
        raise PrerequisiteError(
            f"{probed.receiver_address} does not answer {probed.sender_address}: {answers.last_error or 'timeout'}"
        )
    found.path_mtu_bytes = answers.path_mtu_bytes
    found.masqueraded = any(address != probed.sender_address for address in answers.seen_as)
    group = ("--count", str(MULTICAST_PACKETS), "--interface", probed.sender_interface)
    timeout_s = MULTICAST_TIMEOUT_S + 2 * probed.slack_s
    found.multicast = probing.ask(probed.sender, probed.group, token, timeout_s, *group).answered > 0
    if probed.loses_packets:
        # A missing answer shows nothing.
        found.multicast = found.multicast or None
        unclear = [name for name in ("path_mtu_bytes", "multicast") if getattr(found, name) is None]
        found.not_observed |= dict.fromkeys(unclear, "the link loses packets")


def _observe_node(found: Fingerprint, probed: Probed, node: Place, token: str) -> None:
    """Observe what the sender's node does with the packets of one connection, and with those of many."""
    before = packet_handling_of(node, probed.peer)
    if not before.uplink:
        raise PrerequisiteError(f"the sender's node has no route to {probed.peer}")
    found.uplink, found.not_observed = before.uplink, {**found.not_observed, **before.unreadable}
    with _noting(found, _WIRE):
        # Only packets that leave are captured, so that those of the answers are missing.
        argv = [node.supervisor, "capture", "--interface", before.uplink, "--count", str(CAPTURED_PACKETS)]
        with node.running([*argv, "--deadline", str(probing.DEADLINE_S)]) as stop:
            _ask(probed, token, "--count", str(PACKETS), "--bytes", str(PACKET_BYTES))
            captured = packets.read_pcap(stop())
        _set_wrapping(found, packets.wrapping(captured, token.encode(), PACKET_BYTES, PACKETS))
    if "outer_protocol" in found.not_observed:
        # Without the right to capture, the packets for the rules were not sent.
        _ask(probed, token, "--count", str(PACKETS), "--bytes", str(PACKET_BYTES))
    between = packet_handling_of(node, probed.peer)
    _ask(probed, token, "--count", str(PACKETS), "--flows", str(PACKETS))
    after = packet_handling_of(node, probed.peer)
    found.rules = None if between.rules is None else len(between.rules)
    found.rules_matched = packet_handling.matched_rules(before, between, PACKETS)
    if found.rules_matched is None:
        found.not_observed["rules_matched"] = found.not_observed.get(
            RULES, "the rules were readable only once"
        )
    found.conntrack = after.connections - between.connections >= PACKETS // 2
    found.programs = None if after.programs is None else list(after.programs)


def _set_wrapping(found: Fingerprint, wrapping: Wrapping | None) -> None:
    if wrapping is None:
        raise PrerequisiteError(f"the known packets did not leave by {found.uplink}")
    found.outer_protocol, found.outer_port = wrapping.protocol, wrapping.port
    found.added_bytes, found.cleartext = wrapping.added_bytes, wrapping.cleartext


@contextmanager
def _noting(found: Fingerprint, names: Sequence[str]) -> Iterator[None]:
    """Note why something could not be observed, if the `with` block fails."""
    try:
        yield
    except (PrerequisiteError, ValueError) as error:
        reason = error.message if isinstance(error, PrerequisiteError) else str(error)
        found.not_observed |= {name: reason for name in names if getattr(found, name) is None}


def packet_handling_of(node: Place, peer: str) -> PacketHandling:
    """Return what a node does with packets for the address of another one."""
    return packet_handling.parse(node.run([*packet_handling.COMMAND, peer]).decode(errors="replace"))


def _ask(probed: Probed, token: str, *options: str) -> probing.Report:
    timeout_s = ANSWER_TIMEOUT_S + 2 * probed.slack_s
    return probing.ask(probed.sender, probed.receiver_address, token, timeout_s, *options)
