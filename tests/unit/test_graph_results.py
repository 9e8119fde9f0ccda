"""What tables, comparisons and figures show of the flows, chains and nodes of a graph."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from k8sdds.analysis import flows
from k8sdds.analysis.comparison import Side, compare_all
from k8sdds.campaign import applications
from k8sdds.model.graph import parse
from k8sdds.report import formats
from k8sdds.report.figures import graph
from k8sdds.results import tidy
from k8sdds.system.grouping import Row
from tests.unit.test_attempt import Recording


@pytest.fixture
def record(tmp_path: Path) -> dict[str, Any]:
    return Recording("graph", tmp_path / "attempt").record()


def repeated(record: dict[str, Any], times: float = 1) -> list[Row]:
    """Return the rows of three repetitions that have all p90 delays, which differ, so many times as long."""
    records = []
    for repetition, factor in enumerate((1.0, 1.01, 1.02)):
        one = deepcopy(record) | {
            "repetition": repetition,
            "trial_id": f"{record['cell_id']}-lab-r{repetition}",
        }
        for flow in one["by_flow"].values():
            for own in (flow, flow["chain"]):
                own |= {"missing": None, "tail_episodes": None}
                own["delay_p90_us"] = 2 * own["delay_p50_us"] * factor * times
        records.append(one)
    return tidy.best(tidy.of(records))


def test_nodes_have_their_load_and_what_their_pods_dropped(record: dict[str, Any]) -> None:
    planner = record["by_node"]["planner"]
    # Scans of 4 KiB at 200 Hz and samples of 64 bytes at 100 Hz are 6.6 Mbit/s without headers.
    assert 6.6 < planner["received_mbps"] < 7.2 and planner["cpu_percent"] > planner["throttled_percent"] == 0
    assert planner["datagrams"] > 600 and planner["receive_buffer_errors"] == planner["interface_drops"] == 0


def test_the_table_has_flows_with_subscribers_and_chains(record: dict[str, Any]) -> None:
    rows = flows.table(repeated(record), "mine")
    first = [row for row in rows if row["trial_id"].endswith("r0")]
    assert len(rows) == 3 * len(first)
    assert [(row["kind"], row["flow"], row["subscriber"]) for row in first] == [
        ("flow", "scan", "all"),
        ("flow", "scan", "planner"),
        ("flow", "imu", "all"),
        ("flow", "imu", "planner"),
        ("flow", "command", "all"),
        ("flow", "command", "motor"),
        ("chain", "scan → command", "all"),
    ]
    whole, motor, chain = first[4:]
    assert (whole["run"], whole["network"], whole["middleware"]) == ("mine", "host", "cyclonedds")
    # The delay begins when the last input arrived, that of the chain when the scan was due.
    assert 500 < whole["delay_p50_us"] < chain["delay_p50_us"]
    assert motor["received"] == whole["received"] == 200 and "delay_p50_us" not in motor


def test_flows_and_chains_are_compared_and_not_all_together(record: dict[str, Any]) -> None:
    sides = [Side("a", "a", repeated(record)), Side("b", "b", repeated(record, times=2))]
    (compared,) = compare_all(sides)
    assert {row["flow"] for row in compared.rows} == {"scan", "imu", "command", "scan → command"}
    assert {row["quantity"] for row in compared.rows} == {"delay_p90_us"} and not compared.missing
    assert all(row["worse"] and row["ratio"] == pytest.approx(2) for row in compared.rows)
    assert formats.cell_name(compared.rows[-1], compared.rows) == "host, graph, scan → command, p90 delay"
    # What flows do not have of their own is compared once, for the whole trial.
    sides = [
        Side(one.name, one.folder, [row | {"total_cpu_percent": 50.0} for row in one.rows]) for one in sides
    ]
    (compared,) = compare_all(sides, ["total_cpu_percent"])
    assert [row["flow"] for row in compared.rows] == [None]


def test_trials_of_other_tests_stay_as_they_are() -> None:
    rows = tidy.of([{"trial_id": "x", "valid": True, "test": "latency", "latency_p90_us": 7.0}])
    assert flows.separate(rows) == rows and flows.table(rows, "mine") == []


MONT_BLANC = applications.load("mont-blanc").graph()


def test_layers_lead_from_origins_to_ends() -> None:
    place = {node: level for level, layer in enumerate(graph.layers(MONT_BLANC)) for node in layer}
    assert place.keys() == {node.name for node in MONT_BLANC.nodes}
    assert {node.name for node in MONT_BLANC.nodes if not node.subscribes} == {
        n for n in place if not place[n]
    }
    upward = {
        (MONT_BLANC.publisher(flow.name).name, node.name)
        for flow in MONT_BLANC.flows
        for node in MONT_BLANC.subscribers(flow.name)
        if place[node.name] <= place[MONT_BLANC.publisher(flow.name).name]
    }
    # Only the two cycles through ponce need an edge upward.
    assert upward == {("georgetown", "ponce"), ("monaco", "ponce")}


def test_the_figure_states_what_was_measured_and_what_fails(record: dict[str, Any], tmp_path: Path) -> None:
    cell = Recording("graph", tmp_path / "attempt").trial.cell
    places = {"driver": "robot", "planner": "base", "motor": "robot"}
    drawn = graph.Drawn(parse(cell.graph), repeated(record), places, {"command": ["p50 delay <= 1 us"]})
    # Samples of 4096 bytes at 200 Hz and of 64 bytes at 100 Hz, and commands of 128 bytes at 100 Hz.
    assert drawn.links == pytest.approx({("robot", "base"): 6.6048, ("base", "robot"): 0.1024}, rel=1e-3)
    assert drawn.columns == ["robot", "base"] and drawn.load("planner").startswith("CPU 7.27 %, 12 MiB")
    figure = graph.draw(drawn, "Nodes", "nodes", "graph", tmp_path)
    assert {path.suffix for path in tmp_path.glob("nodes.*")} >= {".png", ".svg"}
    texts = re.sub(r"<[^>]*>", "\n", figure.svg)
    for text in ("planner", "← scan, imu", "✗ command", "not met: p50 delay", "robot → base 6.6"):
        assert text in texts
    assert "command from planner to motor" in figure.alt and "not met" in figure.alt
