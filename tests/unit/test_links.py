"""MTU and offloads of the nodes' links: axes of an experiment, ids, records and what the lab plans."""

from __future__ import annotations

from typing import Any

import pytest

from k8sdds import links
from k8sdds.campaign import experiments, start
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.experiments import Changes
from k8sdds.model.experiment import Experiment
from k8sdds.model.link import Link
from k8sdds.model.link_choice import LinkChoice
from k8sdds.model.offloads import CARD, Bond, Offloads, parse_features
from k8sdds.model.trial import AXES, Cell
from k8sdds.networks import NETWORKS, find
from k8sdds.system import kernel_features, yaml_text
from k8sdds.testbeds.cluster import preflight
from k8sdds.testbeds.lab.plan import make_plan
from k8sdds.testbeds.lab.preflight import needed_features
from k8sdds.testbeds.lab.testbed import with_card_offloads
from tests.unit import builders


def cell(network: str, **link: Any) -> Cell:
    return builders.cell(network=network, link=Link(**link))


def expanded(link: dict[str, Any]) -> tuple[Cell, ...]:
    return expand(builders.experiment(link=link)).cells


def test_lists_of_mtus_offloads_and_members_are_combined() -> None:
    gro: list[dict[str, bool]] = [{}, {"gro": True}]
    cells = expanded({"rate_mbit": 100, "mtu": [1500, 9000], "offloads": gro, "lag": [1, 2]})
    links = {(cell.link.mtu, cell.link.offloads.gro, cell.link.lag) for cell in cells}
    assert links == {(mtu, gro, lag) for mtu in (1500, 9000) for gro in (None, True) for lag in (1, 2)}
    assert {cell.link.rate_mbit for cell in cells} == {100}
    assert len(cells) == len({cell.cell_id for cell in cells}) == 8


def test_a_cell_with_the_usual_link_has_the_id_that_it_always_had() -> None:
    for link in ({}, {"lag": 1}):
        (plain,) = expanded(link)
        assert "link" not in plain.canonical()
    assert make_plan(cell("flannel-vxlan", lag=1)) == make_plan(cell("flannel-vxlan"))
    assert AXES["link"].recorded(Link(rate_mbit=100)) == {"rate_mbit": 100, "loss_percent": 0, "delay_us": 0}
    assert AXES["link"].recorded(Link(mtu=9000, offloads=Offloads(tso=False)))["offloads"] == {"tso": False}
    assert AXES["link"].recorded(Link(lag=2))["lag"] == 2 and "LAG of 2" in Link(lag=2).describe()


def test_a_value_listed_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="listed twice"):
        LinkChoice(mtu=[1500, 1500])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_mtu_of_pods_follows_that_of_the_links(name: str) -> None:
    network = find(name)
    usual, jumbo = cell(name).datapath_options, cell(name, mtu=9000).datapath_options
    fixed = network.engine_for({}) is not None and network.engine_for({}).fixed_mtu  # type: ignore[union-attr]
    assert network.mtu(jumbo) - network.mtu(usual) == (0 if fixed else 7500)
    assert network.options_error(jumbo) is None


def test_an_mtu_that_does_not_fit_the_links_names_them() -> None:
    error = find("flannel-vxlan").options_error({"mtu": 8951, "link_mtu": 9000})
    assert error is not None
    assert "links carry 9000 bytes" in error[0]
    assert error[0].endswith("leaves at most 8950")


def test_what_a_link_does_not_have_is_named() -> None:
    link = Link(mtu=9000, offloads=Offloads(gro=True, tso=False))
    features = parse_features("generic-receive-offload: off [fixed]\ntcp-segmentation-offload: off\n")
    assert link.differing(1500, features) == "an MTU of 1500, not of 9000, generic-receive-offload off"
    assert link.differing(9000, {**features, "generic-receive-offload": True}) == ""
    bonded = Link(lag=2)
    assert bonded.differing(1500, {}, Bond(2)) == ""
    assert bonded.differing(1500, {}) == "no bond, not LAG of 2 (balance-xor, layer3+4)"
    assert Link().differing(1500, {}, Bond(2)).endswith("not no bond")


def test_the_lab_bonds_the_members_of_a_link_at_both_ends() -> None:
    plan = make_plan(cell("host", lag=2, rate_mbit=100, offloads=Offloads(tso=False)))
    lines = {batch.namespace: batch.lines for batch in plan.batches if batch.tool == "ip"}
    bond = "type bond mode balance-xor xmit_hash_policy layer3+4"
    switch = [line for line in lines["switch"] if "node0" in line]
    assert switch[0].endswith(bond)
    assert [line.split()[2] for line in switch[1:3]] == ["to-node0-0", "to-node0-1"]
    assert switch[3:] == [
        "link set to-node0-0 master to-node0",
        "link set to-node0-1 master to-node0",
        "link set to-node0 master br0 up",
    ]
    assert f"link add eth0 mtu 1500 address 02:77:00:00:00:00 {bond}" in lines["node0"]
    queues = [line for batch in plan.batches if batch.tool == "tc" for line in batch.lines]
    shaped = [line.split()[3] for line in queues if "node1" not in line]
    # A rate is that of each member, at both ends.
    assert shaped == ["port0", "port1"] * 2 + ["to-node0-0", "to-node0-1"]
    set_on = [line.split()[1] for batch in plan.batches if batch.tool == "ethtool" for line in batch.lines]
    assert set_on == ["port0", "port1", "eth0"] * 2


def test_the_lab_needs_bonding_and_a_cluster_refuses_it() -> None:
    bonded = cell("host", lag=2)
    assert kernel_features.BONDING in needed_features(bonded)
    assert kernel_features.BONDING not in needed_features(cell("host"))
    (refused,) = preflight.unsupported([bonded], can_switch=False)
    assert refused.what.startswith("LAG of 2") and "only in the lab" in refused.what


def written(link: dict[str, Any]) -> Experiment:
    """Return an experiment with a DDS and a TCP test in one sweep."""
    sweep = {"networks": ["host"], "test": ["throughput", "tcp-stream"]}
    return builders.experiment(sweep, link=link)


def resolved(link: dict[str, Any]) -> Experiment:
    """Return it as the lab resolves it."""
    return with_card_offloads(written(link))


def test_links_with_a_rate_have_the_offloads_of_a_card_in_tcp_tests_of_the_lab() -> None:
    by_test = {cell.test: cell for cell in expand(resolved({"rate_mbit": 1000})).cells}
    assert by_test["throughput"].link == Link(rate_mbit=1000)
    assert by_test["tcp-stream"].link == Link(rate_mbit=1000, offloads=CARD)
    assert {cell.link for cell in expand(resolved({})).cells} == {Link()}


def test_changes_on_the_command_line_keep_the_offloads_of_a_card() -> None:
    changed = experiments.changed(written({"rate_mbit": 1000}), Changes(settings=["repetitions=2"]))
    by_test = {cell.test: cell for cell in expand(with_card_offloads(changed)).cells}
    assert by_test["tcp-stream"].link == Link(rate_mbit=1000, offloads=CARD)
    replaced = experiments.changed(
        written({"rate_mbit": 9}), Changes(settings=["link=[{like: lte}, {mtu: 9000}]"])
    )
    several = with_card_offloads(links.resolved(replaced))
    found = {(cell.test, cell.link.name, cell.link.offloads) for cell in expand(several).cells}
    assert found == {
        ("throughput", "lte", Offloads()), ("throughput", "", Offloads()),
        ("tcp-stream", "lte", CARD), ("tcp-stream", "", Offloads()),
    }  # fmt: skip


def test_offloads_of_an_experiment_replace_those_of_a_card() -> None:
    # The experiment.yaml of each run folder lists all defaults, so that older ones give the cells that they gave.
    assert {cell.link for cell in expand(resolved({"offloads": [{}]})).cells} == {Link()}
    assert {cell.link.offloads for cell in expand(resolved({"rate_mbit": 9, "offloads": [{}]})).cells} == {
        Offloads()
    }
    text = start.experiment_yaml(resolved({"rate_mbit": 9}))
    again = Experiment.model_validate(yaml_text.load(text, "experiment.yaml"), context=experiments.KNOWN)
    assert expand(again).cells == expand(resolved({"rate_mbit": 9})).cells
