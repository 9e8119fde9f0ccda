"""Topologies, datapaths and core layouts as data, without access to the machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds import claims
from k8sdds.campaign import experiments
from k8sdds.model.link import Link
from k8sdds.model.placement import spread
from k8sdds.model.trial import FIRST_PUBLISHER, Cell
from k8sdds.networks import NETWORKS, find
from k8sdds.system.errors import InputError
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.lab.plan import Plan, make_plan, script
from k8sdds.testbeds.lab.topology import LabNetworkKey, topology_of


def cell(network: str = "host", **changes: object) -> Cell:
    return Cell(**{"network": network, "test": "throughput", "payload_bytes": 1024, **changes})


def made(network: str, **changes: object) -> Plan:
    return make_plan(cell(network, **changes))


def lines(built: Plan, namespace: str, tool: str = "ip") -> list[str]:
    return [
        line
        for batch in built.batches
        if batch.namespace == namespace and batch.tool == tool
        for line in batch.lines
    ]


# -- placement --------------------------------------------------------------------------------------


def test_subscribers_avoid_the_publishers_node() -> None:
    places = spread(publishers=1, subscribers=12, nodes=10)
    assert places[FIRST_PUBLISHER] == 0
    counts = [list(places.values()).count(node) for node in range(10)]
    assert counts == [1, 2, 2, 2, 1, 1, 1, 1, 1, 1]


@given(st.integers(1, 8), st.integers(1, 40), st.integers(2, 12))
def test_spread_uses_only_existing_nodes(publishers: int, subscribers: int, nodes: int) -> None:
    places = spread(publishers, subscribers, nodes)
    assert len(places) == publishers + subscribers
    assert set(places.values()) <= set(range(nodes))
    if publishers < nodes:
        pub_nodes = {node for item, node in places.items() if item.publishes}
        assert not any(node in pub_nodes for item, node in places.items() if item.subscribes)


def test_explicit_placement() -> None:
    topology = topology_of(cell(placement={"pub0": 1, "sub0": 0}))
    assert {pod.name: pod.node for pod in topology.pods} == {"pub0": 1, "sub0": 0}
    with pytest.raises(InputError, match="has no node for sub1"):
        topology_of(cell(subscribers=2, placement={"pub0": 0, "sub0": 1}))
    with pytest.raises(InputError, match="no node 7"):
        topology_of(cell(placement={"pub0": 0, "sub0": 7}))


@given(st.sampled_from(sorted(NETWORKS)), st.integers(1, 60), st.integers(2, 30))
def test_addresses_are_unique_within_a_lab_network(network: str, subscribers: int, nodes: int) -> None:
    built = made(network, subscribers=subscribers, nodes=nodes)
    attachments = built.datapath.attachments
    assert set(attachments) == set(built.key.pods)
    if network not in ("host", "baremetal"):
        addresses = [attachment.address for attachment in attachments.values()]
        assert len(set(addresses)) == len(addresses)
    for name, attachment in attachments.items():
        assert attachment.namespace in built.namespaces, name


# -- datapaths --------------------------------------------------------------------------------------


def test_flannel_vxlan_has_the_device_of_flanneld() -> None:
    built = made("flannel-vxlan", nodes=3)
    assert (
        "link add flannel.1 mtu 1450 address 02:f1:00:00:00:00"
        " type vxlan id 1 dev eth0 local 192.168.77.10 dstport 8472 nolearning"
    ) in lines(built, "node0")
    assert "route add 10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink" in lines(built, "node0")
    assert lines(built, "node0", "bridge") == [
        "fdb add 02:f1:00:00:00:01 dev flannel.1 dst 192.168.77.11 self permanent",
        "fdb add 02:f1:00:00:00:02 dev flannel.1 dst 192.168.77.12 self permanent",
    ]


def test_host_gateway_and_kube_router_route_through_node_addresses() -> None:
    assert "route add 10.244.1.0/24 via 192.168.77.11 dev eth0" in lines(made("flannel-hostgw"), "node0")
    assert "route add 10.244.1.0/24 via 192.168.77.11 dev eth0 proto 17" in lines(
        made("kube-router"), "node0"
    )


def test_kube_router_has_the_rules_of_the_daemon() -> None:
    """The real daemon (2.11.1) creates 39 rules with one pod on a node, and 15 more with each other pod."""
    for subscribers, rules in ((1, 39), (10, 174)):
        built = made("kube-router", subscribers=subscribers, nodes=2)
        own = [
            line
            for line in lines(built, "node1", "iptables")
            if line.startswith("-A ") and line not in lines(made("host"), "node1", "iptables")
        ]
        assert len(own) == rules
    assert "rule add from 10.244.1.0/24 lookup 77" in lines(built, "node1")


def test_policy_chains_come_before_those_of_kube_proxy() -> None:
    for network, first in (
        ("kube-router", "-j KUBE-ROUTER-FORWARD"), ("weavenet", "-j WEAVE-NPC-EGRESS"),
        ("calico-ipip", "-j cali-FORWARD"), ("flannel-vxlan", "-j KUBE-PROXY-FIREWALL"),
    ):  # fmt: skip
        forward = [
            line for line in lines(made(network), "node0", "iptables") if line.startswith("-A FORWARD")
        ]
        assert forward[0].endswith(first), network


def test_programs_of_cilium_derive_devices_from_the_plan() -> None:
    built = made("cilium-native", subscribers=3, nodes=2)
    (compiled,) = built.datapath.bpf_objects
    assert "FIRST_POD = 2, FIRST_DEVICE = 100, TUNNEL_DEVICE = 99" in compiled.source
    assert built.datapath.attachments["sub2"].address == "10.244.1.4"
    assert any("lxc-sub2 index 102 " in line for line in lines(built, "node1"))
    assert sum("section from-pod-native" in line for line in lines(built, "node1", "tc")) == 3


def test_loss_is_refused_where_its_rule_misses_the_packets() -> None:
    exempt = {
        (name, engine)
        for name, network in NETWORKS.items()
        for engine in ("kernel", "userspace")
        if network.loss_exemption_with({"engine": engine})
    }
    networks = {name for name, engine in exempt if (name, "userspace") in exempt}
    assert networks == {"calico-ipip", "cilium-native"}
    assert {name for name, _ in exempt} - networks == {"flannel-ipsec", "weavenet-encrypt"}


@pytest.mark.parametrize("part", ["light", "dark", "marker"])
def test_networks_have_distinct_colors_and_markers(part: str) -> None:
    shown = [getattr(network.color, part) for network in NETWORKS.values()]
    assert len(set(shown)) == len(shown)


def test_weave_floods_to_every_peer() -> None:
    flooding = lines(made("weavenet", nodes=4), "node1", "bridge")
    assert flooding == [
        f"fdb append 00:00:00:00:00:00 dev vxlan-6784 dst 192.168.77.{10 + peer} self permanent"
        for peer in (0, 2, 3)
    ]


def test_experiments_of_the_study_have_its_mtu_of_kube_router() -> None:
    """The study reports 1480, and the daemon of today has the MTU of the link."""
    of_the_study = {claim.experiment for claim in claims.load().claims}
    mtus: dict[str, set[int | None]] = {}
    for name in experiments.EXPERIMENTS.names():
        experiment = experiments.load(name)
        for choice in (choice for sweep in experiment.sweeps for choice in sweep.networks):
            if choice.name == "kube-router":
                mtus.setdefault("paper" if name in of_the_study else "other", set()).add(choice.mtu)
    assert mtus == {"paper": {1480}, "other": {None}}


def test_a_too_large_mtu_is_rejected() -> None:
    assert find("weavenet").options_error({"mtu": 1376}) is None
    assert "at most 1450" in str(find("weavenet").options_error({"mtu": 1451}))


def test_links_are_shaped_at_both_ends_and_delayed_at_one() -> None:
    built = made("host", link=Link(rate_mbit=100, delay_us=500))
    assert lines(built, "node0", "tc") == [
        "qdisc replace dev eth0 root handle 1: tbf rate 100000kbit burst 16kb latency 50ms",
        "qdisc add dev eth0 parent 1: netem delay 500us limit 100000",
    ]
    assert all("tbf" in line for line in lines(built, "switch", "tc"))


def test_loss_is_a_rule_on_the_link_of_each_node() -> None:
    (rule,) = lines(made("host", link=Link(loss_percent=0.5)), "node1", "nft")
    assert "numgen random mod 100000 < 500 counter drop" in rule


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_the_script_contains_the_whole_plan(network: str) -> None:
    built = made(network, subscribers=3)
    text = script(built)
    for batch in built.batches:
        for line in batch.lines:
            assert line.strip() in text
    assert text.count("ip netns add") == len(built.namespaces)


def test_trials_share_a_lab_network_if_only_payload_or_test_differ() -> None:
    assert LabNetworkKey.of(cell(payload_bytes=64)) == LabNetworkKey.of(
        cell(test="latency", transport="multicast")
    )
    assert LabNetworkKey.of(cell()) != LabNetworkKey.of(cell(subscribers=2))
    assert LabNetworkKey.of(cell()) != LabNetworkKey.of(cell(link=Link(rate_mbit=100)))


def test_an_unknown_network_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'flannel-vxlan'"):
        find("flannel-vxlann")


# -- cores ------------------------------------------------------------------------------------------


def test_split_on_two_cores() -> None:
    layout = core_layout.assign("split", 1, 1, (0, 1))
    assert layout == core_layout.Layout({"pub0": (0,), "sub0": (1,)}, None, includes_scheduling=False)


def test_more_subscribers_than_cores_include_scheduling() -> None:
    layout = core_layout.assign("split", 1, 12, (0, 1))
    assert {layout.cpus[f"sub{i}"] for i in range(12)} == {(1,)}
    assert layout.includes_scheduling


def test_with_four_cores_one_is_reserved_for_the_harness() -> None:
    layout = core_layout.assign("split", 1, 2, (0, 1, 2, 3))
    assert layout == core_layout.Layout(
        {"pub0": (0,), "sub0": (1,), "sub1": (2,)}, (3,), includes_scheduling=False
    )


def test_same_pins_to_one_core_and_free_to_none() -> None:
    assert set(core_layout.assign("same", 1, 1, (0, 1)).cpus.values()) == {(0,)}
    assert not core_layout.assign("same", 1, 1, (0, 1)).includes_scheduling
    assert set(core_layout.assign("free", 1, 1, (0, 1)).cpus.values()) == {None}


def test_any_layout_works_with_one_core() -> None:
    assert set(core_layout.assign("split", 1, 1, (3,)).cpus.values()) == {(3,)}


@given(
    st.sampled_from(["free", "same", "split"]), st.integers(1, 9), st.integers(1, 30),
    st.sets(st.integers(0, 255), min_size=1, max_size=16),
)  # fmt: skip
def test_participants_are_pinned_only_to_available_cores(
    name: str, publishers: int, subscribers: int, available: set[int]
) -> None:
    layout = core_layout.assign(name, publishers, subscribers, tuple(sorted(available)))
    assert len(layout.cpus) == publishers + subscribers
    for cpus in layout.cpus.values():
        assert cpus is None or set(cpus) <= available


@pytest.mark.parametrize(
    ("cpus", "text"),
    [((), "00000000"), ((0,), "00000001"), ((1,), "00000002"), ((0, 33), "00000002,00000001")],
)
def test_masks_have_the_format_of_sysfs(cpus: tuple[int, ...], text: str) -> None:
    assert core_layout.mask(cpus) == text
