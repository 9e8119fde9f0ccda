"""Verify the datapath of each network in the lab, in real network namespaces."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from k8sdds.model.link import Link
from k8sdds.networks import NETWORKS, find
from k8sdds.networks.datapath import Batch
from k8sdds.system import kernel_features
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.kernel_features import NETEM, TC_BPF
from k8sdds.system.sandbox import Sandbox
from k8sdds.testbeds import fingerprint
from k8sdds.testbeds.cluster import datapath
from k8sdds.testbeds.lab import places, verification
from k8sdds.testbeds.lab.lab_network import LabNetwork
from k8sdds.testbeds.lab.testbed import Lab
from tests.conftest import IN_VIRTUAL_MACHINE, Command
from tests.lab import multicast_matrix
from tests.lab.conftest import address_of, cell, enter, json_of, missing_feature, output_of, up
from tests.measuring import experiment, measured

POD_NETWORKS = [name for name in NETWORKS if name not in ("baremetal", "host")]


def link(lab_network: LabNetwork, place: str, name: str) -> dict:
    (result,) = json_of(lab_network, place, "ip", "-d", "-j", "link", "show", "dev", name)
    return result


@pytest.mark.parametrize("network", NETWORKS)
def test_packets_pass_only_up_to_the_planned_mtu(lab_networks: dict[str, LabNetwork], network: str) -> None:
    lab_network = lab_networks[network]
    target = address_of(lab_network, "sub1")
    size = find(network).mtu(lab_network.plan.cell.datapath_options) - 28

    def ping(payload: int) -> int:
        argv = ["ping", "-n", "-c", "1", "-W", "10", "-M", "do", "-s", str(payload), target]
        return subprocess.run([*enter(lab_network, "pub0"), *argv], capture_output=True).returncode

    assert ping(size) == 0
    assert ping(size + 1) != 0


OUTER = {
    "VXLAN": ("VXLAN", 50),
    "WireGuard": ("WireGuard", 60),
    "IP in IP": ("IP-in-IP", 20),
    "": ("none", 0),
}
"""Encapsulation as a network describes it, to the protocol and the bytes that must be observed."""


@pytest.mark.parametrize("network", NETWORKS)
def test_what_is_observed_is_what_the_network_describes(
    lab_networks: dict[str, LabNetwork], network: str
) -> None:
    lab_network, described = lab_networks[network], find(network)
    found = fingerprint.observe(places.probed(lab_network))
    if described.encapsulation in OUTER:
        assert (found.outer_protocol, found.added_bytes) == OUTER[described.encapsulation]
    else:
        assert found.outer_protocol in ("ESP", "ESP in UDP")
        assert found.added_bytes is not None and found.added_bytes >= 34
    assert found.cleartext == (not described.encryption)
    assert found.multicast == bool(described.multicast)
    assert found.path_mtu_bytes == lab_network.plan.datapath.mtu
    assert found.masqueraded is False
    by_programs = TC_BPF in described.requires
    # Also with `host`: its nodes have the rules of kube-proxy, which packets of tunnels pass with every network.
    filtered = network == "host" or described.layer == "L2 overlay"
    filtered |= described.layer == "L3 routes" and not by_programs
    assert found.conntrack == filtered
    assert found.rules_matched is not None and found.rules is not None
    assert (0 < found.rules_matched < found.rules) == filtered
    assert bool(found.programs) == by_programs
    assert (found.uplink, found.not_observed) == ("eth0", {})


def test_multicast_reaches_whom_the_page_says(lab_networks: dict[str, LabNetwork]) -> None:
    rows = multicast_matrix.measure(lab_networks.values())
    page = multicast_matrix.PAGE.read_text()
    assert multicast_matrix.table(rows, page) in page, "write the page: python -m tests.lab.multicast_matrix"
    for row in rows:
        assert bool(row.flooding.member) == bool(find(row.network).multicast), row


DISTINGUISHABLE = ("flannel-vxlan", "flannel-hostgw", "flannel-wireguard", "kube-router", "weavenet")
"""Networks whose lab objects have the plugin's names, and that link counters can distinguish without privileges."""


@pytest.mark.parametrize("network", DISTINGUISHABLE)
def test_link_counters_identify_the_network(lab_networks: dict[str, LabNetwork], network: str) -> None:
    """The check is that of campaigns on clusters, on the same objects that the plugins create."""
    lab_network = lab_networks[network]
    addresses = {lab_network.node_of(pod): address_of(lab_network, pod) for pod in ("pub0", "sub0")}

    def counters() -> list[datapath.LinkCounters]:
        return [
            datapath.parse_counters(output_of(lab_network, node, *datapath.COMMAND, *addresses.values()))
            for node in addresses
        ]

    before = counters()
    target, size = address_of(lab_network, "sub0"), lab_network.plan.datapath.mtu - 28
    # With a deadline, ping ends when all are answered, however late a busy machine encrypts the last ones.
    ping = ("ping", "-n", "-q", "-c", "40", "-w", "60", "-i", "0.01", "-M", "do", "-s", str(size), target)
    output_of(lab_network, "pub0", *ping)
    one, other = map(datapath.PathEnd, addresses, addresses.values(), before, counters())
    for name in DISTINGUISHABLE:
        install = find(name).cluster
        assert install is not None
        wrong = datapath.deviation(install.path, one, other, 40 * size)
        assert bool(wrong) == (name != network), (name, wrong)


@pytest.mark.parametrize("network", ["calico-bgp", "calico-vxlan"])
def test_calico_pods_are_routed_to_a_gateway_that_no_node_has(
    lab_networks: dict[str, LabNetwork], network: str
) -> None:
    lab_network = lab_networks[network]
    (device,) = json_of(lab_network, "sub0", "ip", "-j", "addr", "show", "dev", "eth0")
    assert [address["prefixlen"] for address in device["addr_info"]] == [32]
    assert "default via 169.254.1.1 dev eth0" in output_of(lab_network, "sub0", "ip", "route")
    output_of(lab_network, "pub0", "ping", "-c", "1", address_of(lab_network, "sub0"))
    (gateway,) = json_of(lab_network, "pub0", "ip", "-j", "neigh", "show", "169.254.1.1")
    assert gateway["lladdr"] == "ee:ee:ee:ee:ee:ee"
    rules = output_of(lab_network, "node0", "nft", "list", "chain", "ip", "filter", "cali-fw-cali-pub0")
    assert any(int(packets) for packets in re.findall(r"counter packets (\d+)", rules))


def test_weave_devices(lab_networks: dict[str, LabNetwork]) -> None:
    lab_network = lab_networks["weavenet"]
    assert link(lab_network, "node1", "vethwe-bridge")["master"] == "weave"
    assert link(lab_network, "node1", "vethwe-datapath")["master"] == "datapath"
    vxlan = link(lab_network, "node1", "vxlan-6784")
    assert vxlan["master"] == "datapath"
    settings = vxlan["linkinfo"]["info_data"]
    assert (settings["port"], settings["learning"]) == (6784, True)
    # What has no known receiver is sent to all other nodes.
    entries = json_of(lab_network, "node1", "bridge", "-j", "fdb", "show", "dev", "vxlan-6784")
    flooded = {entry["dst"] for entry in entries if entry["mac"] == "00:00:00:00:00:00"}
    nodes = lab_network.plan.topology.nodes
    assert flooded == {node.address for node in nodes if node.name != "node1"}
    # Netfilter processes packets on `weave`, but not on `datapath`, as with Open vSwitch.
    assert link(lab_network, "node1", "weave")["linkinfo"]["info_data"]["nf_call_iptables"] == 1
    assert link(lab_network, "node1", "datapath")["linkinfo"]["info_data"]["nf_call_iptables"] == 0


@pytest.mark.parametrize("network", ["cilium-native", "cilium-vxlan"])
def test_bpf_programs_carry_packets_past_the_stack(lab_networks: dict[str, LabNetwork], network: str) -> None:
    lab_network = lab_networks[network]

    def forwarded(node: str) -> int:
        keys, values = output_of(lab_network, node, "cat", "/proc/net/snmp").splitlines()[:2]
        return int(dict(zip(keys.split(), values.split(), strict=True))["ForwDatagrams"])

    before = {node: forwarded(node) for node in ("node0", "node1")}
    target = address_of(lab_network, "sub0")
    output = output_of(lab_network, "pub0", "ping", "-c", "5", "-w", "60", "-i", "0.01", target)
    assert "5 received" in output
    # Two nodes are two hops, as with a router.
    assert "ttl=62" in output or "ttl=63" in output
    assert {node: forwarded(node) for node in before} == before
    # Only packets of the tunnel pass rules, and those are of the node itself.
    tunnel = network == "cilium-vxlan"
    assert bool(output_of(lab_network, "node0", "nft", "list", "ruleset")) == tunnel
    passed = {
        chain: int(packets) > 0
        for chain, packets in re.findall(
            r"^:(INPUT|FORWARD|OUTPUT) ACCEPT \[(\d+):",
            output_of(lab_network, "node0", "iptables-nft-save", "-c", "-t", "filter"),
            re.MULTILINE,
        )
    }
    assert passed == {"INPUT": tunnel, "FORWARD": False, "OUTPUT": tunnel}


def test_every_packet_passes_the_chain_of_its_pod_on_kube_router(lab_networks: dict[str, LabNetwork]) -> None:
    """Until the first answer, packets pass the whole chain of the pod, and are accepted in the tail chain."""
    lab_network = lab_networks["kube-router"]

    def counted(chain: str) -> int:
        rules = output_of(lab_network, "node0", "nft", "list", "chain", "ip", "filter", chain)
        return sum(int(packets) for packets in re.findall(r"counter packets (\d+)", rules.splitlines()[-3]))

    before = {chain: counted(chain) for chain in ("KUBE-POD-FW-PUB0", "KUBE-NWPLCY-TAIL")}
    target = address_of(lab_network, "sub0")
    sender = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    sender += f"for _ in range(20): s.sendto(b'x', ('{target}', 9))"
    output_of(lab_network, "pub0", sys.executable, "-c", sender)
    # The port is closed, so that an ICMP error may answer the first packets; it does not establish the flow.
    assert {chain: counted(chain) - count for chain, count in before.items()} == dict.fromkeys(before, 20)


@pytest.mark.parametrize("network", ["host", *POD_NETWORKS])
def test_pods_have_the_namespaces_of_a_container(lab_networks: dict[str, LabNetwork], network: str) -> None:
    lab_network = lab_networks[network]
    assert output_of(lab_network, "sub0", "hostname").strip() == "sub0"
    processes = output_of(lab_network, "sub0", "ps", "-eo", "comm", "--no-headers").split()
    assert set(processes) <= {"k8sdds-supervis", "ps"}
    kinds = ("mnt", "pid", "uts", "ipc", *([] if network == "host" else ["net"]))
    files = [f"/proc/self/ns/{kind}" for kind in kinds]
    seen = [
        output_of(lab_network, place, "readlink", *files).split()
        for place in ("pub0", "sub0", "sub1", "node1")
    ]
    for namespaces in zip(*seen, strict=True):
        assert len(set(namespaces)) == 4, "those of three pods and of the node"


POLICIES = 20


def test_packets_pass_the_chains_of_all_policies(lab: Lab) -> None:
    """`up` fails unless the policies deny what another node sends, and allow what a participant sends."""
    lab_network = up(lab, cell("kube-router", policies=POLICIES))
    before = marked_by_policies(output_of(lab_network, "node1", "iptables-nft-save", "-c", "-t", "filter"))
    assert len(before) == POLICIES
    target = address_of(lab_network, "sub0")
    send = f"import socket; s=socket.socket(2,2); [s.sendto(b'x', ('{target}', 9)) for _ in range(10)]"
    output_of(lab_network, "pub0", "python3", "-c", send)
    after = marked_by_policies(output_of(lab_network, "node1", "iptables-nft-save", "-c", "-t", "filter"))
    # A flow of UDP without answers stays new, so that no packet takes the shortcut of known connections.
    assert [after[name] - before[name] for name in before] == [10] * POLICIES
    refused = output_of(lab_network, "node1", "iptables-nft-save", "-c", "-t", "filter")
    (reject,) = [line for line in refused.splitlines() if "SUB0 reject" in line]
    assert int(reject[1:].partition(":")[0]) > 0


def marked_by_policies(rules: str) -> dict[str, int]:
    """Return how many packets the first rule of each policy's chain has marked."""
    lines = [line for line in rules.splitlines() if "ingress pods" in line and "-j MARK" in line]
    return {line.partition("-A ")[2].split()[0]: int(line[1:].partition(":")[0]) for line in lines}


def test_baremetal_participants_run_on_the_node(lab_networks: dict[str, LabNetwork]) -> None:
    lab_network = lab_networks["baremetal"]
    assert lab_network.pods == {}
    pod, node = (
        output_of(lab_network, place, "readlink", "/proc/self/ns/net") for place in ("sub0", "node1")
    )
    assert pod == node


def test_packets_do_not_leave_the_lab(lab_networks: dict[str, LabNetwork]) -> None:
    for lab_network in lab_networks.values():
        argv = [*enter(lab_network, "node0"), "ping", "-c", "1", "-W", "1", "192.0.2.1"]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert "unreachable" in (done.stdout + done.stderr).lower()


def test_a_network_with_loss_is_verified(lab: Lab) -> None:
    """Each ping is answered with a probability of 49 %, so a single one per verification would not do."""
    lab_network = up(lab, cell("flannel-vxlan", link=Link(loss_percent=30)))
    for _ in range(4):
        verification.verify(lab_network)


def test_a_link_with_loss_drops_packets(lab: Lab) -> None:
    lab_network = up(lab, cell("host", link=Link(loss_percent=50)))
    target = address_of(lab_network, "sub0")
    sender = "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
    sender += "for i in range(1000): s.sendto(b'x', (sys.argv[1], 9))"
    output_of(lab_network, "pub0", sys.executable, "-c", sender, target)
    table = json_of(lab_network, "node1", "nft", "-j", "list", "table", "netdev", "impairments")["nftables"]
    (rule,) = [item["rule"] for item in table if "rule" in item]
    dropped = next(e["counter"]["packets"] for e in rule["expr"] if "counter" in e)
    # 1000 samples with probability 0.5: outside this range in one of 10^19 runs.
    assert 350 < dropped < 650


def test_a_shaped_link_has_its_rate_at_both_ends(lab: Lab) -> None:
    lab_network = up(lab, cell("host", link=Link(rate_mbit=100)))
    for place, device in (("node1", "eth0"), ("switch", "to-node1")):
        queues = json_of(lab_network, place, "tc", "-j", "qdisc", "show", "dev", device)
        (tbf,) = [queue for queue in queues if queue["kind"] == "tbf"]
        assert tbf["options"]["rate"] == 100_000_000 / 8


def test_a_delayed_link_delays_what_nodes_send(lab: Lab) -> None:
    if not kernel_features.available(NETEM):
        pytest.skip(f"this machine has no {NETEM.name}, {IN_VIRTUAL_MACHINE}")
    lab_network = up(lab, cell("host", link=Link(delay_us=2000, rate_mbit=100)))
    for place, device, delays_s in (("node1", "eth0", [0.002]), ("switch", "to-node1", [])):
        queues = json_of(lab_network, place, "tc", "-j", "qdisc", "show", "dev", device)
        found = [queue["options"]["delay"]["delay"] for queue in queues if queue["kind"] == "netem"]
        assert found == pytest.approx(delays_s)


SWEEPS = """\
  - networks: [calico-bgp, calico-vxlan, cilium-native, cilium-vxlan]
    test: throughput
    payload_bytes: 1024
  - networks: macvlan
    test: throughput
    payload_bytes: 1024
    transport: multicast
    discovery: multicast
"""


def test_samples_of_dds_pass(k8sdds: Command, tmp_path: Path, nothing_left: None) -> None:
    records = measured(k8sdds, tmp_path, experiment(SWEEPS, baseline="calico-bgp", duration_s=0.3))
    assert len(records) == 5 and all(record["throughput_mbps"] > 0 for record in records)


@pytest.mark.long
def test_all_networks_with_ten_nodes_at_the_same_time(lab: Lab) -> None:
    available = [name for name in NETWORKS if not missing_feature(name)]
    lab.up(cell(name, subscribers=12) for name in available)
    assert len(lab.networks) == len(available)
    for lab_network in lab.networks.values():
        assert len(lab_network.plan.topology.nodes) == 10
        assert len(lab_network.plan.datapath.attachments) == 13


def test_a_failing_batch_is_reported_with_namespace_and_line() -> None:
    sandbox = Sandbox("failing")
    try:
        sandbox.run(["ip", "netns", "add", "node0"])
        good = Batch("node0", "ip", ("link set lo up",))
        bad = Batch("node0", "ip", ("link set lo up", "link set missing up"))
        with pytest.raises(PrerequisiteError) as error:
            sandbox.apply([good, bad, good])
        assert "in node0" in str(error.value)
        assert "(line 2: link set missing up)" in str(error.value)
        bad = Batch("node0", "nft", ("table ip t {", "  chain {", "}"))
        with pytest.raises(PrerequisiteError, match=r"`nft` failed: .*syntax error"):
            sandbox.apply([good, bad])
    finally:
        sandbox.close()
