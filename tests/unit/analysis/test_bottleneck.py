"""What limits a flow of a graph, by the counters of a recorded trial of three nodes."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k8sdds.analysis import bottleneck
from k8sdds.model.graph import Graph, parse
from k8sdds.results import tidy
from tests.unit.test_attempt import Recording

Record = dict[str, Any]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording("graph", tmp_path / "attempt")


@pytest.fixture
def record(recording: Recording) -> Record:
    """The trial as if nothing else had run on its machine."""
    record = recording.record() | {"machine_cpu_percent": 20.0}
    for name, place in (("driver", "node0"), ("planner", "node1"), ("motor", "node0")):
        record["by_node"][name]["machine"] = place
    for flow in record["by_flow"].values():
        flow["late"] = 0
    (row,) = tidy.of([record])
    return row


@pytest.fixture
def graph(recording: Recording) -> Graph:
    return parse(recording.trial.cell.graph)


def test_nothing_limits_a_flow_that_is_served(graph: Graph, record: Record) -> None:
    assert bottleneck.find(graph, ["scan", "command"], [record]) is None


def set_node(node: str, **values: Any) -> Callable[[Record], None]:
    return lambda record: record["by_node"][node].update(values)


def drop_in_queue(record: Record) -> None:
    record["link_conditions"] = {
        "node1": {"up": {"queue_drops": 7}, "down": {"queue_drops": 5, "lost": None}}
    }


def be_busy(record: Record) -> None:
    record["machine_cpu_percent"] = 97.0


def be_late(record: Record) -> None:
    record["by_flow"]["command"].update(sent=190, late=30, scheduled=200)


CASES = {
    "throttled": (set_node("planner", throttled_percent=4.0, cpu_percent=95.0), "CPU",
                  "its CPU limit stopped planner for 4 % of the time"),
    "node": (set_node("motor", cpu_percent=120.0, receive_buffer_errors=5), "CPU", "motor uses 120 % of a core"),
    "cores": (set_node("planner", cores_percent=99.0), "CPU", "planner and the nodes on the same cores use 99 %"),
    "queue": (drop_in_queue, "network", "the full queue of the link of node1 dropped 12 packets"),
    "interface": (set_node("driver", interface_drops=3), "network", "the interface of driver dropped 3 packets"),
    "machine": (be_busy, "CPU", "the machine of the first publisher uses 97 % of all of its cores"),
    "buffer": (set_node("motor", receive_buffer_errors=1234), "queue", "no room for 1,234 datagrams that it receives"),
    "late": (be_late, "queue", "planner sent 20 % of the samples of command more than a period late, or never"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_full_resource_is_named(case: str, graph: Graph, record: Record) -> None:
    change, what, seen = CASES[case]
    change(record)
    found = bottleneck.find(graph, ["scan", "command"], [record])
    assert found is not None and found.what == what and seen in found.seen and found.change


def test_a_link_without_counters_is_full_if_the_samples_fill_it(graph: Graph, record: Record) -> None:
    # Scans of 4 KiB at 200 Hz are 6.55 Mbit/s, samples of 64 bytes at 100 Hz 0.05 Mbit/s.
    record["link_rate_mbit"] = 7.0
    found = bottleneck.find(graph, ["scan"], [record])
    assert found and found.what == "network" and "samples of 6.6 Mbit/s in one direction" in found.seen
    # Multicast sends no copy for each subscriber.
    assert bottleneck.find(graph, ["scan"], [record | {"transport": "multicast"}]) is None
    record["link_rate_mbit"] = 8.0
    assert bottleneck.find(graph, ["scan"], [record]) is None


def test_counters_of_other_nodes_do_not_count(graph: Graph, record: Record) -> None:
    set_node("motor", cpu_percent=120.0)(record)
    assert bottleneck.find(graph, ["imu"], [record]) is None
    assert bottleneck.find(graph, ["command"], [record])


def test_counts_add_up_over_trials_and_shares_do_not(graph: Graph, record: Record) -> None:
    first, second = record, deepcopy(record)
    set_node("planner", throttled_percent=3.0, receive_buffer_errors=2)(first)
    set_node("planner", throttled_percent=0.0, receive_buffer_errors=2)(second)
    found = bottleneck.find(graph, ["scan"], [first, second])
    assert found and "1.5 % of the time" in found.seen
    for record in (first, second):
        set_node("planner", throttled_percent=0.0)(record)
    found = bottleneck.find(graph, ["scan"], [first, second])
    assert found and "4 datagrams" in found.seen


def test_a_computation_that_takes_all_of_the_time_needs_no_counter(graph: Graph, record: Record) -> None:
    flows = tuple(replace(flow, compute_us=9500) if flow.name == "command" else flow for flow in graph.flows)
    found = bottleneck.find(Graph(flows, graph.nodes), ["command"], [record])
    assert found and found.what == "CPU"
    assert found.seen == "the one thread of planner that computes and sends needs 95 % of the time to compute"
    assert found.change.startswith("Shorten compute_ms of command")


def test_several_subscribers_on_a_full_link_may_use_multicast(graph: Graph, record: Record) -> None:
    drop_in_queue(record)
    found = bottleneck.find(graph, ["command"], [record])
    assert found and "multicast" not in found.change
    nodes = tuple(
        replace(node, subscribes=(*node.subscribes, "imu")) if node.name == "motor" else node
        for node in graph.nodes
    )
    found = bottleneck.find(Graph(graph.flows, nodes), ["imu"], [record])
    assert found and found.change.endswith("or allow transport: multicast")


def test_a_budget_names_the_nodes_that_use_most_of_it(record: Record) -> None:
    record["nodes_cpu"] = {
        "node0": {"participants": 3.0, "shared": 1.0},
        "node1": {"participants": 40.0, "shared": 10.0},
    }
    record["by_node"]["planner"]["cpu_percent"] = 40.0
    found = bottleneck.of_budget([record])
    assert found and found.seen == "node1 uses 50 % of a core, of it planner 40 %"
    assert bottleneck.of_budget([record | {"nodes_cpu": None}]) is None


def test_few_drops_limit_nothing(graph: Graph, record: Record) -> None:
    way = {"queue_drops": 9, "lost": 9, "packets": 10_000}
    record["link_conditions"] = {"node1": {"up": way}}
    set_node("planner", interface_drops=1, packets=2000, receive_buffer_errors=1, datagrams=2000)(record)
    assert bottleneck.find(graph, ["scan"], [record]) is None
    way["lost"] = 11
    found = bottleneck.find(graph, ["scan"], [record])
    assert found and found.seen == "the link of node1 lost 11 packets"


def test_a_publisher_does_not_send_late_what_it_never_received(graph: Graph, record: Record) -> None:
    flows = record["by_flow"]
    flows["imu"]["subscribers"]["planner"]["received"] = 150
    flows["command"].update(sent=150, scheduled=200)
    assert bottleneck.find(graph, ["command"], [record]) is None
    flows["command"]["sent"] = 140
    assert bottleneck.find(graph, ["command"], [record])


def test_records_of_earlier_versions_counted_other_cpu_time(graph: Graph, record: Record) -> None:
    for node in record["by_node"].values():
        node["cpu_percent"] = 99.0
        del node["cores_percent"]
    assert bottleneck.find(graph, ["scan"], [record]) is None and bottleneck.of_budget([record]) is None


def test_a_rejected_attempt_without_results_shows_nothing(graph: Graph, record: Record) -> None:
    assert bottleneck.find(graph, ["scan"], [record | {"by_flow": None}]) is None
    record["by_flow"]["scan"]["subscribers"] = {}
    record["link_rate_mbit"] = 7.0
    assert bottleneck.find(graph, ["scan"], [record]), "what was sent fills the link"
