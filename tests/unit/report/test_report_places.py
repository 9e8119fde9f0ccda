"""Figures of where and when something happened: rates over time, dropped packets, and CPU time by place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8sdds.analysis import cpu_places
from k8sdds.report import content, fact_tables
from k8sdds.report.content import Content
from k8sdds.report.figures import details
from k8sdds.results import timeline
from tests import run_folders as folders


def write_timeline(folder: Path, participant: str, *rows: str) -> None:
    (folder / participant).mkdir(parents=True)
    (folder / participant / timeline.FILE).write_text("\n".join(["elapsed_ms,samples,bytes", *rows]) + "\n")


def test_rates_are_the_mean_over_subscribers(tmp_path: Path) -> None:
    write_timeline(tmp_path, "pub0", "100,900,900000")
    write_timeline(tmp_path, "sub0", "100,10,1000000", "200,10,2000000", "300,10,3000000")
    write_timeline(tmp_path, "sub1", "110,10,1100000", "200,0,0")
    first, second = timeline.received(tmp_path)
    assert first.mbps == pytest.approx(80) and first.end_s == pytest.approx(0.105)
    assert second.mbps == pytest.approx(80)


def test_a_row_of_a_few_milliseconds_is_no_rate_of_its_own(tmp_path: Path) -> None:
    write_timeline(tmp_path, "sub0", "195,10,1000000", "200,10,1000000", "250,10,0", "252,10,9000000")
    steps = timeline.received(tmp_path)
    assert [step.end_s for step in steps] == [0.195, 0.25]
    assert steps[1].mbps == pytest.approx(1000000 * 8e-3 / 55)


@pytest.mark.parametrize("rows", [(), ("100,1",), ("-100,1,1",), ("x,y,z",), ("1e3,1,1",), ("²,1,1",)])
def test_a_damaged_timeline_ends_where_it_is_damaged(tmp_path: Path, rows: tuple[str, ...]) -> None:
    write_timeline(tmp_path, "sub0", *rows)
    assert timeline.received(tmp_path) == []
    assert timeline.received(tmp_path / "missing") == []


TRIAL = {
    "publisher_cpu_ms_per_mb": 20.0, "subscriber_cpu_ms_per_mb": 10.0, "machine_cpu_ms_per_mb": 60.0,
    "machine_cpu_percent": 75.0, "softirq_percent": 15.0, "network_cpu_percent": 50.0,
}  # fmt: skip


def test_softirqs_and_agents_have_their_share_of_the_machines_cost() -> None:
    # 75 % of 2 cores cost 60 ms per MB, so 15 % of all cores cost 12 and half a core, which is 25 % of both, 20.
    assert cpu_places.of_trial(TRIAL, 2) == {
        cpu_places.PUBLISHER: 20, cpu_places.SUBSCRIBER: 10, cpu_places.SOFTIRQ: 12, cpu_places.AGENTS: 20,
    }  # fmt: skip
    assert cpu_places.AGENTS not in cpu_places.of_trial(TRIAL, None)
    elsewhere = cpu_places.of_trial(TRIAL | {"machine_cpu_ms_per_mb": None}, 2)
    assert set(elsewhere) == {cpu_places.PUBLISHER, cpu_places.SUBSCRIBER}


def test_blocks_of_a_cluster_metered_what_its_trials_did_not() -> None:
    background = {"softirq_s_per_gbit": 2.0, "network_cpu_s_per_gbit": None}
    trials = [TRIAL | {"machine_cpu_ms_per_mb": None}] * 2
    found = cpu_places.estimates(trials, 2, background)
    # A gigabit is 125 MB, so 2 s are 16 ms for each.
    assert (
        found[cpu_places.SOFTIRQ][0].value == pytest.approx(16) and found[cpu_places.SOFTIRQ][0].low is None
    )
    assert found[cpu_places.PUBLISHER][0].n == 2


@pytest.fixture
def changed(tmp_path: Path) -> Any:
    def change(**values: Any) -> Content:
        plan = folders.Plan(("host", "weavenet"), (1024,), ("throughput",), 2, details=True, histograms=False)
        run = folders.make(tmp_path / "run", plan)
        return content.read(folders.changed(run, values))

    return change


def test_dropped_packets_are_listed_where_they_were_counted(changed: Any) -> None:
    drops = {
        "udp_receive_buffer_errors": 7, "udp_send_buffer_errors": 0, "ip_reassembly_fails": 3, "interface_drops": None,
    }  # fmt: skip
    (table,) = fact_tables.paths(changed(drops=drops, lost=5, mtu_bytes=1480))
    host, weavenet = ([cell.text for cell in row] for row in table.rows)
    # 1480 and 50 bytes do not fit into 1500.
    assert weavenet == ["weavenet", "1480", "VXLAN +50 B, too large", "1500", "0", "–", "6", "14", "10", "2"]
    assert host[0] == "host" and "too large" not in host[2]


@pytest.mark.parametrize(("values", "link"), [
    ({}, 1500), ({"testbed": "cluster"}, None), ({"link": {"mtu": 9000}}, 9000),
    ({"node_links": {"a": {"mtu_bytes": 4000}, "b": {"mtu_bytes": 3000}}, "testbed": "cluster"}, 3000),
])  # fmt: skip
def test_the_mtu_of_links_is_the_recorded_one(changed: Any, values: dict[str, Any], link: int | None) -> None:
    assert [row["link_mtu_bytes"] for row in fact_tables.path_rows(changed(**values))] == [link, link]


def test_samples_that_crossed_no_link_have_no_path(changed: Any) -> None:
    assert fact_tables.paths(changed(transport="shared-memory")) == []


def test_rates_over_time_need_enough_steps(undrawn: None, changed: Any, tmp_path: Path) -> None:
    made = changed()
    figure = details.timeline(made, made.settings[0], tmp_path)
    assert figure is not None and "host 90.0 to 110; weavenet 90.0 to 110" in figure.alt
    for path in made.run.path.glob("raw/*/1/sub0/timeline.csv"):
        path.write_text("".join(path.read_text().splitlines(keepends=True)[: details.FEWEST_STEPS]))
    assert details.timeline(made, made.settings[0], tmp_path) is None


def test_the_caption_names_how_many_trials_are_drawn(
    undrawn: None, changed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = changed()
    every = details.timeline(made, made.settings[0], tmp_path)
    monkeypatch.setattr(details, "_MAX_LINES", 1)
    limited = details.timeline(made, made.settings[0], tmp_path)
    assert every is not None and "one line per trial; a step" in every.caption
    assert limited is not None and "per trial, for the first 1 of each network; a step" in limited.caption
