"""Test ESP, WireGuard, IP in IP and bonds in the kernel, and netem, with Debian's kernel in a virtual machine."""

from __future__ import annotations

import platform
import re
from typing import Any

import pytest

from tests.lab.vm import machine

pytestmark = [
    # Booting the emulated machine takes two to four minutes, and no part of the tests can do without it.
    pytest.mark.long,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the virtual machine is an amd64 one"),
]


@pytest.fixture(scope="module")
def cases() -> dict[str, dict[str, Any]]:
    """Return the results of tests/lab/vm/guest.py by case."""
    results, output = machine.run(machine.python("-m", "tests.lab.vm.guest"))
    assert results, output
    return {case["case"]: case for case in results}


@pytest.mark.parametrize(
    ("network", "mtu", "mode", "key_bits"),
    [("flannel-ipsec", 1423, "tunnel", 128), ("weavenet-encrypt", 1414, "transport", 256)],
)
def test_esp_in_the_kernel(
    cases: dict[str, dict[str, Any]], network: str, mtu: int, mode: str, key_bits: int
) -> None:
    case = cases[network]
    assert "failed" not in case, case["failed"]
    assert case["mtu"] == mtu
    states = re.findall(r"proto esp .*? mode (\w+)", case["xfrm"])
    assert states == [mode] * 2
    salted = re.findall(r"aead rfc4106\(gcm\(aes\)\) 0x([0-9a-f]+) 128", case["xfrm"])
    assert [len(key) * 4 - 32 for key in salted] == [key_bits] * 2
    assert case["decrypted"] >= 5 * 1000
    assert "ipsec0" not in case["links"]


def test_leftovers_of_ipsec_in_the_kernel_are_found_and_removed(cases: dict[str, dict[str, Any]]) -> None:
    created = [trace.split(" src ")[0] for trace in cases["flannel-ipsec"]["made"]]
    assert created.count("IPsec policy") == 3 and created.count("IPsec state") == 2
    assert cases["flannel-ipsec"]["left"] == []


def test_leftovers_of_wireguard_are_found_and_removed(cases: dict[str, dict[str, Any]]) -> None:
    assert "link flannel-wg0" in cases["flannel-wireguard"]["made"]
    assert cases["flannel-wireguard"]["left"] == []


def test_multicast_over_esp_in_the_kernel(cases: dict[str, dict[str, Any]]) -> None:
    assert cases["weavenet-encrypt"]["heard"] == "hello"


def test_wireguard_in_the_kernel(cases: dict[str, dict[str, Any]]) -> None:
    case = cases["flannel-wireguard"]
    assert "failed" not in case, case["failed"]
    assert case["mtu"] == 1420
    assert case["daemons"] == 0
    assert re.search(r"flannel-wg0: .* wireguard", case["links"])
    assert case["decrypted"] >= 5 * 1000


def test_ip_in_ip_of_calico(cases: dict[str, dict[str, Any]]) -> None:
    case = cases["calico-ipip"]
    assert "failed" not in case, case["failed"]
    tunnel = re.search(r"tunl0@NONE: .*? mtu (\d+) .*?RX:.*?\\\s+(\d+)\s+(\d+)", case["links"])
    assert tunnel, case["links"]
    assert tunnel[1] == "1480"
    assert int(tunnel[2]) >= 1480


@pytest.mark.parametrize("case", ["lag", "lag-vxlan"])
def test_a_bonded_link_spreads_flows_over_its_members(cases: dict[str, dict[str, Any]], case: str) -> None:
    """A flow uses one member, and 64 flows use both."""
    found = cases[case]
    assert "failed" not in found, found["failed"]
    bond = {"members": 2, "mode": "balance-xor", "hash": "layer3+4"}
    assert [link["bond"] for link in found["node_links"].values()] == [bond, bond]
    for links, name in ((found["links"], "eth0"), (found["switch"], "to-node0")):
        assert re.search(rf" {name}: .* bond mode balance-xor .* xmit_hash_policy layer3\+4 ", links), links
        assert links.count(f"master {name} ") == 2, links
    few, most = sorted(found["one flow"])
    assert most >= 100 * 1000 and few < 10 * 1000, found["one flow"]
    assert min(found["many flows"]) > 100 * 1000, found["many flows"]


def test_trials_record_what_each_member_of_a_link_sent(cases: dict[str, dict[str, Any]]) -> None:
    found = cases["lag-campaign"]
    assert "failed" not in found, found["failed"]
    assert found["invalid"] == ""
    by_flows = {attempt["flows"]: attempt["link_bytes"] for attempt in found["attempts"]}
    one, many = by_flows[1], by_flows[16]
    assert all(attempt["valid"] and attempt["link"]["lag"] == 2 for attempt in found["attempts"])
    for counted in (one, many):
        members = counted["members"]["node0"]
        assert abs(sum(members) - counted["sent"]) < 0.01 * counted["sent"], counted
    assert max(one["members"]["node0"]) > 0.95 * one["sent"], one
    assert min(many["members"]["node0"]) > 0.01 * many["sent"], many


def test_a_wrong_pre_shared_key_prevents_the_tunnel(cases: dict[str, dict[str, Any]]) -> None:
    assert "pre-shared keys differ" in cases["wrong-key"]["error"]


def test_a_link_with_a_delay_delays_packets(cases: dict[str, dict[str, Any]]) -> None:
    fastest = re.search(r"rtt min/avg/max/mdev = ([\d.]+)", cases["delay"]["ping"])
    assert fastest, cases["delay"]
    assert float(fastest[1]) >= 200
