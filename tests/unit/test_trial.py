"""Test participants, the expansion of experiments into cells and trials, and the stability of ids."""

import json
from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k8sdds.campaign.expansion import expand
from k8sdds.model.experiment import Experiment, Sweep
from k8sdds.model.settings import NetworkChoice
from k8sdds.model.trial import Cell, Participant
from k8sdds.testbeds import repetitions
from tests.unit import builders

PLAIN = Cell(network="host", test="throughput", payload_bytes=1024)


def experiment(**sweep: object) -> Experiment:
    return Experiment(name="e", sweeps=[Sweep(**{"networks": ["host"], **sweep})])


def test_ids_of_existing_results_never_change() -> None:
    # Written into run folders that users keep: a change here breaks every comparison with them.
    assert PLAIN.cell_id == "e476146b7ea4"
    weave = Cell(
        network="weavenet", network_options={"mtu": 1376}, label="weavenet-1376", test="throughput", payload_bytes=1024
    )  # fmt: skip
    assert weave.cell_id == "b2a56ddddaa8"
    assert builders.trial(PLAIN, repetition=2).trial_id == "e476146b7ea4-lab-r2"


def test_options_of_a_test_are_part_of_the_id_only_if_given() -> None:
    assert PLAIN.model_copy(update={"test_options": {}}).cell_id == PLAIN.cell_id
    assert PLAIN.model_copy(update={"test_options": {"size": 3}}).cell_id != PLAIN.cell_id


def test_a_throughput_test_that_times_no_samples_is_the_cell_that_it_always_was() -> None:
    plain, asked, declined = (
        expand(experiment(test=test)).cells[0]
        for test in (
            "throughput",
            *({"name": "throughput", "loaded_latency": value} for value in (True, False)),
        )
    )
    assert declined == plain and plain.test_options == {}
    assert asked.test_options == {"loaded_latency": True} and asked.cell_id != plain.cell_id


def test_a_test_may_be_a_name_or_a_mapping() -> None:
    (by_name,) = expand(experiment(test="latency")).cells
    (by_mapping,) = expand(experiment(test={"name": "latency"})).cells
    assert by_mapping == by_name
    assert experiment(test="latency").model_dump(mode="json")["sweeps"][0]["test"] == ["latency"]


def test_the_default_discovery_is_the_same_cell() -> None:
    kinds = expand(experiment(discovery=["auto", "peers", "multicast", "server"])).cells
    assert [cell.discovery for cell in kinds] == ["auto", "multicast", "server"]
    assert kinds[0].cell_id == PLAIN.cell_id
    assert [cell.discovery_kind for cell in kinds] == ["peers", "multicast", "server"]
    (usual,) = expand(experiment(transport=["multicast"], discovery=["multicast"])).cells
    assert (usual.discovery, usual.discovery_kind) == ("auto", "multicast")


def test_defaults_are_left_out_of_the_id() -> None:
    assert json.loads(PLAIN.canonical()) == {"network": "host", "test": "throughput", "payload_bytes": 1024}
    spelled_out = PLAIN.model_copy(update={"rate": 0.0, "layout": "split"})
    assert spelled_out.cell_id == PLAIN.cell_id


def test_ids_ignore_durations() -> None:
    long = builders.trial(PLAIN, duration_s=120, warmup_s=5)
    assert builders.trial(PLAIN).trial_id == long.trial_id


def test_two_labels_of_one_network_are_two_cells() -> None:
    choices = [NetworkChoice(name="host", label="a"), NetworkChoice(name="host", label="b")]
    assert len(expand(experiment(networks=choices)).cells) == 2


def test_a_cell_of_two_sweeps_is_measured_once() -> None:
    one = Sweep(networks=["host"], payload_bytes=[64, 1024])
    two = Sweep(networks=["host"], payload_bytes=[1024, 4096])
    assert len(expand(Experiment(name="e", sweeps=[one, two])).cells) == 3


def test_default_layout_follows_the_test() -> None:
    cells = expand(experiment(test=["throughput", "latency"])).cells
    assert [cell.layout for cell in cells] == ["split", "same"]
    assert [
        cell.layout for cell in expand(experiment(test=["throughput", "latency"], layout="free")).cells
    ] == ["free"] * 2


def test_nodes_default_to_one_per_participant_up_to_ten() -> None:
    assert PLAIN.node_count == 2
    assert PLAIN.model_copy(update={"subscribers": 12}).node_count == 10


def test_qos_follows_reliability_unless_given() -> None:
    assert PLAIN.qos_profile == "strict-reliable"
    assert PLAIN.model_copy(update={"reliability": "best-effort"}).qos_profile == "best-effort"
    assert PLAIN.model_copy(update={"qos": "batched"}).qos_profile == "batched"


cells = st.builds(
    Cell,
    network=st.sampled_from(["host", "kube-router"]),
    test=st.sampled_from(["throughput", "latency"]),
    payload_bytes=st.integers(28, 10**6),
    subscribers=st.integers(1, 100),
    rate=st.floats(0, 1e6),
    transport=st.sampled_from(["unicast", "multicast"]),
    nodes=st.none() | st.integers(2, 64),
    ip_families=st.permutations(["ipv4", "ipv6"]).map(tuple) | st.sampled_from([("ipv4",), ("ipv6",)]),
)


@given(cells)
def test_a_cell_round_trips_through_json(cell: Cell) -> None:
    again = Cell.model_validate_json(cell.model_dump_json())
    assert again == cell
    assert again.cell_id == cell.cell_id


@given(cells, cells)
def test_different_cells_have_different_ids(one: Cell, other: Cell) -> None:
    assert (one == other) == (one.cell_id == other.cell_id)


@pytest.mark.parametrize("name", ["pub0", "sub3", "sub12", "discovery"])
def test_participant_by_name(name: str) -> None:
    assert Participant.named(name).name == name


@pytest.mark.parametrize("name", ["pub", "sub01", "pub-1", "publisher0", "discovery0", ""])
def test_names_of_no_participant(name: str) -> None:
    with pytest.raises(ValueError, match="no participant"):
        Participant.named(name)


def test_participants_are_ordered_by_role_and_number() -> None:
    cell = PLAIN.model_copy(update={"publishers": 2, "subscribers": 11})
    assert sorted(reversed(cell.participants)) == cell.participants


def test_the_networks_of_a_condition_follow_each_other_in_random_order() -> None:
    sweep = {"networks": ["host", "flannel-vxlan", "weavenet"], "test": ["throughput", "latency"]}
    cells = expand(experiment(**sweep, payload_bytes=[64, 1024])).cells
    trials = [builders.trial(cell, repetition=number) for number in range(300) for cell in cells]
    place = {id(cell): number for number, cell in enumerate(cells)}
    conditions = {id(cell): cell.condition for cell in cells}
    blocks = repetitions(trials, seed=1)
    assert len(blocks) == 300
    first = Counter(block.trials[0].cell.cell_id for block in blocks)
    for number, block in enumerate(blocks):
        assert {trial.repetition for trial in block.trials} == {number}
        assert sorted(place[id(trial.cell)] for trial in block.trials) == list(range(len(cells)))
        groups = [list(group) for _, group in groupby(block.trials, lambda trial: conditions[id(trial.cell)])]
        assert [len({trial.cell.network for trial in group}) for group in groups] == [3] * 4
    # Expected 25 of 300 for each cell, with a standard deviation of 4.8.
    assert len(first) == len(cells) and max(first.values()) < 50 and min(first.values()) > 5
