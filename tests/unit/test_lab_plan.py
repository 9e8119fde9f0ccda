"""Topologies, datapaths and core layouts as data, without access to the machine."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k8sdds import claims
from k8sdds.campaign import experiments
from k8sdds.model.link import Link
from k8sdds.model.placement import spread
from k8sdds.model.trial import FIRST_PUBLISHER
from k8sdds.networks import NETWORKS
from k8sdds.testbeds import core_layout
from k8sdds.testbeds.lab.plan import Plan, make_plan, script
from k8sdds.testbeds.lab.topology import key_of
from tests.unit.builders import cell


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


@settings(max_examples=40)
@given(st.sampled_from(sorted(NETWORKS)), st.integers(1, 60), st.integers(2, 30))
def test_addresses_are_unique_within_a_lab_network(network: str, subscribers: int, nodes: int) -> None:
    built = made(network, subscribers=subscribers, nodes=nodes)
    attachments = built.datapath.attachments
    assert set(attachments) == {pod.name for pod in built.topology.pods}
    if network not in ("host", "baremetal"):
        addresses = [attachment.address for attachment in attachments.values()]
        assert len(set(addresses)) == len(addresses)
    for name, attachment in attachments.items():
        assert attachment.namespace in built.namespaces, name


# -- datapaths --------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_the_script_contains_the_whole_plan(network: str) -> None:
    built = made(network, subscribers=3)
    text = script(built)
    for batch in built.batches:
        for line in batch.lines:
            assert line.strip() in text
    assert text.count("ip netns add") == len(built.namespaces)


def test_trials_share_a_lab_network_if_only_payload_or_test_differ() -> None:
    assert key_of(cell(payload_bytes=64)) == key_of(cell(test="latency", transport="multicast"))
    assert key_of(cell()) != key_of(cell(subscribers=2))
    assert key_of(cell()) != key_of(cell(link=Link(rate_mbit=100)))


# -- cores ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "subscribers", "available", "expected", "harness", "includes_scheduling"),
    [
        ("split", 1, (0, 1), [(0,), (1,)], None, False),
        ("split", 3, (0, 1), [(0,), (1,), (1,), (1,)], None, True),
        # With four cores, one is reserved for the harness.
        ("split", 2, (0, 1, 2, 3), [(0,), (1,), (2,)], (3,), False),
        ("split", 3, (0, 1, 2, 3), [(0,), (1,), (2,), (1,)], (3,), True),
        ("split", 1, (3,), [(3,), (3,)], None, False),
        ("same", 1, (0, 1), [(0,), (0,)], None, False),
        ("free", 1, (0, 1), [None, None], None, False),
    ],
)
def test_participants_have_the_cores_of_the_layout(
    name: str,
    subscribers: int,
    available: tuple[int, ...],
    expected: list[tuple[int, ...] | None],
    harness: tuple[int, ...] | None,
    includes_scheduling: bool,
) -> None:
    names = ["pub0", *(f"sub{number}" for number in range(subscribers))]
    cpus = dict(zip(names, expected, strict=True))
    assert core_layout.assign(name, 1, subscribers, available) == core_layout.Layout(
        cpus, harness, includes_scheduling=includes_scheduling
    )


def test_nodes_of_a_graph_share_all_cores() -> None:
    # 7 of 20 nodes only publish. By role, the 13 others would share one core.
    layout = core_layout.assign("split", 7, 13, tuple(range(8)), by_role=False)
    used = Counter(layout.cpus.values())
    assert set(used) == {(core,) for core in range(7)} and set(used.values()) == {2, 3}
    assert layout.harness == (7,) and layout.includes_scheduling
    assert not core_layout.assign("split", 1, 2, tuple(range(8)), by_role=False).includes_scheduling
    assert core_layout.assign("same", 1, 2, (0, 1), by_role=False).cpus["sub1"] == (0,)


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
