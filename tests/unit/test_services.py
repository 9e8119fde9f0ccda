"""Services of the lab: the rules of kube-proxy, the address of the client, and the proof that rules translated it."""

from __future__ import annotations

from typing import Any

import pytest

from k8sdds.campaign import contradictions
from k8sdds.model.services import MAX_SERVICES
from k8sdds.model.trial import Cell
from k8sdds.networks.common import kube_proxy
from k8sdds.testbeds.lab import preflight, services
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.topology import key_of

SEP = "KUBE-SEP-JAGJKHEM3U5KSXIC"


def cell(
    count: int = 1, network: str = "flannel-vxlan", via: str = "", proxy: str = "", **values: Any
) -> Cell:
    own = {"services": count, "via": via, "proxy": proxy}
    options = {"test_options": {name: value for name, value in own.items() if value}}
    return Cell(**({"network": network, "test": "service", "payload_bytes": 1} | options | values))


def rules(own: Cell) -> list[str]:
    plan = make_plan(own)
    return [
        line
        for batch in (*plan.batches, *plan.services)
        if batch.namespace == "node0" and batch.tool in ("iptables", "ip6tables", "nft")
        for line in batch.lines
    ]


def added(own: Cell) -> list[str]:
    """Return the rules of a node that a cell without Services does not have."""
    before = rules(cell(test="tcp-crr", test_options={}))
    return [line for line in rules(own) if line not in before]


def test_chains_have_the_names_of_kube_proxy() -> None:
    # Every cluster has this one.
    assert kube_proxy.service_chain("default/kubernetes:https") == "KUBE-SVC-NPX46M4PTMTKRN6Y"


def test_a_service_has_the_rules_of_kube_proxy() -> None:
    portal = '-d 10.96.0.10/32 -p tcp -m comment --comment "k8sdds/service-0 cluster IP" -m tcp --dport 5202'
    service, endpoint, *others = added(cell())
    # The names that kube-proxy derives from namespace, name, protocol and endpoint.
    assert (service, endpoint) == (":KUBE-SVC-EBCBRTJ3GBCI5PUA -", f":{SEP} -")
    address = make_plan(cell()).datapath.attachments["sub0"].address
    assert others == [
        f"-I KUBE-SERVICES 1 {portal} -j KUBE-SVC-EBCBRTJ3GBCI5PUA",
        f"-A KUBE-SVC-EBCBRTJ3GBCI5PUA ! -s 10.244.0.0/16 {portal} -j KUBE-MARK-MASQ",
        f'-A KUBE-SVC-EBCBRTJ3GBCI5PUA -m comment --comment "k8sdds/service-0 -> {address}:5202" -j {SEP}',
        f'-A {SEP} -s {address}/32 -m comment --comment "k8sdds/service-0" -j KUBE-MARK-MASQ',
        f'-A {SEP} -p tcp -m comment --comment "k8sdds/service-0" -m tcp -j DNAT --to-destination {address}:5202',
    ]


def test_a_node_port_leads_to_the_rules_of_its_service() -> None:
    without = added(cell(2))
    assert [line for line in added(cell(2, via="node-port")) if line not in without] == [
        ":KUBE-EXT-EBCBRTJ3GBCI5PUA -",
        '-A KUBE-NODEPORTS -p tcp -m comment --comment "k8sdds/service-0" -m tcp --dport 30202'
        " -j KUBE-EXT-EBCBRTJ3GBCI5PUA",
        "-A KUBE-EXT-EBCBRTJ3GBCI5PUA -m comment --comment"
        ' "masquerade traffic for k8sdds/service-0 external destinations" -j KUBE-MARK-MASQ',
        "-A KUBE-EXT-EBCBRTJ3GBCI5PUA -j KUBE-SVC-EBCBRTJ3GBCI5PUA",
    ]


@pytest.mark.parametrize("proxy", ["iptables", "nftables"])
def test_a_headless_service_has_no_rules(proxy: str) -> None:
    many, one = rules(cell(3, via="headless", proxy=proxy)), rules(cell(1, via="headless", proxy=proxy))
    assert not any("service-0" in line or "10.96.0.10" in line for line in many)
    assert len([line for line in many if "10.96.0.11" in line]) >= 2
    assert not any("service-" in line for line in one if line.startswith(("-I", "add element")))


def test_nftables_replace_all_rules_of_kube_proxy() -> None:
    own = rules(cell(2, via="node-port", proxy="nftables"))
    left = [line for line in own if "KUBE-" in line and "KUBE-FIREWALL" not in line]
    assert left == []
    assert any("FLANNEL-POSTRTG" in line for line in own)
    chain = "4RNENVNN-k8sdds/service-0/tcp/"
    assert (
        f"add element ip kube-proxy service-ips {{ 10.96.0.10 . tcp . 5202 : goto service-{chain} }}" in own
    )
    assert f"add element ip kube-proxy service-nodeports {{ tcp . 30202 : goto external-{chain} }}" in own
    assert f"add rule ip kube-proxy external-{chain} goto service-{chain}" in own
    assert (
        f"add rule ip kube-proxy service-{chain} meta l4proto tcp counter dnat ip addr . port to"
        " numgen random mod 1 map { 0 : 10.244.1.2 . 5202 }"
    ) in own
    assert not any("service-1" in line for line in own if "nodeports" in line)


def test_the_measured_service_comes_after_all_others() -> None:
    many = rules(cell(MAX_SERVICES))
    inserted = [line for line in many if line.startswith("-I KUBE-SERVICES 1 ")]
    assert len(inserted) == MAX_SERVICES == len({line.split("-d ")[1].split()[0] for line in inserted})
    # Each is inserted before those that were inserted earlier.
    assert "-d 10.96.0.10/32" in inserted[0]
    # As kube-proxy with many endpoints: only the rules of addresses have comments.
    assert not any("k8sdds/service" in line for line in many if "cluster IP" not in line)
    assert all("cluster IP" in line for line in inserted)


def test_services_of_ipv6() -> None:
    six = rules(cell(ip_families=("ipv6",)))
    assert any("-d fd00:10:96::a/128" in line for line in six)
    assert any("--to-destination [fd00:10:244:" in line for line in six)
    maps = rules(cell(ip_families=("ipv6",), proxy="nftables"))
    assert any(
        "add element ip6 kube-proxy service-ips { fd00:10:96::a . tcp . 5202 : " in line for line in maps
    )


def test_cells_with_other_services_have_another_lab_network() -> None:
    cells = [cell(1), cell(2), cell(test="tcp-crr"), cell(via="headless"), cell(proxy="nftables")]
    assert len({key_of(one) for one in cells}) == 5
    assert key_of(cell(1)) == key_of(cell(1, proxy="iptables"))


@pytest.mark.parametrize("network", ["host", "baremetal", "cilium-vxlan", "weavenet"])
def test_networks_without_the_rules_and_ipvs_are_refused(network: str) -> None:
    for proxy in ("iptables", "nftables"):
        problem = preflight._contradiction(cell(network=network, proxy=proxy))
        assert problem is not None and "rules of kube-proxy" in problem.what
        assert preflight._contradiction(cell(proxy=proxy)) is None
    problem = preflight._contradiction(cell(proxy="ipvs"))
    assert problem is not None and "kube-proxy in ipvs mode" in problem.what


@pytest.mark.parametrize(
    ("via", "expected"),
    [("cluster-ip", ("10.96.0.10", 5202)), ("node-port", ("192.168.77.10", 30202)), ("headless", None)],
)
def test_the_address_of_the_client(via: str, expected: tuple[str, int] | None) -> None:
    assert services.address(make_plan(cell(via=via))) == expected


def test_a_service_on_one_node_is_refused() -> None:
    refused = contradictions.unsupported(cell(placement="same-node"))
    assert refused == "a service test needs client and server on two nodes: leave out placement"


SAVED = """\
[3:180] -A KUBE-SEP-VO35M3XNGYHJS4LS -s 10.244.1.2/32 -j KUBE-MARK-MASQ
[12:720] -A KUBE-SEP-VO35M3XNGYHJS4LS -p tcp -m tcp -j DNAT --to-destination 10.244.1.2:5202
[30:1800] -A KUBE-SEP-XU35M3XNGYHJS4LS -p tcp -m tcp -j DNAT --to-destination 10.244.1.2:5202
"""
NFT = """\
    chain service-WC46SJ2I-k8sdds/service-0/tcp/ {
        meta l4proto tcp counter packets 81 bytes 4860 dnat ip to numgen random mod 1 map { 0 : 10.244.1.2 . 5202 }
    }
"""


@pytest.mark.parametrize(("shown", "count"), [(SAVED, 42), (NFT, 81), ("", 0)])
def test_counters(shown: str, count: int) -> None:
    assert kube_proxy.translated(shown) == count


TRACKED = """\
ipv4     2 tcp      6 118 TIME_WAIT src=10.244.0.2 dst=10.244.1.2 sport=43210 dport=5202 src=10.244.1.2 \
dst=10.244.0.2 sport=5202 dport=43210 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 118 TIME_WAIT src=10.244.0.2 dst=10.96.0.10 sport=43211 dport=5202 src=10.244.1.2 \
dst=10.244.0.2 sport=5202 dport=43211 [ASSURED] mark=0 zone=0 use=2
ipv4     2 udp      17 28 src=10.244.0.2 dst=10.96.0.10 sport=43211 dport=53 src=10.244.1.3 dst=10.244.0.2 \
sport=53 dport=43211 mark=0 zone=0 use=2
"""


def test_tracked_connections_that_were_translated() -> None:
    assert kube_proxy.translated_entries(TRACKED, 5202) == 1
    assert kube_proxy.translated_entries(TRACKED.replace("10.96.0.10", "10.244.1.3"), 53) == 0
