"""Test the age of information that a subscriber observes, and the log of what arrived in each millisecond."""

from __future__ import annotations

import bisect
import itertools
import json
import random
import signal
import subprocess
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perftest_tools import end_all, tool

from k8sdds.results import arrivals as log_of_arrivals
from k8sdds.results import slow_samples

Arrivals = list[tuple[int, int]]
"""When each sample arrived and when it was due, in ns."""
BEGIN, MS = 10**9, 10**6
ERROR = 2**-8
"""Largest relative error of a percentile: the width of a bucket."""


def observed(begin: int, end: int, deadline: int, arrivals: Arrivals) -> dict:
    lines = [f"{begin} {end} {deadline}", *(f"{now} {due}" for now, due in arrivals)]
    completed = subprocess.run(
        [tool("k8sdds-age-tool")], input="\n".join(lines), capture_output=True, text=True, check=True
    )
    return json.loads(completed.stdout)


def gaps(begin: int, end: int, arrivals: Arrivals) -> list[int]:
    fresh = [now for i, (now, due) in enumerate(arrivals) if all(due > other for _, other in arrivals[:i])]
    bounds = [begin, *(now for now in fresh if begin < now < end), end]
    return [to - since for since, to in itertools.pairwise(bounds)]


def pieces(begin: int, end: int, arrivals: Arrivals) -> list[tuple[int, int]]:
    """Return the age at the start and at the end of each part of the interval in which it rises."""
    times = sorted({begin, end, *(now for now, _ in arrivals if begin < now < end)})
    known = [now for now, _ in arrivals]
    found = []
    for since, to in itertools.pairwise(times):
        before = arrivals[: bisect.bisect_right(known, since)]
        if before:
            newest = max(due for _, due in before)
            found.append((since - newest, to - newest))
    return found


def share_above(age: float, parts: list[tuple[int, int]]) -> float:
    above = sum(max(0, high - max(low, age)) for low, high in parts)
    return above / sum(high - low for low, high in parts)


@st.composite
def streams(draw: st.DrawFn) -> tuple[int, int, Arrivals]:
    """Return an interval and what arrives: periodic samples with random delays, losses, stalls and changes of order."""
    source = random.Random(draw(st.integers(0, 10**9)))
    period = draw(st.integers(10_000, 20 * MS))
    samples = draw(st.integers(0, 120))
    jitter = draw(st.integers(0, 5 * period))
    loss = draw(st.sampled_from([0, 0, 0.1, 0.5]))
    arrivals = []
    stalled_until = 0
    for number in range(-5, samples + 5):
        due = BEGIN + number * period
        if source.random() < 0.02:
            stalled_until = due + source.randint(0, 30) * period
        if source.random() >= loss:
            arrivals.append((max(stalled_until, due) + source.randint(0, jitter), due))
    return BEGIN, BEGIN + max(samples, 1) * period, sorted(arrivals)


@given(streams(), st.integers(1, 100 * MS))
def test_the_age_is_that_of_a_brute_force_computation(stream, deadline):
    begin, end, arrivals = stream
    seen = observed(begin, end, deadline, arrivals)
    expected = gaps(begin, end, arrivals)
    assert seen["blind"] == max(expected)
    assert seen["gaps"] == sum(gap > deadline for gap in expected)
    parts = pieces(begin, end, arrivals)
    if not parts:
        assert seen["ages"] is None
        return
    area = sum(Fraction(high * high - low * low, 2) for low, high in parts)
    assert seen["ages"]["mean"] == pytest.approx(float(area / sum(high - low for low, high in parts)))
    assert seen["ages"]["max"] == max(high for _, high in parts)
    p99 = seen["ages"]["p99"]
    assert share_above(p99 * (1 + ERROR) + 1, parts) <= 0.01 <= share_above(p99 * (1 - ERROR) - 1, parts)


def test_regular_samples_have_the_ages_of_the_textbook():
    # A sawtooth between the delay and the delay plus the period, whose mean is in the middle.
    period, delay = 10 * MS, 2 * MS
    arrivals = [(BEGIN + i * period + delay, BEGIN + i * period) for i in range(-1, 100)]
    seen = observed(BEGIN, BEGIN + 100 * period, period, arrivals)
    assert seen["ages"]["mean"] == pytest.approx(7 * MS, rel=1e-9)
    assert seen["ages"]["p99"] == pytest.approx(11.9 * MS, rel=ERROR)
    assert (seen["ages"]["max"], seen["blind"], seen["gaps"]) == (12 * MS, 10 * MS, 0)


def test_without_any_sample_only_the_time_without_one_is_known():
    assert observed(BEGIN, BEGIN + 100, 50, []) == {"blind": 100, "gaps": 1, "ages": None}
    assert observed(BEGIN, BEGIN, 50, [(BEGIN, 0)]) is None


def test_clocks_that_differ_by_years_overflow_nothing():
    far = 2**63 - 1
    arrivals = [(BEGIN + 1, -far), (BEGIN + 2, far - 1), (BEGIN + 3, far)]
    seen = observed(BEGIN, BEGIN + 10, 1, arrivals)
    assert seen == {"blind": 7, "gaps": 1, "ages": None}, "ages beyond 100 s count as 100 s, or as 0"


RATE, STALL_S, LENGTH_S = 200, 0.3, 5
IN_FLIGHT_S = 1
"""How long the last sample of a process that was stopped may take to its subscriber."""
PACED = ("-pacedTest", "-pubRate", f"{RATE}:sleep")


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw", "zenoh"])
def test_a_publisher_that_stops_leaves_the_subscriber_blind(perftest, tmp_path, middleware):
    log = tmp_path / log_of_arrivals.FILE
    publisher, subscriber = perftest.begin(
        pub=PACED, sub=("-arrivalsFile", log), time=LENGTH_S, middleware=middleware
    )
    publisher.wait_for_phase("M")
    time.sleep(0.1)
    publisher.stop()
    time.sleep(IN_FLIGHT_S)
    since_ns = time.monotonic_ns()
    time.sleep(STALL_S)
    until_ns = time.monotonic_ns()
    publisher.signal(signal.SIGCONT)
    end_all(publisher, subscriber)
    arrivals, stalled_s = subscriber.k8sdds["arrivals"], (until_ns - since_ns) / 1e9
    assert arrivals["blind_ns"] >= until_ns - since_ns and arrivals["gaps"] >= 1
    # The stall is one tooth of the age, whose last 50 ms are 1 % of the time.
    age = arrivals["age_ns"]
    assert age["max"] >= arrivals["blind_ns"] and age["mean"] >= stalled_s**2 / 2 / LENGTH_S * 1e9
    assert age["max"] >= age["p99"] >= (stalled_s - 0.01 * LENGTH_S) * 1e9 * (1 - ERROR)
    sent_again = publisher.k8sdds["retransmitted_bytes"]
    if middleware in ("cyclonedds", "zenoh"):
        # A peer that is slow is asked or asks again; TCP probes one that does not acknowledge.
        assert sent_again < 10_000
    else:
        assert sent_again is None
    # It is a gap in the log, and the samples after it were due in it.
    (logged,) = log_of_arrivals.of_subscriber(tmp_path).values()
    after = [one for one in logged if one.at_us * 1000 > until_ns]
    assert not [one for one in logged if since_ns <= one.at_us * 1000 <= until_ns]
    assert after[0].late and after[0].max_delay_us >= 0.2e6


def test_the_age_begins_with_samples_of_the_warm_up(perftest):
    period_ns = 10**9 / RATE
    _, subscriber = perftest.pair(pub=PACED, time=0.5, warm_up=3)
    arrivals = subscriber.k8sdds["arrivals"]
    assert arrivals["blind_ns"] >= 0.9 * period_ns
    assert arrivals["age_ns"]["max"] >= arrivals["blind_ns"] and arrivals["age_ns"]["mean"] >= period_ns / 2


def test_other_tests_have_no_age(perftest):
    publisher, subscriber = perftest.pair(pub=("-latencyTest",))
    assert subscriber.k8sdds["arrivals"] is None and publisher.k8sdds["retransmitted_bytes"] == 0


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw", "zenoh"])
def test_every_sample_is_logged_when_it_arrives(perftest, tmp_path, middleware):
    log = ("-arrivalsFile", tmp_path / log_of_arrivals.FILE)
    _, subscriber = perftest.pair(pub=PACED, sub=log, time=0.5, middleware=middleware)
    (logged,) = log_of_arrivals.of_subscriber(tmp_path).values()
    result = subscriber.k8sdds
    assert sum(one.samples for one in logged) == sum(one.fresh for one in logged) == result["received"] > 0
    assert sum(one.late for one in logged) == result["arrivals"]["missed"]
    assert [one.at_us for one in logged] == sorted(one.at_us for one in logged)
    first, last = result["first_sample_monotonic_ns"] // 1000, result["last_sample_monotonic_ns"] // 1000
    assert first - 1 <= logged[0].at_us <= logged[-1].at_us <= last + 1


def test_the_slowest_samples_are_logged_when_they_arrive(perftest, tmp_path):
    publisher, subscriber = perftest.begin(
        pub=("-pacedTest", "-pubRate", "1000:sleep"), sub=("-slowFile", tmp_path / slow_samples.FILE), time=6
    )
    publisher.wait_for_phase("M")
    publisher.stop()
    time.sleep(3)  # longer than any other pause on a busy machine
    until_us = time.monotonic_ns() // 1000
    publisher.signal(signal.SIGCONT)
    end_all(publisher, subscriber)
    slow, result = slow_samples.of_subscriber(tmp_path), subscriber.k8sdds
    assert 0 < len(slow) <= result["received"] / 100
    assert max(one.delay_us for one in slow) == result["one_way_ns"]["max"] // 1000
    # Thousands of samples were due in the stall, and the slowest of them were due at its start.
    assert all(one.at_us - one.delay_us < until_us < one.at_us for one in slow)


@pytest.mark.parametrize(("rate", "written"), [(100, False), (2000, True)])
def test_few_samples_have_no_slowest_percent(perftest, tmp_path, rate, written):
    perftest.pair(
        pub=("-pacedTest", "-pubRate", f"{rate}:sleep"),
        sub=("-slowFile", tmp_path / slow_samples.FILE),
        time=0.5,
    )
    assert bool(slow_samples.of_subscriber(tmp_path)) == written


def test_what_is_too_long_to_be_logged_is_refused(perftest, tmp_path):
    longest_s = int(log_of_arrivals.longest_s(publishers=1))
    processes = perftest.begin(
        pub=PACED, sub=("-arrivalsFile", tmp_path / log_of_arrivals.FILE), time=longest_s + 1
    )
    end_all(*processes, codes=(2, 2))
    message = f"publisher 0 sends for {longest_s + 1} s; at most {longest_s} s of each publisher are logged"
    assert message in processes[1].err
