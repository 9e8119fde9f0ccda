"""The table of columns is the only source of the record, its documentation and its schema."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.results.columns import GROUPS
from k8sdds.results.metrics import METRICS, SOME_TESTS
from k8sdds.results.record import COLUMNS, TrialRecord, checked
from k8sdds.workloads import HEADLINES, WORKLOADS, declaring, trials_with

RECORDED = Path(__file__).parent / "recorded"


def test_every_column_has_a_group_a_source_and_a_description() -> None:
    for column in COLUMNS.values():
        assert column.group in GROUPS
        assert column.source and column.description
    for metric in METRICS.values():
        assert metric.title and metric.unit
        assert metric.kind in ("number", "integer")


@pytest.mark.parametrize(
    ("changes", "read_as"),
    [
        ({}, True),
        ({"pings": None, "loaded_latency_count": None}, True),
        ({"pings": None, "loaded_latency_count": None, "loaded_latency_p50_us": None}, None),
        ({"schema": 3}, None),
        ({"testbed": "imported"}, None),
        ({"test": "latency"}, None),
    ],
)
def test_older_throughput_trials_are_read_as_trials_that_time_samples(
    changes: dict[str, object], read_as: bool | None
) -> None:
    older = {
        "schema": 2, "test": "throughput", "testbed": "lab", "valid": True, "throughput_mbps": 5.0, "pings": 200,
        "loaded_latency_count": 200, "loaded_latency_p50_us": 7.0,
    }  # fmt: skip
    record = checked(older | changes, "trials.jsonl:1")
    assert record.get("loaded_latency") is read_as
    assert {key: value for key, value in record.items() if key != "loaded_latency"} == older | changes


def test_a_metric_that_can_be_0_is_compared_on_the_linear_scale() -> None:
    """Pairs on the log scale leave out values of 0."""
    counts = {name for name, metric in METRICS.items() if metric.kind == "integer" and metric.unit != "bytes"}
    shares = {name for name, metric in METRICS.items() if metric.unit == "%"}
    recorded = (json.loads(path.read_text()).get("record", {}) for path in RECORDED.glob("*/expected.json"))
    zero = {name for record in recorded for name in METRICS if record.get(name) == 0}
    assert min(len(counts), len(shares), len(zero)) > 3
    assert [name for name in (*counts, *shares, *zero) if METRICS[name].log] == []


def test_the_headlines_of_dds_come_first() -> None:
    assert HEADLINES[:3] == ("throughput_mbps", "latency_p90_us", "delay_p90_us")


def test_the_schema_has_every_column() -> None:
    schema = TrialRecord.model_json_schema()
    assert list(schema["properties"]) == list(COLUMNS)
    numbers = {"type": "array", "items": {"type": "number"}}
    assert schema["properties"]["loss_percent"]["anyOf"][0] == numbers, "without the limits of the option"


def test_tests_declare_the_columns_that_others_do_not_have() -> None:
    assert declaring("retransmits") == ["tcp-stream"] and declaring("connections_per_s") == [
        "tcp-crr",
        "service",
    ]
    assert trials_with("connections_per_s") == "trials with `test: tcp-crr` or `service`"
    assert all(declaring(name) for name, column in COLUMNS.items() if column.only == SOME_TESTS)
    assert {
        name for workload in WORKLOADS.values() for name in (*workload.metrics, *workload.columns)
    } <= set(COLUMNS)


def test_columns_of_special_trials_are_written_only_when_set() -> None:
    attempt = TrialRecord(trial_id="a")
    assert "ip_fragments_per_sample" not in attempt.as_json()
    attempt.ip_fragments_per_sample = 3
    assert attempt.as_json()["ip_fragments_per_sample"] == 3


@pytest.mark.parametrize("name", ["latency", "paced", "multicast", "best-effort"])
def test_a_recorded_attempt_is_read_and_written_unchanged(name: str) -> None:
    recorded = json.loads((RECORDED / name / "expected.json").read_text())["record"]
    written = TrialRecord.read(recorded | {"added_later": [1]}).as_json()
    assert {key: written[key] for key in recorded} == recorded
    assert written["added_later"] == [1]
    TrialRecord.model_validate(written)


@pytest.mark.parametrize(
    ("key", "value"),
    [("sent", "3"), ("sent", 1.5), ("sent", 10**400), ("lost_percent", True), ("lost_percent", -(10**400)),
     ("warnings", "none"), ("includes_scheduling", 1)],
)  # fmt: skip
def test_values_of_the_wrong_type_are_null(key: str, value: object) -> None:
    assert getattr(TrialRecord.read({key: value}), key) is None


def test_an_attempt_without_valid_true_is_invalid() -> None:
    assert TrialRecord.read({"valid": True}).valid
    for attempt in ({}, {"valid": "yes"}, {"valid": 1}):
        assert TrialRecord.read(attempt).valid is False


@pytest.mark.parametrize("key", ["_fields_set", "cls", "model_config", "__class__", "as_json", ""])
def test_unknown_keys_cannot_change_the_record(key: str) -> None:
    attempt = TrialRecord.read({"trial_id": "a", key: "x"})
    assert attempt.trial_id == "a"
    assert attempt.as_json()[key] == "x"
