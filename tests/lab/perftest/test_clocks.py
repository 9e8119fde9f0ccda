"""Test delays between participants that read different monotonic clocks: a time namespace shifts one of them."""

import os

import pytest
from perftest_tools import end_all

from k8sdds import workloads
from k8sdds.model.measurement import ClockError, Measurement
from k8sdds.model.trial import Cell, Trial
from k8sdds.perftest.output import Summary
from k8sdds.results import histograms
from k8sdds.results.metrics import Metrics
from k8sdds.workloads.outputs import TrialOutputs

SHIFT_S = 100_000
"""More than the longest delay of a histogram: a delay from clocks that are not compared is its minimum or maximum."""
HIGHEST_NS = 100_000_000_000
"""Larger delays count as this."""
RATE, SECONDS = 200, 1

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not os.path.exists("/proc/self/ns/time"), reason="requires root and time namespaces"
)


def shifted(seconds: int) -> tuple[str, ...]:
    return ("unshare", "--time", "--monotonic", str(seconds), "--fork", "--kill-child")


def paced(
    perftest, tmp_path, middleware="cyclonedds", pub=(), sub=(), schedule=("-pubRate", f"{RATE}:sleep")
):
    """Run a paced test and return the output of the subscriber and the publisher."""
    logs = [tmp_path / name / histograms.LOG for name in ("sub", "pub")]
    for log in logs:
        log.parent.mkdir()
    subscriber = perftest.sub("-histogramFile", logs[0], within=sub, middleware=middleware)
    publisher = perftest.pub(
        "-pacedTest", *schedule, "-latencyCount", 2, "-histogramFile", logs[1],
        time=SECONDS, within=pub, middleware=middleware,
    )  # fmt: skip
    end_all(publisher, subscriber)
    return subscriber.k8sdds, publisher.k8sdds


@pytest.mark.parametrize(
    ("pub", "sub"),
    [((), shifted(SHIFT_S)), (shifted(SHIFT_S), ()), (shifted(SHIFT_S), shifted(2 * SHIFT_S))],
    ids=["subscriber", "publisher", "both"],
)
@pytest.mark.parametrize("middleware", ["cyclonedds", "raw", "zenoh"])
def test_delays_between_different_clocks(perftest, tmp_path, middleware, pub, sub):
    subscriber, publisher = paced(perftest, tmp_path, middleware, pub, sub)
    first = [output["first_sample_monotonic_ns"] for output in (publisher, subscriber)]
    assert abs(first[0] - first[1]) > SHIFT_S * 0.99e9, "the clocks do not differ, so this test shows nothing"
    arrivals, delays = subscriber["arrivals"], subscriber["one_way_realtime_ns"]
    assert arrivals["clock"] == "separate"
    assert delays["count"] == subscriber["received"] > 0
    assert 0 < delays["min"] <= delays["max"] < HIGHEST_NS
    # Nothing steps the clock of this machine during the test.
    assert abs(arrivals["clock_step_ns"]) < 1_000_000
    assert subscriber["one_way_ns"] is None
    assert publisher["half_round_trip_ns"]["count"] == publisher["pongs_received"] > 0
    # Every second sample is a ping, beginning with the first one.
    assert publisher["pings_sent"] == (publisher["sent"] + 1) // 2
    assert histograms.read(tmp_path, ["one_way"]) is None
    assert histograms.read(tmp_path, ["one_way_realtime"]).total == delays["count"]
    assert histograms.read(tmp_path, ["half_round_trip"]).total == publisher["pongs_received"]


def test_pings_of_a_recorded_schedule_are_answered_whatever_their_size(perftest, tmp_path):
    file = tmp_path / "recorded.txt"
    file.write_text("period 20000\n0 50000\n5000 64\n5000 64\n10000 3000\n15000 28\n")
    subscriber, publisher = paced(perftest, tmp_path, sub=shifted(SHIFT_S), schedule=("-schedule", file))
    assert publisher["pongs_received"] == publisher["pings_sent"] == publisher["sent"] / 2 == 125
    assert subscriber["received"] == publisher["sent"] and publisher["foreign_samples"] == 0


def test_the_bound_of_the_clocks_decides_which_delays_count(perftest, tmp_path):
    subscriber, publisher = paced(perftest, tmp_path, sub=shifted(SHIFT_S))
    workload = workloads.find("paced")
    cell = Cell(network="host", test="paced", payload_bytes=100, rate=RATE)
    trial = Trial(cell=cell, testbed="cluster", repetition=0, duration_s=SECONDS, warmup_s=0.1)
    summaries = {
        participant: Summary(publisher if participant.publishes else subscriber)
        for participant in cell.participants
    }

    def measured(error):
        outputs = TrialOutputs(trial, Measurement({}, None, {}, clock_error=error), tmp_path, summaries)
        record = Metrics()
        workload.measure(record, outputs)
        return record.delay_method, record.delay_count

    assert measured(None) == ("round trip / 2", publisher["pongs_received"])
    assert measured(ClockError(1e6, "chrony")) == ("round trip / 2", publisher["pongs_received"])
    # Comparing the clocks has an error of a small part of a microsecond, which clock_step_ns shows.
    assert measured(ClockError(0.0, "chrony")) == ("synchronized clocks", subscriber["received"])


def test_a_shared_clock_needs_no_round_trips(perftest, tmp_path):
    same = ("unshare", "--fork", "--kill-child", "--mount")
    subscriber, publisher = paced(perftest, tmp_path, sub=same)
    assert subscriber["arrivals"]["clock"] == "shared"
    assert subscriber["arrivals"]["clock_step_ns"] == 0
    assert subscriber["one_way_ns"]["count"] == subscriber["received"] > 0
    assert subscriber["one_way_realtime_ns"] is None
    assert publisher["pings_sent"] == 0 and publisher["half_round_trip_ns"] is None
