"""Each network's datapath against the objects it states, on real namespaces."""

from __future__ import annotations

import subprocess
import sys

import pytest

from k8sdds.model.experiment import Link
from k8sdds.networks import NETWORKS, find
from k8sdds.networks.datapath import Batch
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds.cluster import datapath
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.testbed import Lab
from tests.lab.conftest import cell, enter, json_of, said
from tests.lab.multicast import RECEIVER, SENDER

POD_NETWORKS = [name for name in NETWORKS if name not in ("baremetal", "host")]


def link(lab_network: LabNetwork, place: str, name: str) -> dict:
    (found,) = json_of(lab_network, place, "ip", "-d", "-j", "link", "show", "dev", name)
    return found


@pytest.mark.parametrize("network", NETWORKS)
def test_pods_have_the_stated_mtu_and_address(lab_networks: dict[str, LabNetwork], network: str) -> None:
    lab_network = lab_networks[network]
    for pod, attachment in lab_network.plan.datapath.attachments.items():
        (device,) = json_of(lab_network, pod, "ip", "-j", "addr", "show", "dev", attachment.interface)
        assert device["mtu"] == find(network).mtu(dict(lab_network.plan.key.options))
        assert attachment.address in [address["local"] for address in device["addr_info"]]


@pytest.mark.parametrize("network", NETWORKS)
def test_full_packets_pass_and_larger_ones_do_not(lab_networks: dict[str, LabNetwork], network: str) -> None:
    lab_network = lab_networks[network]
    target = lab_network.plan.datapath.attachments["sub1"].address
    size = lab_network.plan.datapath.mtu - 28

    def ping(payload: int) -> int:
        words = ["ping", "-n", "-c", "1", "-W", "2", "-M", "do", "-s", str(payload), target]
        return subprocess.run([*enter(lab_network, "pub0"), *words], capture_output=True).returncode

    assert ping(size) == 0
    assert ping(size + 1) != 0


@pytest.mark.parametrize("network", NETWORKS)
def test_multicast_crosses_nodes_only_where_it_is_claimed(
    lab_networks: dict[str, LabNetwork], network: str
) -> None:
    lab_network = lab_networks[network]
    addresses = {pod: a.address for pod, a in lab_network.plan.datapath.attachments.items()}
    # Where it is claimed the wait is as long as it takes; where not, one second shows its absence, since
    # unicast crosses in microseconds.
    patience = "20" if find(network).multicast else "1"
    receivers = [
        subprocess.Popen(
            [*enter(lab_network, pod), sys.executable, "-c", RECEIVER, addresses[pod], patience],
            stdout=subprocess.PIPE,
            text=True,
        )
        for pod in ("sub0", "sub1")
    ]
    for receiver in receivers:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
    said(lab_network, "pub0", sys.executable, "-c", SENDER, addresses["pub0"])
    heard = [receiver.communicate()[0].strip() for receiver in receivers]
    assert heard == (["hello"] * 2 if find(network).multicast else ["nothing"] * 2)


SEEN = ("flannel-vxlan", "flannel-hostgw", "flannel-wireguard", "kube-router", "weavenet")
"""Networks whose objects in the lab bear the plugin's names, and that need no right to be told apart."""


@pytest.mark.parametrize("network", SEEN)
def test_the_nodes_links_tell_which_network_carries_packets(
    lab_networks: dict[str, LabNetwork], network: str
) -> None:
    """As a cluster's campaign proves it, by the same objects that the plugins make."""
    lab_network = lab_networks[network]
    addresses = {
        lab_network.node_of(pod): lab_network.plan.datapath.attachments[pod].address
        for pod in ("pub0", "sub0")
    }

    def looks() -> list[datapath.LinkCounters]:
        return [
            datapath.parse_counters(said(lab_network, node, *datapath.COMMAND, *addresses.values()))
            for node in addresses
        ]

    before = looks()
    target, size = lab_network.plan.datapath.attachments["sub0"].address, lab_network.plan.datapath.mtu - 28
    said(
        lab_network, "pub0", "ping", "-n", "-q", "-c", "40", "-i", "0.01", "-M", "do", "-s", str(size), target
    )
    one, other = map(datapath.PathEnd, addresses, addresses.values(), before, looks())
    for name in SEEN:
        half = find(name).cluster
        assert half is not None
        wrong = datapath.deviation(half.path, one, other, 40 * size)
        assert bool(wrong) == (name != network), (name, wrong)


def test_flannel_vxlan_device(lab_networks: dict[str, LabNetwork]) -> None:
    lab_network = lab_networks["flannel-vxlan"]
    device = link(lab_network, "node0", "flannel.1")
    data = device["linkinfo"]["info_data"]
    assert device["mtu"] == 1450
    assert (data["id"], data["port"], data["learning"]) == (1, 8472, False)
    forwarding = json_of(lab_network, "node0", "bridge", "-j", "fdb", "show", "dev", "flannel.1")
    assert {entry["dst"] for entry in forwarding} == {"192.168.77.11", "192.168.77.12"}
    neighbours = json_of(lab_network, "node0", "ip", "-j", "neigh", "show", "dev", "flannel.1")
    assert {tuple(n["state"]) for n in neighbours} == {("PERMANENT",)}


@pytest.mark.parametrize(("network", "protocol"), [("flannel-hostgw", "None"), ("kube-router", "17")])
def test_routes_by_the_nodes_addresses(
    lab_networks: dict[str, LabNetwork], network: str, protocol: str
) -> None:
    routes = json_of(lab_networks[network], "node0", "ip", "-j", "route")
    to_node1 = next(route for route in routes if route["dst"] == "10.244.1.0/24")
    assert (to_node1["gateway"], to_node1["dev"], str(to_node1.get("protocol"))) == (
        "192.168.77.11",
        "eth0",
        protocol,
    )


def test_weave_chain_of_devices(lab_networks: dict[str, LabNetwork]) -> None:
    lab_network = lab_networks["weavenet"]
    assert link(lab_network, "node1", "vethwe-bridge")["master"] == "weave"
    assert link(lab_network, "node1", "vethwe-datapath")["master"] == "datapath"
    vxlan = link(lab_network, "node1", "vxlan-6784")
    assert vxlan["master"] == "datapath"
    assert (vxlan["linkinfo"]["info_data"]["port"], vxlan["linkinfo"]["info_data"]["learning"]) == (
        6784,
        True,
    )
    # netfilter sees what crosses `weave`, and nothing on `datapath`, as with Open vSwitch
    assert link(lab_network, "node1", "weave")["linkinfo"]["info_data"]["nf_call_iptables"] == 1
    assert link(lab_network, "node1", "datapath")["linkinfo"]["info_data"]["nf_call_iptables"] == 0


@pytest.mark.parametrize("network", POD_NETWORKS)
def test_packets_between_nodes_pass_the_forward_chain(
    lab_networks: dict[str, LabNetwork], network: str
) -> None:
    lab_network = lab_networks[network]

    def counted() -> int:
        rules = json_of(lab_network, "node1", "nft", "-j", "list", "chain", "ip", "filter", "FORWARD")[
            "nftables"
        ]
        expressions = [e for item in rules if "rule" in item for e in item["rule"]["expr"]]
        return sum(e["counter"]["packets"] for e in expressions if "counter" in e)

    before = counted()
    said(
        lab_network,
        "pub0",
        "ping",
        "-c",
        "3",
        "-i",
        "0.01",
        lab_network.plan.datapath.attachments["sub0"].address,
    )
    assert counted() > before


@pytest.mark.parametrize("network", ["host", *POD_NETWORKS])
def test_a_pod_is_a_pod(lab_networks: dict[str, LabNetwork], network: str) -> None:
    lab_network = lab_networks[network]
    assert said(lab_network, "sub0", "hostname").strip() == "sub0"
    processes = said(lab_network, "sub0", "ps", "-eo", "comm", "--no-headers").split()
    assert set(processes) <= {"k8sdds-supervis", "ps"}
    kinds = ("mnt", "pid", "uts", "ipc") if network == "host" else ("mnt", "pid", "uts", "ipc", "net")
    for kind in kinds:
        of_pods = {
            said(lab_network, pod, "readlink", f"/proc/self/ns/{kind}") for pod in ("pub0", "sub0", "sub1")
        }
        of_node = said(lab_network, "node1", "readlink", f"/proc/self/ns/{kind}")
        assert len(of_pods) == 3
        assert of_node not in of_pods


def test_on_baremetal_participants_are_on_the_node_itself(lab_networks: dict[str, LabNetwork]) -> None:
    lab_network = lab_networks["baremetal"]
    assert lab_network.pods == {}
    assert said(lab_network, "sub0", "readlink", "/proc/self/ns/net") == said(
        lab_network, "node1", "readlink", "/proc/self/ns/net"
    )


def test_nothing_reaches_beyond_the_lab(lab_networks: dict[str, LabNetwork]) -> None:
    for lab_network in lab_networks.values():
        done = subprocess.run(
            [*enter(lab_network, "node0"), "ping", "-c", "1", "-W", "1", "192.0.2.1"],
            capture_output=True,
            text=True,
        )
        assert "unreachable" in (done.stdout + done.stderr).lower()


def test_loss_is_lost_and_counted(lab: Lab) -> None:
    lab.up([cell("host", link=Link(loss_percent=50))])
    (lab_network,) = lab.networks.values()
    sender = (
        "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "for i in range(1000): s.sendto(b'x', (sys.argv[1], 9))"
    )
    said(
        lab_network,
        "pub0",
        sys.executable,
        "-c",
        sender,
        lab_network.plan.datapath.attachments["sub0"].address,
    )
    (rule,) = [
        item["rule"]
        for item in json_of(lab_network, "node1", "nft", "-j", "list", "table", "netdev", "impairments")[
            "nftables"
        ]
        if "rule" in item
    ]
    dropped = next(e["counter"]["packets"] for e in rule["expr"] if "counter" in e)
    # 1000 throws of a fair coin: outside of this once in 10^19 runs
    assert 350 < dropped < 650


def test_a_shaped_link_has_its_rate_at_both_ends(lab: Lab) -> None:
    lab.up([cell("host", link=Link(rate_mbit=100))])
    (lab_network,) = lab.networks.values()
    for place, device in (("node1", "eth0"), ("switch", "to-node1")):
        queues = json_of(lab_network, place, "tc", "-j", "qdisc", "show", "dev", device)
        (tbf,) = [queue for queue in queues if queue["kind"] == "tbf"]
        assert tbf["options"]["rate"] == 100_000_000 / 8


def test_ten_nodes_and_thirteen_pods_of_every_network_side_by_side(lab: Lab) -> None:
    lab.up(cell(name, subscribers=12) for name in NETWORKS)
    assert len(lab.networks) == len(NETWORKS)
    for lab_network in lab.networks.values():
        assert len(lab_network.plan.topology.nodes) == 10
        assert len(lab_network.plan.datapath.attachments) == 13


def test_a_failing_batch_is_named_by_namespace_and_line() -> None:
    sandbox = Sandbox("failing")
    try:
        sandbox.run(["ip", "netns", "add", "node0"])
        good = Batch("node0", "ip", ("link set lo up",))
        bad = Batch("node0", "ip", ("link set lo up", "link set missing up"))
        with pytest.raises(PrerequisiteError) as told:
            sandbox.apply([good, bad, good])
        assert "in node0" in str(told.value)
        assert "(line 2: link set missing up)" in str(told.value)
        bad = Batch("node0", "nft", ("table ip t {", "  chain {", "}"))
        with pytest.raises(PrerequisiteError, match=r"`nft` failed: .*syntax error"):
            sandbox.apply([good, bad])
    finally:
        sandbox.close()
