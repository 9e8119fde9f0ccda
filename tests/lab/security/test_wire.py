"""Verify what each level encrypts and signs on the wire, and that modified and replayed packets are rejected."""

from __future__ import annotations

import itertools
import json

import pytest

from k8sdds.model.security import Protection
from k8sdds.security import levels
from tests.lab.security.attacks import MIDDLEWARES, PATTERN, REPLAY, TWICE, WIRE, Field
from tests.sampling import sampled

SEC_PREFIX, SRTPS_PREFIX = "0x31", "0x33"
TRANSFORMATION = {("SIGN", 128): 1, ("ENCRYPT", 128): 2, ("SIGN", 256): 3, ("ENCRYPT", 256): 4}
"""Transformation kinds: AES-GMAC signs, AES-GCM encrypts (DDS Security 1.1, section 9.5.2.1)."""

PROTECTIONS = {name: levels.load(name) for name in levels.names()} | {
    "submessage SIGN": Protection(submessage="SIGN"),
    "payload ENCRYPT": Protection(payload="ENCRYPT"),
    "submessage ENCRYPT": Protection(submessage="ENCRYPT"),
    "discovery ENCRYPT": Protection(discovery="ENCRYPT", liveliness="ENCRYPT"),
    "authentication only": Protection(),
    "SignRTPS AES-128": Protection(rtps="SIGN", aes_bits=128),
    "EncryptRTPS AES-128": Protection(rtps="ENCRYPT", aes_bits=128),
}
CASES = [
    case
    for case in itertools.product(MIDDLEWARES, PROTECTIONS)
    # Cyclone DDS does not support AES-128: perftest rejects it, see the unit tests.
    if not (case[0] == "cyclonedds" and case[1].endswith("AES-128"))
]


@pytest.mark.parametrize(("middleware", "name"), sampled(CASES, 5))
def test_content_is_readable_only_if_nothing_encrypts_it(field: Field, middleware: str, name: str) -> None:
    protection = PROTECTIONS[name]
    with field.capture("node0", "eth0", WIRE, PATTERN) as wire:
        publisher, subscriber = field.pair(middleware, protection, "-executionTime", 0.3, "-warmUp", 0.1)
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert subscriber.received == publisher.summary["sent"] > 0
    assert wire["rtps"] > 0
    assert (wire["plain"] > 0) == (protection is None or not protection.encrypts), wire
    if protection is None:
        assert not {"0x30", "0x31", "0x33"} & set(wire["ids"])
        return
    for prefix, kind in ((SRTPS_PREFIX, protection.rtps), (SEC_PREFIX, protection.submessage)):
        if kind != "NONE":
            expected = TRANSFORMATION[kind.split("_")[0], protection.aes_bits]
            assert wire["kinds"].get(f"{prefix}:{expected}", 0) > 0, wire


FLIPPED_AT = 8 * 300
"""Bit offset from the UDP header: inside a sample of 512 bytes."""
UNMODIFIED_KBYTES = 100
"""Far more than participants need to authenticate each other, and far less than samples have."""


@pytest.mark.parametrize(
    ("middleware", "name"),
    sampled(
        [case for case in CASES
         if case[1] == "none" or PROTECTIONS[case[1]].signs], 3,
    ),
)  # fmt: skip
def test_a_modified_packet_is_rejected_if_something_signs(field: Field, middleware: str, name: str) -> None:
    for protection in dict.fromkeys((None, PROTECTIONS[name])):  # None: the attack succeeds without security
        field.lab_network.sandbox.run(
            ["nft", "-f", "-"],
            "table ip attack {\n chain flip {\n  type filter hook prerouting priority -300;\n"
            f"  ip saddr {field.address('pub0')} udp length > 500 quota over {UNMODIFIED_KBYTES} kbytes"
            f" counter @th,{FLIPPED_AT},16 set 0x5a5a\n }}\n}}\n",
            netns="node1",
        )
        try:
            publisher, subscriber = field.pair(middleware, protection, "-executionTime", 3, "-warmUp", 0.1)
            codes = publisher.end(), subscriber.end()
            ruleset = field.lab_network.sandbox.run(["nft", "-j", "list", "ruleset"], netns="node1")
        finally:
            field.lab_network.sandbox.run(["nft", "delete", "table", "ip", "attack"], netns="node1")
        counters = [
            part["counter"]["packets"]
            for item in json.loads(ruleset)["nftables"]
            if item.get("rule", {}).get("table") == "attack"
            for part in item["rule"]["expr"]
            if "counter" in part
        ]
        modified = sum(counters)
        assert modified > 0
        lost = (publisher.summary.get("sent") or 0) - subscriber.received
        # A busy machine can end before the last samples arrive.
        if protection is None:
            assert codes == (0, 0) and lost < modified / 2, (codes, lost, modified, publisher.err)
        else:
            assert codes != (0, 0) or lost >= min(modified, 10), (codes, lost, modified)


@pytest.mark.parametrize(("middleware", "name"), sampled(CASES, 3))
def test_replayed_packets_are_not_accepted_twice(field: Field, middleware: str, name: str) -> None:
    """RTPS sequence numbers reject replayed packets even without security; signatures protect these numbers."""
    source = field.address("pub0")
    publisher, subscriber = field.pair(
        middleware, PROTECTIONS[name], "-executionTime", 5, "-warmUp", 0.1, "-pubRate", "500:sleep"
    )
    publisher.wait_until_started()
    with (
        field.capture("sub0", "eth0", TWICE, source) as arrived,
        field.capture("node1", "eth0", REPLAY, source) as replayer,
    ):
        assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err + subscriber.err
    assert replayer["replayed"] > 100
    assert arrived["twice"] > 100, (arrived, replayer)
    assert subscriber.received == publisher.summary["sent"]
    assert subscriber.summary["duplicates"] == 0
