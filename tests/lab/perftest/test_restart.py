"""Test a subscriber that is killed in the measured interval, and another process that takes its place."""

from __future__ import annotations

import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
from perftest_tools import end_all

from k8sdds.results import arrivals

PACED = ("-pacedTest", "-pubRate", "200:sleep", "-bestEffort", "-awaitPeers")
RATE, LENGTH_S = 200, 6


@pytest.mark.parametrize("middleware", ["cyclonedds", "fastdds", "zenoh"])
def test_a_killed_subscriber_keeps_its_log_and_is_replaced(perftest, tmp_path: Path, middleware: str):
    def subscriber(name: str, *options: str):
        log = tmp_path / name / arrivals.FILE
        log.parent.mkdir()
        both = ("-bestEffort", "-awaitPeers", "-arrivalsFile", log)
        return perftest.sub(*both, *options, middleware=middleware)

    first = subscriber("first")
    publisher = perftest.pub(*PACED, time=LENGTH_S, warm_up=0.5, middleware=middleware)
    first.wait_for_phase("M")
    time.sleep(0.5)
    first.signal(signal.SIGUSR2)
    assert first.end() == -signal.SIGKILL and not first.out, "it ends as if it had crashed"
    killed_us = time.monotonic_ns() // 1000
    time.sleep(0.2)
    second = subscriber("second", "-restarted")
    end_all(publisher, second)

    (before,) = arrivals.of_subscriber(tmp_path / "first").values()
    (after,) = arrivals.of_subscriber(tmp_path / "second").values()
    assert sum(one.samples for one in before) > 0 and before[-1].at_us <= killed_us
    result = second.k8sdds
    assert sum(one.samples for one in after) == result["received"] > 0
    # The publisher did not begin again, and what no process received was due while there was none.
    assert result["sent"] == publisher.k8sdds["sent"] == RATE * LENGTH_S
    lost = result["lost"] - sum(one.samples for one in before)
    assert lost >= RATE * 0.2 - 2
    # However late samples arrive on a busy machine: those between these two are lost.
    due_us = after[0].at_us - after[0].max_delay_us - (before[-1].at_us - before[-1].delay_us)
    assert lost == pytest.approx(due_us * RATE / 1e6 - 1, abs=1)
    # Its interval is the rest of that of the publisher. On a busy machine, it can have a longer gap of its own.
    gaps_us = [later.at_us - earlier.at_us for earlier, later in pairwise((before[-1], *after))]
    # The log has whole µs, so that its longest gap can be the blind one, less up to 1 µs.
    assert result["warmup_s"] == 0 and result["arrivals"]["blind_ns"] < (max(gaps_us) + 1) * 1000


@pytest.mark.parametrize("options", [(), ("-awaitPeers",)])
def test_a_stray_subscriber_with_the_same_id_replaces_none(perftest, options: tuple[str, ...]):
    both = ("-bestEffort", *options)
    # It ends as soon as it knows of the stray one, which may receive the START of the first one before it sends anything.
    publisher, first = perftest.begin(*both, pub=("-pacedTest", "-pubRate", "200:sleep"), time=60)
    publisher.wait_for_phase("M")
    stray = perftest.sub(*both)
    assert publisher.end() == 2 and "two subscribers have the id 0" in publisher.err
    assert first.end() == 2 and "another subscriber has the id 0" in first.err
    assert stray.end() in (2, 3), "3 if the publisher has ended before the two matched"
