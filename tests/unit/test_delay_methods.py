"""Test how the delays of a paced trial are measured: by one clock, by synchronized clocks, or by round trips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8sdds.model.measurement import ClockError, Measurement
from k8sdds.model.trial import Cell, Participant, Trial
from k8sdds.perftest.output import Summary
from k8sdds.results import hdr
from k8sdds.results.metrics import Metrics
from k8sdds.workloads import find
from k8sdds.workloads.outputs import TrialOutputs

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
    cell = Cell(
        network="host", test="paced", payload_bytes=64, rate=100, subscribers=len(clocks), layout="split"
    )
    logs = {"half_round_trip": log(HALF_ROUND_TRIP_US)} if "separate" in clocks else {}
    logs |= {"one_way_realtime": log(delay_us)} if "separate" in clocks else {}
    logs |= {"one_way": log(10)} if "shared" in clocks else {}
    summaries: dict[Participant, Any] = {}
    for participant in cell.participants:
        if participant.publishes:
            data: dict[str, Any] = {
                "sent": 1000, "schedule": {"samples": 1000, "not_sent": 0, "late": 0}, "arrivals": None
            }  # fmt: skip
        else:
            clock = clocks[participant.index]
            arrivals = {
                "clock": clock,
                "clock_step_ns": step_us * 1000 if clock == "separate" else 0,
                "deadline_ns": 10_000_000,
                "missed": 10,
                "jitter_ns": 500,
            }
            data = {"received": 1000, "schedule": None, "arrivals": arrivals}
        summaries[participant] = Summary(data)
    given = TrialOutputs(
        Trial(cell=cell, testbed="cluster", repetition=0, duration_s=10, warmup_s=1),
        Measurement({}, None, {}, clock_error=error),
        Path("unused"),
        summaries,
    )
    vars(given)["latencies"] = logs  # as read from the logs of the participants
    return given


def measured(given: TrialOutputs) -> Metrics:
    record = Metrics()
    PACED.measure(record, given)
    return record


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
