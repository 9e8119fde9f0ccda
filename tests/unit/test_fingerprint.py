"""Test how packets and states of nodes are read for the fingerprint of a network, on packets recorded in the lab."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from k8sdds.model.link import Link
from k8sdds.model.trial import Cell
from k8sdds.networks import packets
from k8sdds.networks.packets import Wrapping
from k8sdds.results.fingerprint import PACKET_BYTES, Fingerprint
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds import Block, fingerprint, packet_handling
from k8sdds.testbeds.fingerprint import Probed
from k8sdds.testbeds.lab.testbed import Lab
from k8sdds.testbeds.probing import Stop
from tests.unit.builders import cell, trial

RECORDED = Path(__file__).parent / "recorded/packets"
TOKEN = b"k8sdds-recorded"
SENT = 4
"""Each file contains the packets that left a node of the lab while four known datagrams were sent."""

VXLAN, VXLAN_OF_WEAVE = Wrapping("VXLAN", 8472, 50, True), Wrapping("VXLAN", 6784, 50, True)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ("flannel-vxlan", VXLAN),
        ("flannel-hostgw", Wrapping("none", None, 0, True)),
        ("flannel-ipsec", Wrapping("ESP in UDP", 4500, 64, False)),
        ("flannel-wireguard", Wrapping("WireGuard", 51820, 60, False)),
        ("weavenet", VXLAN_OF_WEAVE),
        ("weavenet-encrypt", Wrapping("ESP in UDP", 4500, 112, False)),
    ],
)
def test_recorded_packets_show_what_a_network_adds(network: str, expected: Wrapping) -> None:
    recorded = packets.read_pcap((RECORDED / f"{network}.pcap").read_bytes())
    assert packets.wrapping(recorded, TOKEN, PACKET_BYTES, SENT) == expected


def pod_packet(size_bytes: int = PACKET_BYTES) -> bytes:
    """Return an IP packet with a known datagram."""
    payload = TOKEN.ljust(size_bytes - 28, b".")
    return ip(17, struct.pack(">HHHH", 40000, 17900, len(payload) + 8, 0) + payload)


def ip(protocol: int, content: bytes) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(content), 1, 0, 64, protocol, 0)
    return head + bytes([10, 0, 0, 1, 10, 0, 0, 2]) + content


def udp(port: int, content: bytes) -> bytes:
    return ip(17, struct.pack(">HHHH", 50000, port, len(content) + 8, 0) + content)


def ethernet(content: bytes, kind: int = packets.IPV4) -> bytes:
    return bytes(12) + kind.to_bytes(2, "big") + content


def seen(*frames: bytes, sent: int = 1, link_type: int = packets.ETHERNET) -> Wrapping | None:
    parsed = [packets.parse_ip(frame, len(frame), link_type) for frame in frames]
    return packets.wrapping([packet for packet in parsed if packet], TOKEN, PACKET_BYTES, sent)


GENEVE = b"\x02\x00\x65\x58\x00\x00\x07\x00" + bytes(8)
"""Header with eight bytes of options, as OVN-Kubernetes sends it."""


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (ethernet(ip(4, pod_packet())), Wrapping("IP-in-IP", None, 20, True)),
        (ethernet(ip(47, bytes(4) + pod_packet())), Wrapping("GRE", None, 24, True)),
        (ethernet(udp(6081, GENEVE + ethernet(pod_packet()))), Wrapping("Geneve", 6081, 58, True)),
        (ethernet(udp(6783, b"sleeve" + pod_packet())), Wrapping("UDP", 6783, 34, True)),
        (ethernet(ip(50, bytes(8) + pod_packet())), Wrapping("ESP", None, 28, True)),
        (bytes(12) + b"\x81\x00\x00\x05\x08\x00" + pod_packet(), Wrapping("none", None, 0, True)),
    ],
)
def test_headers_of_other_networks(frame: bytes, expected: Wrapping) -> None:
    assert seen(frame) == expected
    # An uplink without Ethernet.
    assert seen(ip(4, pod_packet()), link_type=packets.RAW_IP) == Wrapping("IP-in-IP", None, 20, True)


def test_encrypted_packets_are_recognized_by_their_number_and_size() -> None:
    hidden = [ethernet(ip(50, bytes(1060)))] * 64
    other = [ethernet(ip(6, bytes(1400)))] * 90 + [ethernet(udp(53, bytes(40)))] * 64
    other += [ethernet(ip(6, bytes(1010)))] * 25
    assert seen(*hidden[:60], *other, sent=64) == Wrapping("ESP", None, 1080 - PACKET_BYTES, False)
    assert seen(*hidden[:15], *other[:-25], sent=64) is None
    # One readable packet shows that the network does not encrypt.
    assert seen(*hidden, ethernet(pod_packet()), sent=64) == Wrapping("none", None, 0, True)
    key_exchange = [ethernet(udp(4500, bytes(1200)))] * 64
    assert seen(*key_exchange, sent=64) is None


def test_an_incomplete_capture_ends_at_its_last_whole_packet() -> None:
    whole = (RECORDED / "flannel-vxlan.pcap").read_bytes()
    for end in range(packets.PCAP_HEADER.size, len(whole), 17):
        assert packets.wrapping(packets.read_pcap(whole[:end]), TOKEN, PACKET_BYTES, SENT) in (None, VXLAN)
    with pytest.raises(ValueError, match="no header"):
        list(packets.read_pcap(whole[:10]))
    with pytest.raises(ValueError, match="not a packet capture"):
        list(packets.read_pcap(b"x" * 100))


def rule(handle: int, packets_: int | None) -> dict[str, object]:
    counter = [] if packets_ is None else [{"counter": {"packets": packets_, "bytes": 0}}]
    return {
        "rule": {"family": "ip", "table": "filter", "chain": "FORWARD", "handle": handle, "expr": counter}
    }


def state_text(*rules: dict[str, object], **sections: str) -> str:
    texts = {
        "route": '[{"dst": "192.0.2.2", "dev": "eth0"}]',
        "links": "[]",
        "conntrack": "12",
        "nft": json.dumps({"nftables": [{"metainfo": {}}, *rules]}),
        "queues": "",
        **sections,
    }
    codes = {name: 1 if text.startswith("!") else 0 for name, text in texts.items()}
    return "".join(f"== {name} {codes[name]}\n{text.lstrip('!')}\n" for name, text in texts.items())


def state(*rules: dict[str, object], **sections: str) -> packet_handling.PacketHandling:
    return packet_handling.parse(state_text(*rules, **sections))


def test_rules_match_if_they_count_every_packet() -> None:
    before = state(rule(1, 10), rule(2, 10), rule(3, None))
    after = state(rule(1, 74), rule(2, 73), rule(3, None), rule(4, 64))
    assert packet_handling.matched_rules(before, after, 64) == 2
    assert after.rules is not None and len(after.rules) == 4
    assert (after.uplink, after.connections, after.unreadable) == ("eth0", 12, {})
    legacy = "*filter\n:FORWARD ACCEPT [9:9]\n[{}:0] -A FORWARD -j ACCEPT\nCOMMIT"
    before, after = (state(legacy=legacy.format(count)) for count in (1, 65))
    assert packet_handling.matched_rules(before, after, 64) == 1
    # What a user may not read is named.
    found = state(nft="!Operation not permitted (you must be root)", conntrack="!No such file or directory")
    assert (found.rules, found.connections) == (None, 0)
    assert found.unreadable == {"rules": "Operation not permitted (you must be root)"}
    assert packet_handling.matched_rules(found, found, 64) is None


def test_programs_of_xdp_and_tc_are_listed() -> None:
    xdp = json.dumps([{"ifname": "eth0", "xdp": {"mode": 1, "prog": {"id": 7, "name": "cil_xdp_entry"}}}])
    classifier = json.dumps([
        {"protocol": "all", "kind": "bpf", "chain": 0},
        {"protocol": "all", "kind": "bpf", "options": {"handle": "0x1", "bpf_name": "cil_from_netdev"}},
    ])  # fmt: skip
    found = state(links=xdp, **{"filter eth0 ingress": classifier, "filter eth0 egress": "[]"})
    assert found.programs == ("eth0 XDP: cil_xdp_entry", "eth0 tc ingress: cil_from_netdev")


class Place:
    """A pod or a node whose commands print given texts, by the option that distinguishes them; others fail."""

    supervisor = "supervisor"

    def __init__(self, **printed: bytes) -> None:
        self._printed = printed

    def run(self, argv: Sequence[str]) -> bytes:
        for name, output in self._printed.items():
            if f"--{name}" in argv or name == argv[0]:
                return output
        raise PrerequisiteError("Operation not permitted")

    @contextmanager
    def running(self, argv: Sequence[str]) -> Iterator[Stop]:
        output = self.run(argv)
        yield lambda: output


def report(**values: object) -> bytes:
    return json.dumps(
        {"sent": 1, "answered": 1, "seen_as": ["10.0.0.1"], "last_error": None, **values}
    ).encode()


def probed(node: Place | None, **changes: object) -> Probed:
    nothing = report(answered=0, seen_as=[])
    sender = Place(whole=report(path_mtu_bytes=1450), interface=nothing, flows=report(), count=report())
    pods = {"sender": sender, "receiver": Place(group=b""), "sender_address": "10.0.0.1", "mtu_bytes": 1450}
    names = {"sender_interface": "eth0", "receiver_interface": "eth0", "receiver_address": "10.0.0.2"}
    values = {**pods, **names, "peer": "192.0.2.2", "node": node, "node_unavailable": "no pod", **changes}
    return Probed(**values)  # type: ignore[arg-type]


def test_without_a_pod_on_the_node_only_what_pods_see_is_observed() -> None:
    found = fingerprint.observe(probed(None))
    assert (found.path_mtu_bytes, found.multicast, found.masqueraded) == (1450, False, False)
    assert (found.outer_protocol, found.rules, found.programs) == (None, None, None)
    assert found.not_observed["outer_protocol"] == found.not_observed["rules_matched"] == "no pod"
    missing = {name for name, value in found if value is None and name not in ("outer_port", "link")}
    assert missing == set(found.not_observed) >= {"rules", "rules_matched", "outer_protocol"}
    assert (found.outer, found.value("rules"), found.value("masqueraded")) == (
        "not observed",
        "not observed",
        "no",
    )
    seen = Fingerprint(outer_protocol="VXLAN", outer_port=8472, cleartext=True, programs=[])
    assert (seen.outer, seen.value("cleartext"), seen.value("programs")) == (
        "VXLAN, port 8472",
        "yes",
        "none",
    )


def test_without_the_right_to_capture_the_rest_of_the_node_is_observed() -> None:
    node = Place(sh=state_text(nft="!Operation not permitted", route='[{"dev": "ens3"}]').encode())
    found = fingerprint.observe(probed(node))
    assert (found.uplink, found.conntrack, found.programs) == ("ens3", False, [])
    assert found.not_observed == dict.fromkeys(
        ["rules", "rules_matched", "outer_protocol", "added_bytes", "cleartext"], "Operation not permitted"
    )


def test_a_link_that_loses_packets_does_not_show_what_is_missing() -> None:
    found = fingerprint.observe(probed(None, loses_packets=True))
    assert (found.path_mtu_bytes, found.multicast, found.masqueraded) == (None, None, False)
    assert found.not_observed["path_mtu_bytes"] == found.not_observed["multicast"] == "the link loses packets"


def test_pods_that_do_not_answer_have_no_fingerprint() -> None:
    silent = Place(whole=report(answered=0, path_mtu_bytes=None, last_error="No route to host"))
    with pytest.raises(PrerequisiteError, match="No route to host"):
        fingerprint.observe(probed(None, sender=silent))


def test_the_lab_observes_a_network_on_a_link_that_loses_nothing_if_there_is_one() -> None:
    lossy = cell(link=Link(loss_percent=1))
    plain = lossy.model_copy(update={"link": Link()})
    lab, observed = Lab("not built"), list[Cell]()
    lab.up, lab._observe = lambda _: None, observed.append  # type: ignore[method-assign]
    lab.prepare(Block(0, (trial(lossy), trial(plain))))
    assert observed == [plain, lossy]


RECORDED_LOSS = {"file": "/here/pattern", "sha256": "1" * 64}
IMPAIRED = {"loss": RECORDED_LOSS, "rate": {"mbit": 54}, "delay": {"mean_us": 2000}, "engine": "userspace"}


@pytest.mark.parametrize(
    "change",
    [
        {"loss": RECORDED_LOSS | {"sha256": "2" * 64}},
        {"delay": {"mean_us": 2001}},
        {"up": {"delay": {"mean_us": 2001}}},
        {"nodes": "publishers"},
        {"outages": [{"at_s": 1, "for_s": 1}]},
        {"loss": None},
    ],
)
def test_links_that_do_something_else_have_another_fingerprint(change: dict[str, Any]) -> None:
    own, other = Link(**IMPAIRED).fingerprint, Link(**IMPAIRED | change).fingerprint
    assert own and other and own != other and own.startswith("userspace ")


@pytest.mark.parametrize(
    "change",
    [
        {"name": "hall", "mtu": 9000},
        {"loss": RECORDED_LOSS | {"file": "/elsewhere"}},
        {"rate": None, "rate_mbit": 54},
        {"delay": None, "up": {"delay": {"mean_us": 2000}}, "down": {"delay": {"mean_us": 2000}}},
    ],
)
def test_links_that_do_the_same_have_the_same_fingerprint(change: dict[str, Any]) -> None:
    assert Link(**IMPAIRED).fingerprint == Link(**IMPAIRED | change).fingerprint


def test_the_engine_of_a_link_is_in_its_fingerprint() -> None:
    delay = {"delay": {"mean_us": 2000}}
    kernel, userspace, usual = (
        Link(**delay, engine=engine).fingerprint for engine in ("kernel", "userspace", "auto")
    )
    assert kernel and userspace and kernel.split()[1] == userspace.split()[1]
    assert (kernel.split()[0], userspace.split()[0]) == ("kernel", "userspace")
    assert usual == kernel, "short keys alone leave the engine open: the kernel has them"
    assert Link().fingerprint is None
    assert (Link(engine="userspace").fingerprint or "").startswith("userspace "), (
        "an outage test forwards all"
    )
