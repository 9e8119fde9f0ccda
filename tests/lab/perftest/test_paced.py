"""Test the paced test: each delay counts from when the sample was due, and a stall does not shift the schedule."""

from __future__ import annotations

import signal
import time

import pytest
from perftest_tools import Process, end_all

from k8sdds.results import hdr, histograms

STALL_S, LENGTH_S = 0.2, 4


def stall(process: Process) -> None:
    """Stop a process for at least STALL_S."""
    process.stop()
    time.sleep(STALL_S)
    process.signal(signal.SIGCONT)


def longer_than(delays: hdr.Histogram, seconds: float) -> int:
    return delays.above(round(seconds * 1e9))


@pytest.mark.parametrize("method", ["sleep", "spin"])
@pytest.mark.parametrize("middleware", ["cyclonedds", "raw", "zenoh"])
def test_every_sample_of_the_schedule_is_timed(perftest, tmp_path, middleware, method):
    publisher, subscriber = perftest.pair(
        pub=("-pacedTest", "-pubRate", f"400:{method}"),
        sub=("-histogramFile", tmp_path / "sub0.hlog"),
        time=0.5,
        middleware=middleware,
    )
    p, s = publisher.k8sdds, subscriber.k8sdds
    assert (p["test"], s["test"]) == ("paced", "paced")
    assert p["schedule"]["samples"] == 200 and p["schedule"]["not_sent"] == 200 - p["sent"]
    assert s["arrivals"]["clock"] == "shared" and s["arrivals"]["deadline_ns"] == 2_500_000
    assert s["one_way_ns"]["count"] == s["received"] and s["one_way_ns"]["min"] > 0
    assert p["pings_sent"] == 0
    assert 0 < p["pacer_spin_s"] <= p["measured_s"] and s["pacer_spin_s"] == 0
    # 20 values are above the 90th percentile, 2 above the 99th.
    if s["received"] == 200:
        known = s["one_way_ns"]["p90"] is not None
        assert known == (s["one_way_ns"]["episodes"]["p90"] >= 10) and s["one_way_ns"]["p99"] is None


def test_a_stall_of_the_publisher_counts_in_every_delay_and_shifts_nothing(perftest, tmp_path):
    rate = 1000
    log = tmp_path / "sub0" / histograms.LOG
    log.parent.mkdir()
    paced = ("-pacedTest", "-pubRate", f"{rate}:sleep")
    publisher, subscriber = perftest.begin(pub=paced, sub=("-histogramFile", log), time=LENGTH_S)
    publisher.wait_for_phase("M")
    stall(publisher)
    end_all(publisher, subscriber)
    assert publisher.k8sdds["sent"] == publisher.k8sdds["schedule"]["samples"] == rate * LENGTH_S
    assert publisher.k8sdds["schedule"]["max_lateness_ns"] > STALL_S * 1e9 - 2e9 / rate
    delays = histograms.read(tmp_path, ["one_way"])
    assert delays.total == subscriber.k8sdds["received"] == rate * LENGTH_S
    assert delays.maximum > STALL_S * 1e9 - 2e9 / rate
    # The stall is one episode for all samples that it delays. A pause while they are sent can begin another one.
    found = histograms.episodes(tmp_path, ["one_way"], {"half": STALL_S / 2 * 1e6})
    assert found is not None and 1 <= found["half"] <= longer_than(delays, STALL_S / 2) / 10
    # The samples that became due during the stall waited for its rest. A shifted schedule would have one such sample.
    for share in (0.25, 0.5, 0.75):
        assert longer_than(delays, share * STALL_S) >= (1 - share) * STALL_S * rate - 2


def test_a_latency_test_at_a_rate_times_pings_from_when_they_were_due(perftest, tmp_path):
    rate = 500
    log = tmp_path / "pub0" / histograms.LOG
    log.parent.mkdir()
    latency = ("-latencyTest", "-pubRate", f"{rate}:sleep", "-histogramFile", log)
    publisher, subscriber = perftest.begin(pub=latency, time=LENGTH_S)
    publisher.wait_for_phase("M")
    stall(subscriber)
    end_all(publisher, subscriber)
    latencies = histograms.read(tmp_path, ["latency"])
    # No ping is sent before it is due, also not at the end of the measured interval.
    assert latencies.minimum > 0
    assert publisher.k8sdds["sent"] <= rate * publisher.k8sdds["measured_s"] + 1
    # One ping was under way during the stall. Those that were due meanwhile waited for its answer.
    assert longer_than(latencies, STALL_S / 2) >= STALL_S / 2 * rate - 2


def test_a_latency_test_at_a_rate_also_paces_its_warm_up(perftest):
    rate = 100
    before_ns = time.monotonic_ns()
    publisher, subscriber = perftest.pair(pub=("-latencyTest", "-pubRate", f"{rate}:sleep"), warm_up=0.5)
    # A busy machine ends the warm-up late.
    warm_up_s = (publisher.k8sdds["first_sample_monotonic_ns"] - before_ns) / 1e9
    assert publisher.k8sdds["pongs_received"] > 0
    assert 0 < subscriber.k8sdds["warmup_received"] <= rate * warm_up_s + 1
