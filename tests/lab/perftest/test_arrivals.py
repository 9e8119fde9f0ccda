"""Test the log of what arrived in each millisecond."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from k8sdds.results import arrivals

PACED = ("-pacedTest", "-pubRate", "200:sleep")


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "raw"])
def test_every_sample_is_logged_when_it_arrives(perftest, tmp_path: Path, middleware: str):
    _, subscriber = perftest.pair(
        pub=PACED,
        sub=("-arrivalsFile", tmp_path / arrivals.FILE),
        time=0.5,
        middleware=middleware,
    )
    (logged,) = arrivals.of_subscriber(tmp_path).values()
    result = subscriber.k8sdds
    assert sum(one.samples for one in logged) == sum(one.fresh for one in logged) == result["received"] > 0
    assert sum(one.late for one in logged) == result["arrivals"]["missed"]
    assert [one.at_us for one in logged] == sorted(one.at_us for one in logged)
    first, last = result["first_sample_monotonic_ns"] // 1000, result["last_sample_monotonic_ns"] // 1000
    assert first - 1 <= logged[0].at_us <= logged[-1].at_us <= last + 1


def test_a_stall_is_a_gap_in_the_log(perftest, tmp_path: Path):
    subscriber = perftest.sub("-arrivalsFile", tmp_path / arrivals.FILE)
    publisher = perftest.pub(*PACED, time=1)
    publisher.wait_for_phase("M")
    time.sleep(0.1)
    publisher.stop()
    time.sleep(0.1)
    since_us = time.monotonic_ns() // 1000
    time.sleep(0.3)
    until_us = time.monotonic_ns() // 1000
    publisher.signal(signal.SIGCONT)
    assert (publisher.end(), subscriber.end()) == (0, 0), publisher.err
    (logged,) = arrivals.of_subscriber(tmp_path).values()
    assert not [one for one in logged if since_us <= one.at_us <= until_us]
    after = [one for one in logged if one.at_us > until_us]
    assert after[0].late and after[0].max_delay_us >= 0.2e6, (
        "the first samples are those that were due in the stall"
    )


def test_what_is_too_long_to_be_logged_is_refused(perftest, tmp_path: Path):
    subscriber = perftest.sub("-arrivalsFile", tmp_path / arrivals.FILE)
    longest_s = int(arrivals.longest_s(publishers=1))
    publisher = perftest.pub(*PACED, time=longest_s + 1)
    assert subscriber.end() == 2
    assert (
        f"publisher 0 sends for {longest_s + 1} s; at most {longest_s} s of each publisher are logged"
        in subscriber.err
    )
    assert publisher.end() == 2
