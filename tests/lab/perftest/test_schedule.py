"""Test when the samples of a rate profile are due, against exact arithmetic, and the paced test that follows them."""

from __future__ import annotations

import math
import subprocess
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perftest_tools import tool

NS = 1_000_000_000


def schedule(profile: str, rate: float, seconds: float) -> list[int]:
    done = subprocess.run(
        [tool("k8sdds-schedule-tool"), profile, f"{rate:f}", f"{seconds:f}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def nearest(ns: Fraction) -> int:
    """Round as the program does: halves up. Python's `round` rounds them to even numbers."""
    return math.floor(ns + Fraction(1, 2))


rates = st.integers(1, 20_000)
milliseconds = st.integers(1, 300)


@settings(max_examples=40, deadline=None)
@given(rates, milliseconds)
def test_a_constant_rate(rate: int, ms: int) -> None:
    expected = math.ceil(Fraction(rate * ms, 1000))
    due = schedule("constant", rate, ms / 1000)
    assert len(due) == expected
    assert due == [nearest(Fraction(number * NS, rate)) for number in range(expected)]


@settings(max_examples=40, deadline=None)
@given(rates, st.integers(0, 20_000), milliseconds)
def test_a_ramp(rate: int, start: int, ms: int) -> None:
    if rate == start:
        return
    seconds = Fraction(ms, 1000)
    due = schedule(f"ramp:{start}", rate, ms / 1000)
    assert len(due) == math.ceil(Fraction(rate + start, 2) * seconds)
    assert due[0] == 0 and due == sorted(due)
    for number, ns in enumerate(due):
        t = Fraction(ns, NS)
        # As many samples are due until then as the area under the rate.
        until = start * t + Fraction(rate - start) / seconds * t * t / 2
        assert abs(until - number) < 1e-4


@settings(max_examples=40, deadline=None)
@given(rates, st.integers(1, 100), milliseconds)
def test_bursts(rate: int, samples: int, ms: int) -> None:
    due = schedule(f"burst:{samples}", rate, ms / 1000)
    bursts = math.ceil(Fraction(rate * ms, 1000 * samples))
    expected = [nearest(Fraction(burst * samples * NS, rate)) for burst in range(bursts)]
    assert due == [ns for ns in expected for _ in range(samples)]


def test_on_off() -> None:
    due = schedule("on-off:0.1:0.3", 50, 1)
    assert due == [NS * ms // 1000 for start in (0, 400, 800) for ms in range(start, start + 100, 20)]
    # The end cuts a phase.
    assert len(schedule("on-off:0.1:0.3", 50, 0.45)) == 8


@pytest.mark.parametrize(
    ("profile", "samples"),
    [("constant", 300), ("ramp:0", 150), ("burst:50", 300), ("on-off:0.1:0.2", 100)],
)
def test_a_paced_test_sends_what_is_due(perftest, profile: str, samples: int) -> None:
    options = ("-pacedTest", "-pubRate", "500:sleep", "-rateProfile", profile)
    publisher, subscriber = perftest.pair(pub=options, time=0.6)
    p = publisher.k8sdds
    assert p["schedule"]["samples"] == p["sent"] + p["schedule"]["not_sent"] == samples
    assert p["sent"] == subscriber.k8sdds["received"] > 0
    assert p["options"]["rateProfile"] == profile


def test_the_deadline_of_a_burst_is_the_next_burst(perftest) -> None:
    options = ("-pacedTest", "-pubRate", "500:sleep", "-rateProfile", "burst:100")
    _, subscriber = perftest.pair(pub=options, time=0.6)
    assert subscriber.k8sdds["arrivals"]["deadline_ns"] == 200_000_000
