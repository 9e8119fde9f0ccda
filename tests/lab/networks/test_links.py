"""MTU and offloads of the nodes' links, on packets that really cross them."""

from __future__ import annotations

import subprocess

from k8sdds.model.link import Link
from k8sdds.model.offloads import CARD, Offloads
from k8sdds.model.trial import Trial
from k8sdds.testbeds import Block
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.testbed import Lab
from k8sdds.testbeds.lab.topology import SWITCH
from tests.lab.conftest import address_of, cell, enter, json_of


def sent(lab_network: LabNetwork, node: str) -> tuple[int, int]:
    (device,) = json_of(lab_network, node, "ip", "-s", "-j", "link", "show", "dev", "eth0")
    return device["stats64"]["tx"]["bytes"], device["stats64"]["tx"]["packets"]


def stream(lab_network: LabNetwork, transfer_bytes: int = 20_000_000) -> float:
    """Send bytes by TCP from pub0 to sub0; return how large the packets on the node's link were on average."""
    program = (
        "import socket,sys\n"
        "s=socket.create_server(('',5000)); print(flush=True); c,_=s.accept()\n"
        "while c.recv(1<<20): pass"
    )
    address = address_of(lab_network, "sub0")
    server = subprocess.Popen([*enter(lab_network, "sub0"), "python3", "-c", program], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        server.stdout.readline()
        before = sent(lab_network, "node0")
        client = f"import socket; s=socket.create_connection(('{address}',5000)); s.sendall(bytes({transfer_bytes}))"
        subprocess.run([*enter(lab_network, "pub0"), "python3", "-c", client], check=True, timeout=30)
        server.wait(60)
    finally:
        server.kill()
        server.wait()
    after = sent(lab_network, "node0")
    return (after[0] - before[0]) / (after[1] - before[1])


def test_the_mtu_limits_packets_and_offloads_decide_where_they_are_split(lab: Lab) -> None:
    split = Offloads(tso=False, tunnel=False)
    links = {
        "split": Link(offloads=split),
        "jumbo": Link(mtu=9000, offloads=split),
        "whole": Link(offloads=Offloads(gro=True, tso=True)),
    }
    lab.up(cell("flannel-hostgw", link=link) for link in links.values())
    built = {network.plan.cell.link: network for network in lab.networks.values()}
    sizes = {name: stream(built[link]) for name, link in links.items()}
    assert 1400 < sizes["split"] <= 1514
    assert 8000 < sizes["jumbo"] <= 9014
    assert sizes["whole"] > 15_000  # the link of the lab carries what a network card would split
    seen = built[links["whole"]].node_links["node0"]
    assert (seen["mtu_bytes"], seen["generic-receive-offload"]) == (1500, True)
    assert built[links["jumbo"]].node_links["node1"]["tcp-segmentation-offload"] is False


def test_every_repetition_has_networks_of_its_own(lab: Lab) -> None:
    def holders(index: int) -> set[int]:
        trials = tuple(
            Trial(cell=cell(name), testbed="lab", repetition=index, duration_s=1, warmup_s=0)
            for name in ("host", "flannel-vxlan")
        )
        lab.prepare(Block(index, trials))
        return {lab_network.sandbox.pid for lab_network in lab.networks.values()}

    first = holders(0)
    assert holders(0) == first and len(first) == 2
    assert not holders(1) & first


def test_the_switch_has_no_packet_filters_and_nodes_have_those_of_real_nodes(lab: Lab) -> None:
    lab.up([cell("flannel-vxlan"), cell("host")])
    for lab_network in lab.networks.values():
        for family in ("iptables", "ip6tables", "arptables"):
            path = f"/proc/sys/net/bridge/bridge-nf-call-{family}"
            assert lab_network.sandbox.run(["cat", path], netns=SWITCH).strip() == "0"
    pod_network = next(item for item in lab.networks.values() if item.plan.cell.network == "flannel-vxlan")
    path = "/proc/sys/net/bridge/bridge-nf-call-iptables"
    assert pod_network.sandbox.run(["cat", path], netns="node0").strip() == "1"


def test_tcp_on_links_of_the_lab_has_packets_as_between_ethernet_cards(lab: Lab) -> None:
    networks = ("flannel-hostgw", "flannel-vxlan")
    lab.up([cell(name, link=Link(offloads=CARD)) for name in networks])
    for lab_network in lab.networks.values():
        assert 1400 < stream(lab_network) <= 1514
