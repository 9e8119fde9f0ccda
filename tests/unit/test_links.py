"""MTU and offloads of the nodes' links: axes of an experiment, ids, records and what the lab plans."""

from __future__ import annotations

from typing import Any

import pytest

from k8sdds.analysis import conditions
from k8sdds.campaign import experiments
from k8sdds.campaign.expansion import expand
from k8sdds.model.experiment import Experiment
from k8sdds.model.link import Link, LinkChoice, Offloads, parse_features
from k8sdds.model.trial import Cell
from k8sdds.networks import NETWORKS, find
from k8sdds.testbeds.lab.plan import make_plan


def cell(network: str, **link: Any) -> Cell:
    return Cell(network=network, test="throughput", payload_bytes=1024, link=Link(**link))


def expanded(link: dict[str, Any]) -> tuple[Cell, ...]:
    data = {"name": "x", "link": link, "sweeps": [{"networks": ["host"]}]}
    return expand(Experiment.model_validate(data, context=experiments.KNOWN)).cells


def test_lists_of_mtus_and_offloads_are_combined() -> None:
    cells = expanded({"rate_mbit": 100, "mtu": [1500, 9000], "offloads": [{}, {"gro": True}]})
    assert [(cell.link.mtu, cell.link.offloads.gro) for cell in cells] == [
        (1500, None),
        (1500, True),
        (9000, None),
        (9000, True),
    ]
    assert {cell.link.rate_mbit for cell in cells} == {100}
    assert len({cell.cell_id for cell in cells}) == 4


def test_a_cell_with_the_usual_link_has_the_id_that_it_always_had() -> None:
    (plain,) = expanded({})
    assert "link" not in plain.canonical()
    assert Link(rate_mbit=100).recorded() == {"rate_mbit": 100, "loss_percent": 0, "delay_us": 0}
    assert Link(mtu=9000, offloads=Offloads(tso=False)).recorded()["offloads"] == {"tso": False}


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


def test_the_lab_sets_both_ends_of_a_link_and_its_offloads() -> None:
    plan = make_plan(cell("flannel-vxlan", mtu=9000, offloads=Offloads(gro=True, tunnel=False)))
    links = [line for batch in plan.batches for line in batch.lines if "to-node0" in line]
    assert "mtu 9000 type veth peer name eth0 mtu 9000" in links[0]
    assert [(batch.namespace, batch.lines) for batch in plan.batches if batch.tool == "ethtool"] == [
        (
            node,
            (
                "-K eth0 generic-receive-offload on tx-udp_tnl-segmentation off"
                " tx-udp_tnl-csum-segmentation off",
            ),
        )
        for node in ("node0", "node1")
    ]


def test_what_a_link_does_not_have_is_named() -> None:
    link = Link(mtu=9000, offloads=Offloads(gro=True, tso=False))
    features = parse_features("generic-receive-offload: off [fixed]\ntcp-segmentation-offload: off\n")
    assert link.differing(1500, features) == "an MTU of 1500, not of 9000, generic-receive-offload off"
    assert link.differing(9000, {**features, "generic-receive-offload": True}) == ""


def test_tables_name_the_links() -> None:
    text = '{"rate_mbit":null,"loss_percent":0,"delay_us":0,"mtu":9000,"offloads":{"tso":false}}'
    assert conditions.describe({"link": text}) == "links MTU 9000, tso off"
