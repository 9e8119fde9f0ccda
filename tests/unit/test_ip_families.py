"""Test the setting `ip_families`: what an experiment may request, and what the lab plans for it."""

from __future__ import annotations

import re
from ipaddress import ip_address

import pytest

from k8sdds import middleware
from k8sdds.campaign import contradictions, experiments, preflight
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.experiments import Changes
from k8sdds.model.trial import Cell
from k8sdds.networks import NETWORKS, find, packets
from k8sdds.testbeds.cluster.nodes import NodeInfo
from k8sdds.testbeds.cluster.preflight import family_problems, unsupported
from k8sdds.testbeds.lab.plan import Plan, make_plan
from tests.unit import builders

ADDRESS = re.compile(
    r"(?<![\w:.])(?:\d+\.\d+\.\d+\.\d+|(?:fd|fe80|ff)[0-9a-f]*:[0-9a-f:]+)(?=[/\s\"\]}),]|$)"
)


def cell(*families: str, network: str = "host", **values: object) -> Cell:
    return builders.cell(network=network, ip_families=families or ["ipv4"], **values)


def versions(plan: Plan) -> set[int]:
    """Return the IP versions of all addresses in the commands of a plan."""
    text = "\n".join(line for batch in plan.batches for line in batch.lines)
    return {ip_address(found).version for found in ADDRESS.findall(text)}


def supporting_ipv6() -> list[str]:
    return [name for name, network in NETWORKS.items() if not network.ipv4_only]


def test_a_sweep_overrides_the_experiment() -> None:
    experiment = experiments.changed(experiments.load("quickstart"), Changes(settings=["ip_families=ipv6"]))
    sweeps = [sweep.model_copy(update={"ip_families": ("ipv4", "ipv6")}) for sweep in experiment.sweeps]
    assert {c.ip_families for c in expand(experiment).cells} == {("ipv6",)}
    changed = experiment.model_copy(update={"sweeps": sweeps})
    assert {c.ip_families for c in expand(changed).cells} == {("ipv4", "ipv6")}


@pytest.mark.parametrize("network", supporting_ipv6())
def test_a_plan_has_the_addresses_of_its_families(network: str) -> None:
    assert versions(make_plan(cell("ipv4", network=network))) <= {4}
    plan = make_plan(cell("ipv6", network=network))
    assert versions(plan) == {6}
    assert not any(batch.tool == "iptables" for batch in plan.batches)
    assert not any(key.endswith("disable_ipv6") for name, key, _ in plan.sysctls if name != "switch")
    both = make_plan(cell("ipv6", "ipv4", network=network))
    assert versions(both) == {4, 6}
    for attachment in both.datapath.attachments.values():
        assert ip_address(attachment.address).version == 6
        assert attachment.other_address is not None and ip_address(attachment.other_address).version == 4
    for batch in both.batches:
        created = [line for line in batch.lines if line.startswith("link add")]
        assert len(set(created)) == len(created)


def test_the_mtu_leaves_room_for_the_longer_outer_header() -> None:
    for network in ("flannel-vxlan", "calico-vxlan"):
        assert make_plan(cell("ipv4", network=network)).datapath.mtu == 1450
        for families in (["ipv6"], ["ipv4", "ipv6"]):
            assert make_plan(cell(*families, network=network)).datapath.mtu == 1430
    assert make_plan(cell("ipv6", network="flannel-hostgw")).datapath.mtu == 1500
    options = cell("ipv6", network="flannel-vxlan", network_options={"mtu": 1450}).datapath_options
    assert "leaves at most 1430" in str(find("flannel-vxlan").options_error(options))


def test_networks_without_ipv6_are_refused_with_the_reason() -> None:
    refused = [name for name in NETWORKS if name not in supporting_ipv6()]
    assert {"weavenet", "weavenet-encrypt", "flannel-ipsec", "calico-ipip", "cilium-vxlan"} <= set(refused)
    experiment = experiments.load("quickstart")
    assert preflight.contradictions(expand(experiment)) == []
    for families in ("[ipv6]", "[ipv4, ipv6]"):
        changed = experiments.changed(experiment, Changes(settings=[f"ip_families={families}"]))
        [problem] = preflight.contradictions(expand(changed))
        assert "weavenet carries only IPv4: WeaveNet has no IPv6" in str(problem)
        assert (
            "use only networks with IPv6 (host, baremetal, flannel-vxlan, flannel-hostgw, kube-router,"
            in str(problem)
        )


def test_what_cannot_use_ipv6_is_refused() -> None:
    assert "by IPv4" in str(contradictions.unsupported(cell("ipv6", middleware="connext")))
    assert contradictions.unsupported(cell("ipv4", "ipv6", middleware="connext")) is None
    served = cell("ipv6", middleware="fastdds", discovery="server")
    assert "listen on IPv4" in str(contradictions.unsupported(served))
    shared = cell("ipv6", middleware="fastdds", transport="shared-memory")
    assert "leave out ip_families" in str(contradictions.unsupported(shared))
    assert unsupported([cell("ipv4"), cell("ipv4", "ipv6")], can_switch=True) == []


def test_raw_samples_must_fit_next_to_the_longer_header() -> None:
    raw = middleware.find("raw")
    values = {
        "middleware": "raw",
        "reliability": "best-effort",
        "message_bytes": "mtu",
        "payload_bytes": 1472,
    }
    assert raw.unsupported_mtu(cell("ipv4", **values), 1500) is None
    assert "1452" in str(raw.unsupported_mtu(cell("ipv6", **values), 1500))


def node(ranges: list[str], addresses: list[str]) -> NodeInfo:
    """Return a node with these ranges of pods and these own addresses."""
    spec = {"podCIDR": ranges[0], "podCIDRs": ranges} if ranges else {}
    own = [{"type": "Hostname", "address": "worker"}]
    own += [{"type": "InternalIP", "address": address} for address in addresses]
    status = {
        "conditions": [{"type": "Ready", "status": "True"}], "addresses": own,
        "nodeInfo": {"architecture": "amd64"},
    }  # fmt: skip
    return NodeInfo.parse({"metadata": {"name": "worker"}, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("ranges", "addresses", "families"),
    [
        (["10.244.0.0/24"], ["10.0.0.1", "fd00::1"], {"ipv4"}),
        (["fd00:10:244::/64"], ["fd00::1", "10.0.0.1"], {"ipv6"}),
        (["10.244.0.0/24", "fd00:10:244::/64"], ["10.0.0.1", "fd00::1"], {"ipv4", "ipv6"}),
        # Some plugins assign the addresses of pods themselves.
        ([], ["fd00::1"], {"ipv6"}),
        ([], ["fd00::1", "10.0.0.1"], {"ipv4", "ipv6"}),
        ([], [], set()),
    ],
)
def test_the_families_of_a_cluster_are_those_of_its_pods(
    ranges: list[str], addresses: list[str], families: set[str]
) -> None:
    found = node(ranges, addresses)
    assert (found.unusable, found.ip_families) == ("", families)


def test_a_cluster_measures_only_the_families_that_its_pods_have() -> None:
    cells = [cell("ipv6"), cell("ipv6", "ipv4"), cell("ipv4")]
    dual, four = node(["10.244.0.0/24", "fd00::/64"], []), node(["10.244.1.0/24"], [])
    assert family_problems(cells, [dual]) == [] and family_problems(cells, []) == []
    first, second = family_problems(cells, [dual, four])
    assert "[ipv6]: pods of this cluster have no IPv6 address" in str(first)
    assert "[ipv6, ipv4]" in str(second) and "--set ip_families=ipv4" in str(second) and second.input


def ipv6_packet(next_header: int, payload: bytes) -> packets.IpPacket:
    header = b"\x60\0\0\0" + len(payload).to_bytes(2, "big") + bytes([next_header, 64])
    addresses = ip_address("fd00::1").packed + ip_address("fd00::2").packed
    packet = packets.parse_ip(header + addresses + payload, 40 + len(payload), packets.RAW_IP)
    assert packet is not None
    return packet


def test_fragments_of_ipv6_are_read() -> None:
    first = ipv6_packet(44, bytes([17, 0, 0, 1]) + b"\0\0\0\7" + bytes(1432))
    last = ipv6_packet(44, bytes([17, 0]) + (1432).to_bytes(2, "big") + b"\0\0\0\7" + bytes(100))
    parts = [packets.fragment_of(packet) for packet in (first, last)]
    assert [(p.protocol, p.offset_bytes, p.size_bytes, p.more_follow) for p in parts] == [
        (17, 0, 1432, True),
        (17, 1432, 100, False),
    ]
    assert parts[0].datagram == parts[1].datagram
    whole = packets.fragment_of(ipv6_packet(17, bytes(108)))
    assert (whole.protocol, whole.offset_bytes, whole.size_bytes, whole.more_follow) == (17, 0, 108, False)


def test_the_wrapping_of_ipv6_packets_is_recognized() -> None:
    token = b"k8sdds-token"
    inner = ipv6_packet(17, bytes(8) + token.ljust(152, b"."))
    found = packets.wrapping([inner], token, inner.size_bytes, 1)
    assert found is not None and (found.protocol, found.added_bytes) == (packets.NONE, 0)
    headers = (8472).to_bytes(2, "big") * 2 + bytes(4) + b"\x08\0\0\0\0\0\1\0" + bytes(12) + b"\x86\xdd"
    outer = ipv6_packet(17, headers + inner.data)
    found = packets.wrapping([outer], token, inner.size_bytes, 1)
    assert found == packets.Wrapping("VXLAN", 8472, 70, cleartext=True)
