"""Test how the delays of a paced trial are measured: by one clock, by synchronized clocks, or by round trips."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from k8sdds.model.measurement import ClockError
from k8sdds.results import hdr
from k8sdds.results.metrics import Metrics
from k8sdds.workloads import find
from k8sdds.workloads.outputs import TrialOutputs
from tests.unit import builders

DELAY_US, HALF_ROUND_TRIP_US = 200, 150
PACED = find("paced")


def log(value_us: float, count: int = 1000) -> hdr.Histogram:
    return hdr.decode(hdr.encode({round(value_us * 1000): count}))


def outputs(
    error: ClockError | None,
    clocks: tuple[str, ...] = ("separate",),
    delay_us: float = DELAY_US,
    step_us: float = 0,
) -> TrialOutputs:
    """Return the outputs of a trial with one subscriber for each of `clocks`."""
    cell = builders.cell(test="paced", payload_bytes=64, rate=100, subscribers=len(clocks))
    logs = {"half_round_trip": log(HALF_ROUND_TRIP_US)} if "separate" in clocks else {}
    logs |= {"one_way_realtime": log(delay_us)} if "separate" in clocks else {}
    logs |= {"one_way": log(10)} if "shared" in clocks else {}
    schedule = {"samples": 1000, "not_sent": 0, "late": 0}
    summaries: dict[str, Any] = {"pub0": {"sent": 1000, "schedule": schedule, "arrivals": None}}
    for number, clock in enumerate(clocks):
        arrivals = {"clock": clock, "clock_step_ns": step_us * 1000 if clock == "separate" else 0}
        arrivals |= {"deadline_ns": 10_000_000, "missed": 10, "jitter_ns": 500}
        summaries[f"sub{number}"] = {"received": 1000, "schedule": None, "arrivals": arrivals}
    trial = builders.trial(cell, "cluster", duration_s=10, warmup_s=1)
    given = builders.outputs(trial, {}, summaries, clock_error=error)
    vars(given)["latencies"] = logs  # as read from the logs of the participants
    return given


def measured(given: TrialOutputs) -> Metrics:
    record = Metrics()
    PACED.measure(record, given)
    return record


def see(
    given: TrialOutputs, index: int, blind_ms: int, gaps: int, ages_us: tuple[int, int, int] | None
) -> None:
    """Set what a subscriber saw of its newest samples."""
    arrivals = given.subscribers[index]["arrivals"]
    ages = dict(zip(("mean", "p99", "max"), ages_us, strict=True)) if ages_us else {}
    age_ns = {name: value * 1000 for name, value in ages.items()} or None
    arrivals |= {"blind_ns": blind_ms * 10**6, "gaps": gaps, "age_ns": age_ns}


def with_deadline(given: TrialOutputs) -> TrialOutputs:
    cell = given.trial.cell.model_copy(update={"test_options": {"deadline_ms": 20}})
    changed = replace(given, trial=given.trial.model_copy(update={"cell": cell}))
    vars(changed)["latencies"] = given.latencies
    return changed


def test_the_record_has_the_age_and_the_time_without_a_sample_of_the_worst_subscriber() -> None:
    given = outputs(None, ("shared", "shared"))
    see(given, 0, blind_ms=300, gaps=2, ages_us=(40, 900, 1000))
    see(given, 1, blind_ms=200, gaps=3, ages_us=(50, 800, 2000))
    record = measured(given)
    assert (record.age_mean_us, record.age_p99_us, record.age_max_us) == (50, 900, 2000)
    assert record.blind_ms == 300
    assert record.gaps is None, "the default of one period is within the jitter"
    assert measured(with_deadline(given)).gaps == 5
    assert (record.delay_by_subscriber or {})["sub1"]["age_max_us"] == 2000
    # A subscriber that never had a sample of a publisher has no age, which is not that of the others.
    see(given, 1, blind_ms=10_000, gaps=1, ages_us=None)
    record = measured(given)
    assert (record.age_mean_us, record.age_max_us, record.blind_ms) == (None, None, 10_000)


def test_clocks_that_differ_leave_the_age_unknown_but_not_the_time_without_a_sample() -> None:
    synchronized, apart = outputs(ClockError(1, "chrony")), outputs(None)
    for given in (synchronized, apart):
        see(given, 0, blind_ms=300, gaps=2, ages_us=(40, 900, 1000))
    assert measured(synchronized).age_p99_us == 900
    record = measured(with_deadline(apart))
    assert (record.age_mean_us, record.age_p99_us, record.age_max_us) == (None, None, None)
    assert (record.blind_ms, record.gaps) == (300, 2)


def test_perftest_of_an_earlier_version_reports_no_age() -> None:
    record = measured(outputs(None, ("shared",)))
    assert (record.age_mean_us, record.blind_ms, record.gaps) == (None, None, None)


def test_a_shared_clock_needs_no_bound() -> None:
    given = outputs(None, ("shared",))
    record = measured(given)
    assert (record.delay_method, record.delay_p50_us) == ("shared clock", pytest.approx(10, rel=0.001))
    assert record.clock_error_us is None and record.deadline_missed_percent == 1
    assert PACED.warnings(given) == []


def test_synchronized_clocks_measure_one_way() -> None:
    given = outputs(ClockError(DELAY_US * 0.029, "chrony"))
    record = measured(given)
    assert record.delay_method == "synchronized clocks"
    assert record.delay_p50_us == pytest.approx(DELAY_US, rel=0.001)
    assert record.clock_error_us == pytest.approx(5.8)
    assert record.deadline_missed_percent == 1 and record.delay_jitter_us == 0.5
    assert PACED.warnings(given) == []
    assert PACED.invalid(given) is None


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (outputs(None), "do not share a clock"),
        (outputs(ClockError(None, "n2: chrony: its clock is not synchronized")), "n2: chrony: its clock is not"),
        (outputs(ClockError(DELAY_US * 0.031, "chrony")), "may differ by 6.2 µs (chrony), more than 3% of the"),
        (outputs(ClockError(1, "chrony"), step_us=5000), "5001.0 µs (chrony and the clocks were stepped by 5000.0"),
        (outputs(ClockError(1, "ptp4l"), delay_us=0), "differ by more than ptp4l reported"),
    ],
    ids=["no bound", "unknown bound", "large bound", "stepped", "negative delay"],
)  # fmt: skip
def test_otherwise_half_of_the_round_trip_counts(given: TrialOutputs, reason: str) -> None:
    record = measured(given)
    assert record.delay_method == "round trip / 2"
    assert record.delay_p50_us == pytest.approx(HALF_ROUND_TRIP_US, rel=0.001)
    assert record.deadline_missed_percent is None, "a deadline needs the one-way delay"
    assert record.delay_jitter_us == 0.5, (
        "differences of delays do not depend on the difference of the clocks"
    )
    (warning,) = PACED.warnings(given)
    assert warning.startswith("clocks: delays are half of round trips, because ") and reason in warning


def test_a_subscriber_on_the_machine_of_the_publisher_counts_with_the_others() -> None:
    record = measured(outputs(ClockError(1, "chrony"), ("shared", "separate")))
    assert record.delay_method == "synchronized clocks"
    assert record.delay_count == 2000
    assert record.delay_max_us == pytest.approx(DELAY_US, rel=0.001)


def test_reports_show_the_delays_that_count() -> None:
    assert PACED.shown("shared clock") == ("one_way",)
    assert PACED.shown("synchronized clocks") == ("one_way", "one_way_realtime")
    assert PACED.shown("round trip / 2") == ("half_round_trip",)
    assert PACED.shown(None) == ()
