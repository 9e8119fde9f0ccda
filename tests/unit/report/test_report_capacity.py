"""Reports of capacity searches: capacities, overheads, delays and the figure; also of damaged records."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from k8sdds import report
from k8sdds.campaign.expansion import expand
from k8sdds.cli.app import app
from k8sdds.report import content, fleets
from k8sdds.report.figures import capacity
from k8sdds.results.record import TrialRecord
from k8sdds.results.run_folder import SCHEMA, RunFolder
from tests.sampling import sampled
from tests.unit.test_capacity_search import CAPACITY, MEMBERS, SUBSCRIBERS, experiment, measured, rounds_of

CAMPAIGN = {
    "schema": SCHEMA, "campaign": "c", "experiment": "capacity", "seed": 1, "repetitions": 3, "baseline": "host",
    "testbed": {"name": "lab", "facts": {}}, "trials": {}, "networks": {"host": {}, "kube-router": {}},
}  # fmt: skip


def delays(record: TrialRecord) -> dict[str, Any]:
    """Return the delays of a probe, which grow towards the capacity."""
    if not record.rate:
        return {}
    load = min(record.rate * (record.subscribers or 1) / CAPACITY[str(record.network)], 0.99)
    p50 = 20 / (1 - load)
    return {
        "delay_p50_us": p50, "delay_p90_us": 2 * p50, "delay_p99_us": 4 * p50, "delay_max_us": 9 * p50,
        "delay_method": "shared clock",
    }  # fmt: skip


@cache
def _recorded(test: str) -> list[dict[str, Any]]:
    rounds = rounds_of(experiment(**json.loads(test)))
    return [record.as_json() | delays(record) for done in rounds for record in done]


def recorded(**sweep: Any) -> list[dict[str, Any]]:
    return [dict(attempt) for attempt in _recorded(json.dumps(sweep))]


@pytest.fixture
def attempts() -> list[dict[str, Any]]:
    return recorded()


def folder(path: Path, attempts: Sequence[dict[str, Any]]) -> RunFolder:
    run = RunFolder.create(path / "run", CAMPAIGN, "")
    run.append_attempts(list(attempts))
    return run


def test_the_table_has_the_interval_of_each_network_and_goal(
    tmp_path: Path, attempts: list[dict[str, Any]]
) -> None:
    rows = content.read(folder(tmp_path, attempts)).capacities
    assert [(row["network_label"], row["goal_loss_percent"]) for row in rows] == [
        ("host", 0), ("host", 0.5), ("kube-router", 0), ("kube-router", 0.5)
    ]  # fmt: skip
    for row in rows:
        capacity = CAPACITY[row["network_label"]]
        assert row["capacity_per_s"] <= capacity * 1.006 and row["missed_per_s"] > capacity
        assert row["decided"] and row["contradicting_probes"] == 0
        assert row["capacity_mbps"] == pytest.approx(row["capacity_per_s"] * 1024 * 8e-6)
    overhead = rows[2]
    assert overhead["bracket_low_percent"] <= 25 <= overhead["bracket_high_percent"]
    assert overhead["bracket_low_percent"] < overhead["overhead_percent"] < overhead["bracket_high_percent"]
    assert rows[0]["overhead_percent"] is None


def test_a_search_for_subscribers_is_reported_in_subscribers(tmp_path: Path) -> None:
    run = folder(tmp_path, recorded(**SUBSCRIBERS))
    rows = content.read(run).capacities
    assert [(row["capacity_subscribers"], row["missed_subscribers"]) for row in rows] == [
        (20, 21), (20, 21), (15, 16), (15, 16)
    ]  # fmt: skip
    assert all(row["capacity_per_s"] is None and row["capacity_mbps"] is None for row in rows)
    assert all(row["rate"] == 1000 and row["subscribers"] is None and row["decided"] for row in rows)
    (overhead,) = {row["overhead_percent"] for row in rows[2:]}
    assert overhead == pytest.approx(100 * (1 - (15 * 16 / 20 / 21) ** 0.5))
    page = report.write_report(run, None).read_text()
    assert "Capacity in subscribers" in page and "20 subscribers, missed with 21" in page
    assert "Latency by number of subscribers" in page
    with open(run.report / "tables" / "capacity_delays.csv") as file:
        assert [row["subscribers"] for row in csv.DictReader(file)] == ["2", "10", "18", "1", "7", "13"]


def test_a_search_for_members_is_reported_in_members_and_participants(tmp_path: Path) -> None:
    run = folder(tmp_path, recorded(**MEMBERS))
    rows = content.read(run).capacities
    assert [(row["goal_matched_s"], row["capacity_members"], row["missed_members"]) for row in rows] == [
        (0.5, 10, 11), (1, 20, 21), (0.5, 7, 8), (1, 15, 16)
    ]  # fmt: skip
    # Two pods have two processes each.
    assert [row["capacity_participants"] for row in rows] == [40, 80, 28, 60]
    assert all(row["decided"] and row["capacity_per_s"] is row["goal_loss_percent"] is None for row in rows)
    summary = report.summarize(run)
    (statement,) = summary["answer"]
    assert "samples/s" not in json.dumps(statement) and "rate" not in statement["lead"]
    assert statement["sentences"][1].startswith(
        "All matched in 1 s: host 20 members per process (80 participants), missed with 21; kube-router 15 members"
    )
    page = report.write_report(run, None).read_text()
    assert "Capacity in members per process" in page and "Matching by number of members" in page
    assert "p99 of the delay" not in page.partition('id="reading"')[0].partition("<script")[0]
    with open(run.report / "tables" / "capacity.csv") as file:
        assert [row["missed_participants"] for row in csv.DictReader(file)] == ["44", "84", "32", "64"]
    assert not (run.report / "tables" / "capacity_delays.csv").exists()
    done = CliRunner().invoke(app, ["compare", f"{run.path}@host", f"{run.path}@kube-router"])
    assert "10 – 11 members per process" in " ".join(done.output.split()) and "samples/s" not in done.output


def test_fleets_are_listed_by_their_number_of_participants(tmp_path: Path) -> None:
    (table,) = fleets.tables(content.read(folder(tmp_path, recorded(**MEMBERS))))
    rows = [dict(zip(table.heads, row, strict=True)) for row in table.texts[1:]]
    host = [row for row in rows if row["network"] == "host"]
    sizes = [int(row["participants"]) for row in host]
    assert sizes == sorted(set(sizes)) and {4, 40, 44, 80, 84} <= set(sizes)
    for row in host:
        matched = int(row["participants"]) <= 80
        assert (row["matched after s"] != "–") is matched and (row["missing matches %"] == "0") is matched


def test_fleets_of_the_same_size_in_other_pods_are_told_apart(tmp_path: Path) -> None:
    sweep = {"networks": ["host"], "publishers": [1, 2], "subscribers": [1, 2]}
    (table,) = fleets.tables(content.read(folder(tmp_path, recorded(**MEMBERS | sweep))))
    rows = [dict(zip(table.heads, row, strict=True)) for row in table.texts[1:]]
    assert {row["pods"] for row in rows} == {"1 + 1", "1 + 2", "2 + 1", "2 + 2"}
    keys = [(row["setting"], row["participants"], row["processes"], row["pods"]) for row in rows]
    assert len(keys) == len(set(keys))


def test_fleets_show_what_followed_their_change(tmp_path: Path) -> None:
    late = {"fleet_rematched_s": 2.5, "broken_percent": 5.0, "fleet_returned_s": None}
    attempts = [attempt | late for attempt in recorded(**MEMBERS)]
    (table,) = fleets.tables(content.read(folder(tmp_path / "late", attempts)))
    for row in (dict(zip(table.heads, row, strict=True)) for row in table.texts[1:]):
        assert (row["after change s"], row["broken matches %"], row["returned after s"]) == (
            "2.50",
            "5.00",
            "–",
        )
    (table,) = fleets.tables(content.read(folder(tmp_path / "none", recorded(**MEMBERS))))
    assert not {"after change s", "broken matches %", "returned after s"} & set(table.heads)


def test_the_caption_of_fleets_states_which_probes_are_missing(tmp_path: Path) -> None:
    whole = content.read(folder(tmp_path, recorded(**MEMBERS)))
    (figure,) = capacity.draw(whole, tmp_path)
    assert "have no time and are not drawn" in figure.caption and "or shorter" not in figure.caption


def test_delays_are_reported_at_shares_of_the_capacity(
    tmp_path: Path, attempts: list[dict[str, Any]]
) -> None:
    for one in content.read(folder(tmp_path, attempts)).searches:
        rows = one.delays
        assert [row["share_percent"] for row in rows] == [10, 50, 90]
        assert [row["p99_us"] for row in rows] == sorted(row["p99_us"] for row in rows)
        assert all(row["n"] >= 3 for row in rows)


def test_a_percentile_that_one_probe_does_not_know_has_no_mean(
    tmp_path: Path, attempts: list[dict[str, Any]]
) -> None:
    """Otherwise the delay below the capacity would be that of the probes without a stall."""
    run = folder(tmp_path, attempts)
    known = content.read(run).searches[0]
    rate = known.delays[-1]["rate"]
    stalled = next(
        row for row in known.trials if row["rate"] == rate and row["duration_s"] == known.search.duration_s
    )
    few = {
        "delay_p99_us": None,
        "missing": {"delay_p99_us": "3 episodes above it, 10 are needed (1500 values)"},
    }
    changed = [row | few if row["trial_id"] == stalled["trial_id"] else row for row in attempts]
    search = content.read(folder(tmp_path / "changed", changed)).searches[0]
    found = search.delays[-1]
    assert (found["rate"], found["p99_us"], found["p50_us"]) == (rate, None, known.delays[-1]["p50_us"])
    drawn = [
        delay
        for probe, delay in capacity.drawn(search)
        if probe.value == rate and probe.duration_s == search.search.duration_s
    ]
    assert len(drawn) == found["n"]
    assert drawn == pytest.approx([stalled["delay_max_us"] / 1000] * len(drawn)), "as in the table, no p99"
    others = [row["delay_p99_us"] for row in search.comparable if row["rate"] != rate]
    assert others == [row["delay_p99_us"] for row in known.trials if row["rate"] != rate]


def test_probes_are_in_no_table_of_means(tmp_path: Path, attempts: list[dict[str, Any]]) -> None:
    whole = content.read(folder(tmp_path, attempts))
    assert not whole.best and not len(whole.levels) and not len(whole.overheads)
    assert whole.valid == whole.planned == len(attempts) and not whole.failed


def test_the_report_of_a_search_names_the_capacities(
    full_size: None, tmp_path: Path, attempts: list[dict[str, Any]]
) -> None:
    run = folder(tmp_path, attempts)
    path = report.write_report(run, None)
    page = path.read_text()
    assert 'id="figure-capacity"' in page and "Capacity in samples/s" in page and "No result" not in page
    with open(run.report / "tables" / "capacity.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["network"] for row in rows] == ["host", "host", "kube-router", "kube-router"]
    assert (run.report / "figures" / "capacity.png").stat().st_size > 10_000
    summary = report.summarize(run)
    assert len(summary["capacities"]) == 4 and json.dumps(summary, allow_nan=False)
    assert any("between" in sentence for item in summary["answer"] for sentence in item["sentences"])


def test_the_report_of_an_interrupted_search_names_it_undecided(
    tmp_path: Path, attempts: list[dict[str, Any]]
) -> None:
    run = folder(tmp_path, attempts[:8])
    assert not all(row["decided"] for row in content.read(run).capacities)
    assert report.write_report(run, None).exists()


HOSTILE: list[dict[str, Any]] = [
    {"loss_percent": None}, {"loss_percent": "no list"}, {"loss_percent": [1e300, -5]}, {"loss_percent": []},
    {"width_percent": 0}, {"duration_s": 0}, {"duration_s": None}, {"rate": -1}, {"rate": "fast"}, {"rate": 1e308},
    {"undelivered_percent": None, "overdue_percent": None}, {"overdue_percent": 1e9}, {"samples_per_s": "many"},
    {"delay_p99_us": 0}, {"p99_ms": None}, {"min_rate": 1e9}, {"latency_at_percent": [0]}, {"max_subscribers": "many"},
    {"max_subscribers": 40, "rate": 1000}, {"max_subscribers": 40, "rate": 1000, "subscribers": None},
]  # fmt: skip
HOSTILE_SUBSCRIBERS: list[dict[str, Any]] = [
    {"subscribers": -3}, {"subscribers": 0}, {"subscribers": 2.5}, {"subscribers": 1e308}, {"subscribers": "many"},
    {"max_subscribers": -1},
]  # fmt: skip
HOSTILE_MEMBERS: list[dict[str, Any]] = [
    {"fleet_members": 0}, {"fleet_members": -1}, {"fleet_members": 2.5}, {"fleet_members": "many"}, {"fleet_members": None},
    {"fleet_accepted_s": None}, {"fleet_accepted_s": "soon"}, {"fleet_accepted_s": [0]}, {"fleet_max_members": 1},
    {"fleet_processes": None}, {"fleet_processes": 0}, {"fleet_change": "other"}, {"publishers": None},
    {"fleet_matched_s": -1}, {"fleet_matched_s": "soon"}, {"unmatched_percent": None}, {"width_percent": 99},
]  # fmt: skip


def check_survives(path: Path, attempts: Sequence[dict[str, Any]]) -> None:
    run = folder(path, attempts)
    assert report.summarize(run)["answer"]
    assert len(capacity.draw(content.read(run), path)) <= 2


DAMAGES = [
    (sweep, damage, every)
    for every in (1, 5)
    for sweep, damages in (({}, HOSTILE), (SUBSCRIBERS, HOSTILE_SUBSCRIBERS), (MEMBERS, HOSTILE_MEMBERS))
    for damage in damages
]


@pytest.mark.parametrize(("sweep", "damage", "every"), sampled(DAMAGES, every_run=8))
def test_a_report_survives_a_damage_of_all_records_or_of_each_fifth(
    tmp_path: Path, sweep: dict[str, Any], damage: dict[str, Any], every: int
) -> None:
    check_survives(
        tmp_path, [a if index % every else a | damage for index, a in enumerate(recorded(**sweep))]
    )


@pytest.mark.parametrize(
    ("sweep", "damages"),
    [({}, HOSTILE), (SUBSCRIBERS, HOSTILE_SUBSCRIBERS), (MEMBERS, HOSTILE_MEMBERS)],
    ids=["rate", "subscribers", "members"],
)
def test_a_report_survives_all_damages_at_once(
    tmp_path: Path, sweep: dict[str, Any], damages: list[dict[str, Any]]
) -> None:
    several = itertools.cycle(damages)
    check_survives(
        tmp_path, [a if index % 5 else a | next(several) for index, a in enumerate(recorded(**sweep))]
    )


def test_two_networks_of_a_folder_are_compared_by_their_brackets(
    tmp_path: Path, attempts: list[dict[str, Any]]
) -> None:
    run = folder(tmp_path, attempts)
    done = CliRunner().invoke(
        app, ["compare", f"{run.path}@host", f"{run.path}@kube-router", "-o", str(tmp_path / "out"), "--json"]
    )
    assert done.exit_code == 0, done.output
    rows = json.loads((tmp_path / "out" / "compare.json").read_text())["capacities"]
    assert len(rows) == 2 and all(row["overlapping"] is False for row in rows)
    assert all(row["bracket_ratio_low"] <= 0.75 <= row["bracket_ratio_high"] for row in rows)
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "Capacities" in page and page.count("do not overlap") >= 2
    assert "worse" not in done.output


def test_a_folder_does_not_differ_from_its_copy(tmp_path: Path, attempts: list[dict[str, Any]]) -> None:
    one, two = folder(tmp_path / "1", attempts), folder(tmp_path / "2", attempts)
    done = CliRunner().invoke(app, ["compare", str(one.path), str(two.path), "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["capacities"]
    assert len(rows) == 4 and all(row["overlapping"] is True for row in rows)
    assert all(row["ratio"] == 1 for row in rows)


def test_a_search_does_not_change_the_tables_of_other_tests(
    tmp_path: Path, attempts: list[dict[str, Any]]
) -> None:
    streams = [
        measured(trial).as_json() | {"throughput_mbps": 100.0 + trial.repetition}
        for trial in expand(experiment(test="throughput")).trials("lab")
    ]
    alone, both = folder(tmp_path / "1", streams), folder(tmp_path / "2", [*streams, *attempts])
    assert report.summarize(alone)["levels"] == report.summarize(both)["levels"]
    assert len(report.summarize(both)["capacities"]) == 4
    leads = [item["lead"] for item in report.summarize(both)["answer"]]
    assert any(lead.startswith("Capacity") for lead in leads) and len(leads) > 1
