"""Test that threads which handle no samples hardly wake up while delays are measured."""

import time
from pathlib import Path

import pytest
from perftest_tools import end_all

OBSERVED_S = 2
LIMIT_PER_S = 100
"""Of all these threads of a process together. One that woke up for samples would do so 500 times per second and more."""


def wake_ups(pid, without=()):
    """Count the voluntary context switches of the threads that do not belong to the middleware, which have names."""
    switches = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        status = dict(
            line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line
        )
        if status["Name"] == "k8sdds-perftest" and int(task.name) not in without:
            switches += int(status["voluntary_ctxt_switches"])
    return switches


@pytest.mark.parametrize(
    "test", [("-latencyTest",), ("-pacedTest", "-pubRate", "500:sleep")], ids=["latency", "paced"]
)
def test_threads_without_samples_sleep(perftest, test):
    publisher, subscriber = perftest.begin(pub=test, time=OBSERVED_S + 2)
    for process in (subscriber, publisher):
        process.wait_for_phase("M")
    pids = {process: process.popen.pid for process in (subscriber, publisher)}
    # In a paced test the main thread of the publisher sends the samples.
    sends = (pids[publisher],) if "-pacedTest" in test else ()
    time.sleep(0.2)
    began_s = time.monotonic()
    before = {process: wake_ups(pid, sends) for process, pid in pids.items()}
    time.sleep(OBSERVED_S)
    counts = {process: wake_ups(pid, sends) - before[process] for process, pid in pids.items()}
    limit = LIMIT_PER_S * (time.monotonic() - began_s)
    end_all(publisher, subscriber)
    assert counts[subscriber] <= limit and counts[publisher] <= limit
