"""What a discovery test asks of the program, and what its record states of the members and pairs of a fleet."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from k8sdds.campaign import contradictions
from k8sdds.model.link import Link
from k8sdds.model.measurement import Outcome
from k8sdds.model.options import MAX_FLEET_MEMBERS, DiscoveryOptions
from k8sdds.model.outages import Outage
from k8sdds.model.trial import Cell, Trial
from k8sdds.perftest import command
from k8sdds.results import arrivals
from k8sdds.testbeds.cluster import discovery
from k8sdds.testbeds.lab import outage
from k8sdds.workloads import find
from tests.unit.test_attempt import Recording


def cell(options: dict[str, Any] | None = None, **values: Any) -> Cell:
    settings = {"network": "host", "test": "discovery", "payload_bytes": 64} | values
    return Cell(**settings, test_options=options or {})


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Three processes with two members in each role; the last publishing one was killed and started again."""
    return Recording("discovery", tmp_path / "attempt")


def change(recording: Recording, name: str, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change what a participant reported of its fleet."""
    file = recording.folder / name / "stdout"
    document = json.loads(file.read_text())
    edit(document["k8sdds"]["fleet"])
    file.write_text(json.dumps(document))


def test_a_fleet_that_matched_has_its_times_and_costs(recording: Recording) -> None:
    record = recording.record()
    assert record["valid"] and record["unmatched_percent"] == 0
    # 6 × 6 pairs and 2 × 6 again, seen from both sides.
    assert record["fleet"]["expected"] == record["fleet"]["matched"] == 2 * (36 + 12)
    assert record["fleet"]["absent"] == {"publisher": [], "subscriber": []}
    assert record["fleet"]["created"] == 12, "the killed process is not counted twice"
    assert 0 < record["fleet_first_s"] <= record["fleet_p50_s"] <= record["fleet_matched_s"]
    assert record["fleet_rematched_s"] > 0 and record["fleet_cpu_s"] > 0
    assert record["steady_cpu_percent"] is not None
    # Pods of `host` have no interface of their own; the supervisor sees only the memory of the first process.
    for name in ("fleet_packets", "steady_packets_per_s", "total_rss_bytes", "publisher_rss_bytes"):
        assert record.get(name) is None


@pytest.mark.parametrize(("second", "total"), [(3_000_000, 5_000_000), (None, None)])
def test_the_memory_of_two_servers_is_their_sum(
    recording: Recording, second: int | None, total: int | None
) -> None:
    recording.set_cell(middleware="fastdds", discovery="server", discovery_servers=2)
    measured = recording.measurement()
    servers = {
        server.name: Outcome(server, 0, recording.meters["pub0"] | {"memory_peak_bytes": peak})
        for server, peak in zip(recording.trial.cell.services, (2_000_000, second), strict=True)
    }
    record = recording.record(replace(measured, outcomes={**measured.outcomes, **servers}))
    assert record["service_rss_bytes"] == total


def test_pairs_that_did_not_match_are_a_result(recording: Recording) -> None:
    def lose(fleet: dict[str, Any]) -> None:
        process = fleet["processes"][0]
        process["missing"] = {"0": [[0, 5]], "1": [[3, 4], [5, 5]]}
        process["found"]["matched"] -= 9

    change(recording, "sub0", lose)
    record = recording.record()
    assert record["valid"] and record["unmatched_percent"] == pytest.approx(100 * 9 / 96)
    assert record.get("fleet_matched_s") is record.get("steady_cpu_percent") is None
    assert record["missing"] == {"fleet_matched_s": "63 of 72 matches in 8 s"}
    assert record["fleet"]["absent"] == {"publisher": [], "subscriber": []}, "others did find them"


def test_matches_that_broke_are_counted_with_those_that_returned(recording: Recording) -> None:
    def lose(fleet: dict[str, Any]) -> None:
        for process, matched in zip(fleet["processes"], (2, 1), strict=False):
            process["broken"] = {"pairs": 2, "matched": matched, "first_ns": 10**9, "last_ns": 3 * 10**9}

    def keep(fleet: dict[str, Any]) -> None:
        for process in fleet["processes"]:
            process["broken"] = {"pairs": 0, "matched": 0}

    for name in ("pub0", "sub0"):
        change(recording, name, keep)
    whole = recording.record()
    assert whole["broken_percent"] == 0 and whole["steady_cpu_percent"] is not None
    change(recording, "sub0", lose)
    record = recording.record()
    assert record["valid"] and record["broken_percent"] == pytest.approx(100 * 4 / 96)
    assert record["missing"] == {"fleet_returned_s": "3 of 4 matches in 8 s"}
    assert record.get("steady_cpu_percent") is None, "the fleet is not at rest"


@pytest.mark.parametrize("killed_s", [None, 4.6, 4.9, 5.4])
def test_a_late_member_starts_after_its_server_was_restarted(
    recording: Recording, killed_s: float | None
) -> None:
    options = recording.trial.cell.test_options | {"change": "restart-server"}
    recording.set_cell(discovery="server", test_options=options)
    start_us = recording.meters["sub0"]["interval"]["start_monotonic_ns"] // 1000
    if killed_s is not None:
        failed_us = start_us + round(killed_s * 1e6)
        seen = arrivals.Interruption(node="node1", failed_us=failed_us, repaired_us=failed_us + 250_000)
        arrivals.write_interruption(recording.folder, seen)
    record = recording.record()
    if killed_s == 4.6:
        assert record["valid"] and record["outage_s"] == 0.25
    else:
        assert record["reason"].startswith("no-outage")
        assert ("trial ended" in record["reason"]) == (killed_s is None)
        assert ("set a longer late_s" in record["reason"]) == (killed_s is not None)


def test_members_that_nobody_found_are_named(recording: Recording) -> None:
    def lose(fleet: dict[str, Any]) -> None:
        for process in fleet["processes"]:
            first = process["first"]
            process["missing"] = {str(first): [[2, 2], [4, 5]], str(first + 1): [[4, 9999]]}
            process["failures"] = [{"member": first, "error": "no index"}]

    change(recording, "sub0", lose)
    fleet = recording.record()["fleet"]
    assert fleet["absent"] == {"publisher": [4, 5], "subscriber": []}
    assert fleet["failures"][0] == {"role": "subscriber", "member": 0, "error": "no index"}


@pytest.mark.parametrize("packets", [5, 6])
def test_a_fleet_without_any_pair_is_a_result_if_packets_arrived(recording: Recording, packets: int) -> None:
    def lose(fleet: dict[str, Any]) -> None:
        for process in fleet["processes"]:
            process["found"] |= {"matched": 0, "first_ns": None, "last_ns": None}
            process["failures"] = [{"member": 0, "error": "domain: no index"}]
        fleet["traffic"]["received_packets"] = packets

    for name in ("pub0", "sub0"):
        change(recording, name, lose)
    record = recording.record()
    if packets < 6:
        assert record["reason"].startswith("no-match: no members matched: domain: no index")
    else:
        assert record["valid"] and record["unmatched_percent"] == pytest.approx(75)


@pytest.mark.parametrize("damage", ["missing", "first_ns", "matched", "processes"])
def test_a_damaged_report_counts_as_missing(recording: Recording, damage: str) -> None:
    def spoil(fleet: dict[str, Any]) -> None:
        if damage == "missing":
            fleet["processes"][0]["missing"] = {"0": [[0, 5, 7]]}
        elif damage == "processes":
            fleet["processes"].pop()
        else:
            fleet["processes"][0]["found"][damage] = {"first_ns": -1, "matched": 900}[damage]

    change(recording, "sub0", spoil)
    assert recording.record()["reason"].startswith("no-report")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["-discoveryTest", "20", "-steady", "5", "-processes", "1", "-members", "10"]),
        ({"start_s": 4}, ["-startInterval", "0.200000"]),
        ({"change": "late"}, ["-change", "late:19:1:7.5"]),
        ({"change": "restart-process", "processes": 3, "change_s": 9}, ["-change", "restart:50:10:9"]),
        ({"change": "restart-pod", "processes": 3}, ["-change", "restart:30:30:7.5"]),
        ({"change": "restart-server"}, ["-change", "late:19:1:9.5"]),
        ({"change": "restart-server", "late_s": 10}, ["-change", "late:19:1:17.5"]),
        ({"index_limit": 9}, ["-indexLimit", "9"]),
        ({"gossip": True}, ["-gossip"]),
        ({"super_client": True}, ["-superClient"]),
    ],
)
def test_the_program_gets_what_the_options_state(options: dict[str, Any], expected: list[str]) -> None:
    trial = Trial(cell=cell(options, publishers=2), testbed="lab", repetition=0, duration_s=20, warmup_s=0)
    argv = command.fleet_options(trial, find("discovery").load(trial.cell).fleet)
    assert " ".join(expected) in " ".join(argv)


@pytest.mark.parametrize(
    ("options", "values", "message"),
    [
        (
            {"members": 100, "processes": 10},
            {"publishers": 2},
            f"at most {MAX_FLEET_MEMBERS} members of a role, not 2000",
        ),
        ({}, {"rate": 10}, "have no rate"),
        ({}, {"writers": 2}, "have no writers"),
        ({}, {"middleware": "raw"}, "raw does not start fleets: set middleware to one of cyclonedds"),
        ({}, {"middleware": "ros2-fastdds"}, "ros2-fastdds does not start fleets"),
        ({}, {"middleware": "fastdds", "transport": "shared-memory"}, "leave out shared-memory"),
        ({"start_s": 5, "change": "restart-pod"}, {}, "set change_s to 5 or more"),
        ({"change": "restart-server"}, {}, "set `discovery: server`"),
        ({}, {"middleware": "fastdds", "discovery_servers": 2}, "set `discovery: server`"),
        (
            {},
            {"middleware": "zenoh", "discovery": "server", "discovery_servers": 2},
            "zenoh does not have the setting discovery_servers",
        ),
        (
            {"gossip": True},
            {"middleware": "fastdds", "discovery": "server"},
            "gossip needs a router of Zenoh",
        ),
        ({"gossip": True}, {"middleware": "zenoh"}, "gossip needs a router of Zenoh"),
        ({"super_client": True}, {"middleware": "fastdds"}, "super_client needs a server of Fast DDS"),
        (
            {"super_client": True},
            {"middleware": "zenoh", "discovery": "server"},
            "super_client needs a server of Fast DDS",
        ),
        (
            {"change": "restart-server"},
            {"discovery": "server", "link": Link(outages=[Outage(at_s=1, for_s=1)])},
            "leave out `outages` of the link",
        ),
        ({}, {"dscp": 46}, "have no dscp"),
        ({}, {"lock_memory": True}, "have no lock_memory"),
        ({}, {"capture": True}, "have no capture"),
        ({}, {"instances": 1}, "have no instances"),
        ({"index_limit": 3}, {"middleware": "zenoh"}, "leave out index_limit"),
        ({"members": 101}, {"middleware": "zenoh"}, "a port for each of 100 publishing members"),
        ({}, {"middleware": "fastdds", "security": "EncryptRTPS"}, "security must be none"),
    ],
)
def test_what_no_fleet_can_have_is_refused(
    options: dict[str, Any], values: dict[str, Any], message: str
) -> None:
    assert message in (contradictions.unsupported(cell(options, **values)) or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"change_s": 3}, "there is no change"),
        ({"change": "late", "late_s": 3}, "has no effect without `change: restart-server`"),
    ],
)
def test_times_of_other_changes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DiscoveryOptions(**options)


RESTARTED = cell({"change": "restart-server", "change_s": 6}, middleware="zenoh", discovery="server")


def test_the_lab_restarts_the_server_at_the_change(tmp_path: Path) -> None:
    trial = Trial(cell=RESTARTED, testbed="lab", repetition=0, duration_s=30, warmup_s=0)
    lab_network, attempt, waited = Mock(emulator=None), Mock(), Mock(return_value=False)
    lab_network.node_of.return_value = "node3"
    failing = outage.of_trial(lab_network, trial, tmp_path)
    assert failing is not None and not failing.breaks
    failing.run(waited, attempt)
    assert waited.mock_calls[0] == call(6)
    assert attempt.mock_calls == [call.kill("discovery"), call.start_again("discovery", "discovery")]
    seen = arrivals.interruption(tmp_path)
    assert seen is not None and seen.node == "node3"


def test_servers_of_a_prepared_namespace_do_not_restart() -> None:
    restarted = RESTARTED.model_copy(update={"network": "flannel-vxlan"})
    assert not discovery.problems([restarted], None)
    (problem,) = discovery.problems([restarted], "team")
    assert "not those of team" in problem.what and "--namespace" in problem.remedy


@pytest.mark.parametrize(
    ("options", "least_s"),
    [
        ({"change": "late", "change_s": 10}, 14),
        ({"change": "late"}, 5),
        ({"change": "restart-server"}, 9),
        ({"change": "restart-server", "change_s": 10}, 16),
        ({"change": "restart-server", "late_s": 10}, 25),
    ],
)
def test_a_trial_is_longer_than_its_last_part(options: dict[str, Any], least_s: float) -> None:
    assert find("discovery").least_s(cell({"steady_s": 3} | options)) == least_s


@pytest.mark.parametrize(
    ("options", "least_s"),
    [
        ({}, 14),
        ({"start_s": 4}, 18),
        ({"change": "late"}, 25),
        ({"change": "restart-server"}, 29),
        ({"change": "restart-pod", "change_s": 20}, 34),
        ({"change": "restart-server", "change_s": 20}, 36),
    ],
)
def test_changed_members_of_a_probe_have_the_accepted_time(options: dict[str, Any], least_s: float) -> None:
    probe = cell({"matched_s": [10, 2], "steady_s": 3} | options, test="fleet-capacity", discovery="server")
    assert find("fleet-capacity").least_s(probe) == least_s
    fleet = find("fleet-capacity").load(probe).fleet
    assert fleet is not None
    if fleet.changed:
        assert fleet.changed_at_s(least_s) + 10 <= least_s - fleet.steady_s
