"""Campaigns whose probes a capacity search adds, also after an interruption and with failed trials."""

from __future__ import annotations

from typing import Any

import pytest

from k8sdds.analysis.capacity import Goal, Probe
from k8sdds.campaign import start
from k8sdds.campaign.capacity_search import CapacitySearch
from k8sdds.campaign.expansion import expand
from k8sdds.campaign.experiments import load
from k8sdds.campaign.preflight import contradictions, every_trial, notes
from k8sdds.campaign.record import description
from k8sdds.model.experiment import Experiment
from k8sdds.model.options import SEARCHES
from k8sdds.model.trial import Trial
from k8sdds.results.record import TrialRecord, checked
from k8sdds.system.errors import InputError
from k8sdds.workloads import WORKLOADS

SWEEP: dict[str, Any] = {
    "networks": ["host", "kube-router"],
    "test": {"name": "capacity", "loss_percent": [0, 0.5]},
    "reliability": "best-effort",
}
CAPACITY = {"host": 20_000.0, "kube-router": 15_000.0}
"""Samples per second that a publisher sends to all subscribers together."""

SUBSCRIBERS = {"test": {"name": "capacity", "max_subscribers": 40}, "rate": 1000}
LARGEST = {"host": 20, "kube-router": 15}
"""Members in each of two processes per pod that match within a second; beyond, they do not match."""
MEMBERS = {
    "test": {
        "name": "fleet-capacity",
        "processes": 2,
        "matched_s": [0.5, 1],
        "max_members": 40,
        "steady_s": 0.1,
    }
}


def experiment(**sweep: Any) -> Experiment:
    return Experiment(name="capacity", repetitions=3, duration_s=2, sweeps=[SWEEP | sweep])


def measured(trial: Trial, valid: bool = True) -> TrialRecord:
    """Return the record of a trial on a network with a fixed capacity, as it is read from a run folder."""
    cell = trial.cell
    capacity = CAPACITY[cell.network]
    values = {
        "trial_id": trial.trial_id, "cell_id": cell.cell_id, "testbed": trial.testbed, "attempt": 1,
        "valid": valid, **description(trial),
    }  # fmt: skip
    if cell.test == "fleet-capacity":
        members, largest = values["fleet_members"], LARGEST[cell.network]
        values |= {"fleet_matched_s": members / largest if members <= largest else None}
        values |= {"unmatched_percent": 0.0 if members <= largest else 25.0}
    elif cell.rate:
        lost = max(0.0, 100 * (1 - capacity / (cell.rate * cell.subscribers)))
        values |= {"undelivered_percent": lost, "overdue_percent": 0.0 if not lost else 80.0}
    else:
        values["samples_per_s"] = capacity * 1.2
    return TrialRecord.read(checked(TrialRecord(**values).as_json(), "trials.jsonl:1"))


def rounds_of(whole: Experiment) -> list[list[TrialRecord]]:
    rounds = [[measured(trial) for trial in expand(whole).trials("lab")]]
    while trials := CapacitySearch(expand(whole)).more([record for done in rounds for record in done]):
        rounds.append([measured(trial) for trial in trials])
    return rounds


@pytest.mark.parametrize(
    ("sweep", "searched", "started"),
    [
        ({}, True, "capacity host 0 ×1, capacity kube-router 0 ×1"),
        ({"test": "throughput", "networks": ["host"]}, False, ", ".join(["throughput host 0 ×1"] * 3)),
        # Other tests of the experiment keep their repetitions.
        ({"test": ["capacity", "throughput"], "networks": ["host"]}, True,
         "capacity host 0 ×1, " + ", ".join(["throughput host 0 ×1"] * 3)),
        (SUBSCRIBERS, True, "capacity host 1000 ×1, capacity kube-router 1000 ×1"),
        (MEMBERS, True, "fleet-capacity host 0 ×1, fleet-capacity kube-router 0 ×1"),
    ],
)  # fmt: skip
def test_the_campaign_starts_with_one_trial_per_search(
    sweep: dict[str, Any], searched: bool, started: str
) -> None:
    whole = expand(experiment(**sweep))
    cells = [trial.cell for trial in whole.trials("lab")]
    assert ", ".join(f"{c.test} {c.network} {c.rate:g} ×{c.subscribers}" for c in cells) == started
    assert isinstance(start.planner_of(whole), CapacitySearch) == searched
    assert tuple(name for name, workload in WORKLOADS.items() if workload.finds_capacity) == tuple(SEARCHES)


@pytest.mark.parametrize(("sweep", "column"), [(SUBSCRIBERS, "subscribers"), (MEMBERS, "fleet_members")])
def test_a_search_for_a_number_is_checked_with_the_largest(sweep: dict[str, Any], column: str) -> None:
    checked = every_trial(expand(experiment(networks=["host"], **sweep)), "lab")
    assert [description(trial)[column] for trial in checked] == [1, 40]


def test_probes_of_all_networks_share_a_repetition_and_have_ids_of_their_own() -> None:
    rounds = rounds_of(experiment())
    assert {record.network for record in rounds[1]} == {"host", "kube-router"}
    assert [{record.repetition for record in done} for done in rounds] == [{n} for n in range(len(rounds))]
    ids = [record.trial_id for done in rounds for record in done]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("sweep", [{}, SUBSCRIBERS, MEMBERS])
def test_a_search_continues_alike_after_an_interruption(sweep: dict[str, Any]) -> None:
    whole = experiment(**sweep)
    rounds = rounds_of(whole)
    for number in range(1, len(rounds)):
        before = [record for done in rounds[:number] for record in done]
        planned = CapacitySearch(expand(whole)).more(before)
        assert [trial.trial_id for trial in planned] == [record.trial_id for record in rounds[number]]


def test_a_network_whose_trial_fails_is_searched_no_further() -> None:
    first = expand(experiment()).trials("lab")
    attempts = [measured(first[0]), measured(first[1], valid=False)]
    planned = CapacitySearch(expand(experiment())).more(attempts)
    assert {trial.cell.network for trial in planned} == {"host"}


def test_the_status_names_what_is_known_of_each_network() -> None:
    rounds = rounds_of(experiment())
    search = CapacitySearch(expand(experiment()))
    assert search.status(rounds[0]) == "capacity so far: host ? – ? samples/s; kube-router ? – ? samples/s"
    done = search.status([record for done in rounds for record in done])
    low, high = done.partition("host ")[2].split(" samples/s; kube")[0].split(" – ")
    assert float(low.replace(",", "")) <= 20_100 and float(high.replace(",", "")) > 20_000
    records = [record for done in rounds_of(experiment(**SUBSCRIBERS)) for record in done]
    status = CapacitySearch(expand(experiment(**SUBSCRIBERS))).status(records)
    assert status == "capacity so far: host 20 – 21 subscribers; kube-router 15 – 16 subscribers"
    assert {record.rate for record in records} == {1000} and max(
        record.subscribers for record in records
    ) <= 32


def test_the_status_tells_the_searches_of_a_network_apart() -> None:
    whole = experiment(networks=["host"], middleware=["cyclonedds", "fastdds"], **MEMBERS)
    rounds = rounds_of(whole)
    assert CapacitySearch(expand(whole)).status([record for done in rounds for record in done]) == (
        "capacity so far: host (cyclonedds) 10 – 11 members per process; host (fastdds) 10 – 11 members per process"
    )


def test_the_status_tells_searches_with_other_options_apart() -> None:
    tests = [MEMBERS["test"] | {"processes": number, "steady_s": number / 10} for number in (2, 3)]
    whole = experiment(networks=["host"], test=tests, payload_bytes=64)
    status = CapacitySearch(expand(whole)).status([measured(trial) for trial in expand(whole).trials("lab")])
    assert status == (
        "capacity so far: host (2 processes per pod, steady_s 0.2) ? – ? members per process;"
        " host (3 processes per pod, steady_s 0.3) ? – ? members per process"
    )
    both = experiment(networks=["host"], test=[SWEEP["test"], MEMBERS["test"]])
    status = CapacitySearch(expand(both)).status([measured(trial) for trial in expand(both).trials("lab")])
    assert "host (capacity) ? – ? samples/s; host (fleet-capacity) " in status


def test_a_fleet_that_matched_except_after_its_change_misses_the_goal() -> None:
    (trial, _) = expand(experiment(**MEMBERS)).trials("lab")
    values = vars(measured(trial)) | {"fleet_matched_s": 0.2}
    for unmatched, again_s, expected in ((0, None, 0.2), (0, 0.7, 0.7), (3, None, None)):
        values |= {"unmatched_percent": unmatched, "fleet_rematched_s": again_s}
        assert Probe.of(values, "fleet_members").matched_s == expected


@pytest.mark.parametrize(
    ("broken", "returned_s", "expected"), [(0, None, 0.2), (5, 0.4, 0.2), (5, None, None)]
)
def test_a_fleet_whose_matches_broke_and_never_returned_misses_the_goal(
    broken: float, returned_s: float | None, expected: float | None
) -> None:
    (trial, _) = expand(experiment(**MEMBERS)).trials("lab")
    changed = {"fleet_matched_s": 0.2, "broken_percent": broken, "fleet_returned_s": returned_s}
    probe = Probe.of(vars(measured(trial)) | changed, "fleet_members")
    assert probe.matched_s == expected
    assert (probe.excess(Goal(matched_s=1)) <= 1) is (expected is not None)


def test_two_searches_of_a_network_do_not_share_probes() -> None:
    both = experiment(networks=["host"], payload_bytes=[64, 1024])
    first = [measured(trial) for trial in expand(both).trials("lab")]
    small = [record for record in first if record.payload_bytes == 64]
    assert len(CapacitySearch(expand(both)).more(first)) == 2
    assert [trial.cell.payload_bytes for trial in CapacitySearch(expand(both)).more(small)] == [64]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({"rate": 100}, "leave out `rate`"),
        ({"rate_profile": "burst:5"}, "set rate_profile to constant"),
        (SUBSCRIBERS | {"rate": 0}, "set `rate`"),
        (SUBSCRIBERS | {"subscribers": 8}, "leave out `subscribers`"),
        (SUBSCRIBERS | {"transport": "shared-memory"}, "leave out max_subscribers"),
        (SUBSCRIBERS | {"placement": {"pub0": 0, "sub": 1}}, "needs a placement by name"),
        (SUBSCRIBERS | {"nodes": [2, 4]}, "two searches with max_subscribers differ only in `nodes`"),
        (
            MEMBERS | {"test": [MEMBERS["test"], MEMBERS["test"] | {"members": 4}]},
            "two searches differ only in `members`",
        ),
        ({"middleware": "connext"}, "RTI PerfTest does not time samples"),
        (MEMBERS, "need 2.1 s together: start_s, change, matched_s, steady_s"),
        (MEMBERS | {"publishers": 20}, "at most 1000 members of a role, not 1600"),
        (MEMBERS | {"publishers": 2, "middleware": "zenoh"}, "a port for each of 100 publishing members"),
        (MEMBERS | {"rate": 10}, "have no rate"),
    ],
)
def test_a_sweep_that_contradicts_its_search_is_refused(sweep: dict[str, Any], message: str) -> None:
    numbers = sweep.get("nodes", [None])
    sweeps = [SWEEP | sweep | ({"nodes": number} if number else {}) for number in numbers]
    problems = contradictions(expand(Experiment(name="capacity", repetitions=3, duration_s=2, sweeps=sweeps)))
    assert any(message in problem.what for problem in problems)


def test_searches_for_members_may_differ_in_their_nodes() -> None:
    sweeps = [SWEEP | MEMBERS | {"nodes": number} for number in (2, 4)]
    whole = expand(Experiment(name="capacity", repetitions=3, duration_s=4, sweeps=sweeps, baseline="host"))
    assert contradictions(whole) == []
    assert len(whole.searches) == 4


def test_the_announcement_states_that_trials_are_added() -> None:
    (note,) = notes(expand(experiment()))
    assert "usually 15 to 35 for each of 2 searches: 1 to 4 min" in note
    (note,) = notes(expand(experiment(**MEMBERS)))
    assert "usually 4 to 20 for each of 2 searches: 0 to 2 min" in note


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("capacity, loss_percent: [0, 0]", "listed twice"),
        ("capacity, loss_percent: [100]", "less than 100"),
        ("capacity, min_rate: 100, max_rate: 10", "above max_rate"),
        ("capacity, max_subscribers: 8, max_rate: 10", "leave them out"),
        ("capacity, max_subscribers: 1", "max_subscribers"),
        ("capacity, width: 5", "width_percent"),
        ("fleet-capacity, matched_s: [1, 1]", "listed twice"),
        ("fleet-capacity, members: 9, max_members: 8", "above max_members 8"),
        ("fleet-capacity, loss_percent: 0", "loss_percent"),
    ],
)
def test_a_mistake_in_the_options_is_explained(tmp_path: Any, test: str, message: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: mine\nsweeps:\n- networks: host\n  test: {{name: {test}}}\n")
    with pytest.raises(InputError, match=message):
        load(str(path))
